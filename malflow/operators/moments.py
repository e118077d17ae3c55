"""What can be a timestamp or an epoch: anything ordered that equals itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from typing import Any, NoReturn

from malflow.batch import Batch
from malflow.message import MAX, MIN
from malflow.operators.contract import Operator

__all__ = ["check_epoch", "check_timestamps", "is_moment"]

_SURE = frozenset({int, str, bytes, bool, date, datetime, time, timedelta, type(MIN), type(MAX)})
"""Types whose every value equals itself."""


def check_timestamps(operator: Operator, batch: Batch, timestamps: Sequence[Any]) -> None:
    """Check that every timestamp of a batch's records can be compared: one that can't would make others late.

    Raises:
        OperatorError: at the first record whose timestamp is None or, as NaN and NaT, does not equal itself.
    """
    if type(timestamps) is range:
        return
    unsure = set(map(type, timestamps)) - _SURE
    if not unsure or (unsure == {float} and not [moment for moment in timestamps if moment != moment]):  # noqa: PLR0124
        return
    rest = iter(timestamps)
    try:
        for moment in rest:
            if not is_moment(moment):
                _refuse(f"{moment!r} is no timestamp", moment, "filter such records, or give them one")
    except Exception as error:
        stamped = Batch(batch.keys, batch.values, timestamps)
        raise operator.fail(error, stamped, rest) from error


def check_epoch(epoch: Any) -> None:
    """Check an epoch that a generator answered with.

    Raises:
        ValueError: if it does not equal itself.
    """
    if not is_moment(epoch):
        _refuse(f"the generator answered {epoch!r}, which is no epoch", epoch, "answer None for no epoch")


def is_moment(moment: Any) -> bool:
    """Whether something can be a timestamp: it equals itself, as do the parts of a tuple, and it is not None.

    >>> is_moment(1.5), is_moment(float("nan")), is_moment((1, float("nan"))), is_moment(None)
    (True, False, False, False)
    """
    if moment is None or moment != moment:  # noqa: PLR0124 - as NaN and NaT
        return False
    return not isinstance(moment, tuple) or all(is_moment(part) for part in moment)


def _refuse(what: str, moment: Any, mend: str) -> NoReturn:
    why = "" if moment is None else ": it does not equal itself, so that nothing is before or after it"
    raise ValueError(f"{what}{why}; {mend}")

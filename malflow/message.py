"""What flows: data messages and changes of tables, the absent key, and the first and last timestamp."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, Literal, NamedTuple

from malflow.names import written_as
from malflow.type_parameters import K, T, V

__all__ = ["MAX", "MIN", "DataMessage", "MaxTime", "MinTime", "NoKey", "NoKeyType", "TableChange", "Timing"]


@written_as("malflow.DataMessage")
@dataclass(slots=True)
class DataMessage(Generic[K, V, T]):
    """One record: a value, the key it belongs to, and its logical timestamp.

    A timestamp can be of any ordered type; malflow never sets one from a clock. Messages compare by their fields. A
    message passed to a key function, a timestamp assigner, an epoch generator or a split's partitioner is a view, valid
    only during the call; inspectors, logics and sinks receive messages that they may keep.

    >>> DataMessage("a", 1, 0)
    DataMessage(key='a', value=1, timestamp=0)
    """

    key: K
    value: V
    timestamp: T


@written_as("malflow.TableChange")
class TableChange(NamedTuple, Generic[V]):
    """One change of one row of a `Table`. Its key is the record's key.

    Attributes:
        before: the row before the change; None if there was none.
        after: the row after the change; None if it was deleted.

    >>> TableChange(None, {"city": "Ulm"}).kind, TableChange({"city": "Ulm"}, None).kind
    ('insert', 'delete')
    """

    before: V | None
    after: V | None

    @property
    def kind(self) -> Literal["insert", "update", "delete"]:
        """``"insert"``, ``"update"`` or ``"delete"``."""
        if self.before is None:
            return "insert"
        return "delete" if self.after is None else "update"


class NoKeyType:
    """The type of `NoKey`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NoKey"

    def __reduce__(self) -> str:
        """Pickle by name, for one `NoKey` per process."""
        return "NoKey"


class MinTime:
    """The type of `MIN`: less than any other timestamp, and unchanged by addition and subtraction."""

    __slots__ = ()

    def __lt__(self, other: Any) -> bool:
        return other is not self

    def __le__(self, _other: Any) -> bool:
        return True

    def __gt__(self, _other: Any) -> bool:
        return False

    def __ge__(self, other: Any) -> bool:
        return other is self

    def __add__(self, _other: Any) -> MinTime:
        return self

    __radd__ = __sub__ = __add__

    def __repr__(self) -> str:
        return "MIN"

    def __reduce__(self) -> str:
        """Pickle by name, for one `MIN` per process."""
        return "MIN"


class MaxTime:
    """The type of `MAX`: greater than any other timestamp, and unchanged by addition and subtraction."""

    __slots__ = ()

    def __lt__(self, _other: Any) -> bool:
        return False

    def __le__(self, other: Any) -> bool:
        return other is self

    def __gt__(self, other: Any) -> bool:
        return other is not self

    def __ge__(self, _other: Any) -> bool:
        return True

    def __add__(self, _other: Any) -> MaxTime:
        return self

    __radd__ = __sub__ = __add__

    def __repr__(self) -> str:
        return "MAX"

    def __reduce__(self) -> str:
        """Pickle by name, for one `MAX` per process."""
        return "MAX"


NoKey: Final = NoKeyType()
"""The key of records without a key; a valid key that all such records share."""

MIN: Final = MinTime()
"""Before every timestamp, of any type."""

MAX: Final = MaxTime()
"""After every timestamp, of any type. The epoch (watermark) `MAX` ends a stream."""


class Timing(Enum):
    """When a result was emitted, relative to its window.

    Attributes:
        FINAL: when it was complete; for a window, at the epoch that closed it.
        EARLY: while the window was still open; a later result replaces it.
        LATE: after it closed, since a late record was added; it replaces the earlier results.
        END: at the end of the input, before it was due: the window was still open, or a pattern still waited for an
            absence. It is provisional: a run that resumes with more input emits another one.
    """

    __module__ = "malflow.windows"  # where users import it, and snapshots name it; importing that takes long
    FINAL = "FINAL"
    EARLY = "EARLY"
    LATE = "LATE"
    END = "END"

    def __repr__(self) -> str:
        return self.name

    @classmethod
    def of(cls, result: object) -> Timing:
        """Return the timing of a result of a window, a pattern or a join; `FINAL` for results without one."""
        timing = getattr(result, "timing", cls.FINAL)
        return timing if isinstance(timing, cls) else cls.FINAL

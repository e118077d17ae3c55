"""Tables, and what is made of them, mean what brute force over plain dicts says."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.tables import model
from tests.tables.running import changes_of, items, messages_of, rows_of

workers = st.integers(1, 3)


def by_key(changes: Any) -> dict[Any, list[Any]]:
    """Return changes by key, in their order."""
    found: dict[Any, list[Any]] = {}
    for change in changes:
        found.setdefault(change[0], []).append(change)
    return found


@given(given=items(), workers=workers, debug=st.booleans())
def test_the_changes_of_a_table_fold_to_its_rows(given: list[Any], workers: int, debug: bool) -> None:
    sent = messages_of(given, lambda left, _: left.to_table("table").changes(), parallelism=workers, debug=debug)
    found, expected = changes_of(sent), model.changed(rows_of(given))
    assert by_key(found) == by_key(expected)
    last = {key: row for key, _, row in rows_of(given)}
    assert model.folded(found) == {key: row for key, row in last.items() if row is not None}

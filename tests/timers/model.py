"""The meaning of timers: a model that searches a list of all of them for each that fires."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from malflow import MAX, DataMessage, StatefulLogic
from tests.selection.model import Row, events
from tests.windows.running import Item

__all__ = ["Dropping", "Scripted", "fired_rows"]

MANY = 2


class Scripted(StatefulLogic[Any, Any, Any, Any, Any]):
    """Sets timers as values say, and on some timers again; the state has all timestamps, and a 0 for each timer."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        """Do what the value says."""
        match msg.value:
            case "drop":
                return None
            case "sleep":
                output.sleep()
            case "wait":
                pass
            case delay:
                output.wake(msg.timestamp + delay)
        return (*(state or ()), msg.timestamp)

    def on_timer(self, key: Any, at: Any, state: Any, output: Any) -> Any:
        """Send the state; drop it, or set the timer again, or neither."""
        output.send(DataMessage(key, (at, state), at))
        if len(state) % 3 == 1:
            output.wake(at + 4)
        return None if len(state) % 3 == 2 else (*state, 0)


class Dropping(Scripted):
    """Drops states at epochs, too."""

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        """Drop long states."""
        for key in [key for key in states if len(states[key]) > MANY]:
            states[key] = None


class _Model:
    def __init__(self) -> None:
        self.states: dict[Any, Any] = {}
        self.timers: list[tuple[Any, int, Any]] = []  # time, order of setting, key
        self.rows: list[Row] = []
        self.count = 0

    def drop(self, key: Any) -> None:
        self.states.pop(key, None)
        self.timers = [timer for timer in self.timers if timer[2] != key]

    def wake(self, key: Any, at: Any) -> None:
        if any((time, other) == (at, key) for time, _, other in self.timers):
            return
        self.timers = [timer for timer in self.timers if timer[2] != key]
        self.count += 1
        self.timers.append((at, self.count, key))

    def take(self, key: Any, at: Any, value: Any) -> None:
        if value == "drop":
            self.drop(key)
            return
        if value == "sleep":
            self.timers = [timer for timer in self.timers if timer[2] != key]
        elif value != "wait":
            self.wake(key, at + value)
        self.states[key] = (*self.states.get(key, ()), at)

    def fire(self, timer: tuple[Any, int, Any]) -> None:
        at, _, key = timer
        self.timers.remove(timer)
        state = self.states[key]
        self.rows.append((key, at, (at, state)))
        if len(state) % 3 == 2:
            self.drop(key)
            return
        self.states[key] = (*state, 0)
        if len(state) % 3 == 1:
            self.wake(key, at + 4)

    def advance(self, epoch: Any) -> None:
        if epoch is MAX:
            for timer in sorted(self.timers):
                self.fire(timer)
            return
        while due := [timer for timer in self.timers if timer[0] <= epoch]:
            self.fire(min(due))


def fired_rows(items: Iterable[Item], bound: int, *, drops: bool) -> list[Row]:
    """Return what the logic sends when its timers fire."""
    model = _Model()
    for row, epoch in events(items, bound):
        if row is not None:
            model.take(*row)
            continue
        model.advance(epoch)
        for key in [key for key, state in model.states.items() if drops and len(state) > MANY]:
            model.drop(key)
    return model.rows

"""The partial matches of keys, which events advance and deadlines end.

The pattern is an automaton over sets of positions (after Glushkov's construction; see `malflow.patterns.automaton`). A
partial match of a key, called a run, is a state of the automaton with the events taken so far. An event moves each run
of its key by the steps that it satisfies: the run takes the event, skips it, or forks to do both. If two runs have the
same future and only one may be emitted, the preferred one is kept. Deadlines, from absences and time limits, are timers
of the key, fired by epochs, so results do not depend on the order in which records of other keys arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain
from operator import gt
from typing import Any, Literal

from malflow.event_time.timers import Timers
from malflow.patterns.automaton import Automaton, Moves
from malflow.patterns.match import BEFORE, ORDINAL, STEP, TIME, VALUE, Event, Match, Node, SoFar
from malflow.patterns.runs import FIRST, LAST, STATE, Counters, Emitted, Run, merged, newest, starts_of
from malflow.words import short_repr

__all__ = ["After", "Machine", "Row"]

After = Literal["end", "start", "all"]
"""The partial matches that a match discards: those that began up to its last event, those with its first event, or
none.
"""

Row = tuple[Any, Any, int, Any]
"""An event: its timestamp, its key, the bits of the steps that it satisfies, and its value."""

_NO_RUNS: Sequence[Run] = ()

_event = partial(tuple.__new__, Event)
"""Creates an event from a tuple in half the time of its constructor."""


# Example: ``a then_any b``, with the events a1 b1 b2 of one key. Each line shows the runs after an event.
#   a1    (a1)        a run starts
#   b1    (a1)        it forks: one run takes b1 and is complete, the other skips b1
#   b2    (a1)        the same again: (a1, b2) is complete
# With ``a then b``, a run must take the first event that satisfies b, so it doesn't fork at b1.
# Invariant: the runs of a key are always in order of preference, so the first of several with one future is kept.
class Machine:
    """The partial matches of each key.

    Those of a key are in order of preference: by their starts and, for the same start, a run that takes an event before
    one that skips it. `take` receives the events of a key in order; `expire` applies an epoch.

    Attributes:
        automaton: the automaton of the pattern.
        runs: the partial matches of the keys that have any.
        finished: if matches discard nothing, the ordinals of the starts with a match, by key.
        silent_since: the timestamp of the last event that breaks an absence in front, by key.
        timers: the next time at which something expires, by key.
        matches: the matches that were not taken yet.
        timeouts: the partial matches that timed out and were not taken yet.
        counters: the number of each outcome.
        make: creates a match.
        partials: the number of partial matches.
        at: the current event: key, value and timestamp, or None.

    Args:
        automaton: the automaton.
        span: the pattern's span.
        lead: how long the step of the absence in front must not occur.
        after: which partial matches a match discards.
        limit: the maximum number of partial matches of a key.
        drops_oldest: whether the oldest ones are dropped at the limit.
        in_order: whether the events of a key arrive in the order of time.
    """

    def __init__(
        self,
        automaton: Automaton,
        *,
        span: Any,
        lead: Any,
        after: After,
        limit: int,
        drops_oldest: bool = False,
        in_order: bool = True,
    ) -> None:
        self.automaton = automaton
        self.runs: dict[Any, Sequence[Run]] = {}
        self.finished: dict[Any, set[int]] = {}
        self.silent_since: dict[Any, Any] = {}
        self.timers = Timers()
        self.matches, self.timeouts = Emitted(), Emitted()
        self.counters = Counters()
        self.make: type[Match[Any, Any, Any]] = Match
        self.partials = 0
        self.at: tuple[Any, Any, Any] | None = None
        self.ordinal = 0
        self._span, self._lead_for = span, lead
        self._after, self._limit, self._drops_oldest = after, limit, drops_oldest
        self._so_far: SoFar[Any] = SoFar({name: number for number, name in enumerate(automaton.names)})
        self._lead_given = automaton.steps[automaton.lead.bit_length() - 1].given if automaton.lead else None
        self._is_timed = span is not None or automaton.has_terms
        self._only_span = span is not None and in_order and not automaton.has_terms
        self._merges = after == "end" and span is None and not automaton.has_bounds and not automaton.has_given
        self._due, self._start_mask = self.timers.at, automaton.start_mask
        self._starts = tuple((bit, step, state, automaton.steps[step].given) for bit, step, state in automaton.starts)
        self._has_forked = False

    @property
    def timed_partials(self) -> int:
        """The number of partial matches, if they have deadlines."""
        return self.partials if self._is_timed else 0

    def walk(self, rows: Iterable[Row]) -> None:
        """Take events. They are in order for each key."""
        runs, take, start_mask, lead = self.runs, self.take, self._start_mask, self.automaton.lead
        key = value = time = None
        try:
            for time, key, mask, value in rows:
                if mask & start_mask or key in runs:
                    take(key, mask, value, time)
                if mask & lead:
                    self._break_silence(key, value, time)
        except OverflowError as error:
            self.at = (key, value, time)
            raise self._out_of_range(time) or error from error
        except Exception:
            self.at = (key, value, time)
            raise

    def _out_of_range(self, time: Any) -> OverflowError | None:
        """Return the error for a timestamp to which a duration of the pattern can't be added, or None."""
        for duration in self.automaton.durations:
            try:
                time + duration
            except OverflowError as error:
                return OverflowError(
                    f"{short_repr(duration)} after {short_repr(time)} is out of range ({error}); filter such "
                    "records, or shorten the duration"
                )
        return None

    def take(self, key: Any, mask: int, value: Any, time: Any) -> None:
        """Take an event that satisfies the steps of a mask."""
        self.ordinal += 1
        after: list[Run] = []
        done: list[Run] = []
        runs = self.runs.get(key, _NO_RUNS)
        has_changed, ended = False, 0
        if runs:
            if self._is_timed:
                due = self._due.get(key)
                if due is not None and due < time:
                    runs = self._expire(key, runs, time, inclusive=False)
            has_changed, ended = self._move(runs, mask, value, time, after, done)
        if mask & self._start_mask and (not self.automaton.lead or self._may_start(key, time)):
            has_changed = self._start(mask, value, time, after, done) or has_changed
        if has_changed or ended:
            self._settle(key, runs, after, done, time, ended)

    def _move(  # noqa: C901 - saves a call for each partial match
        self, runs: Sequence[Run], mask: int, value: Any, time: Any, after: list[Run], done: list[Run]
    ) -> tuple[bool, int]:
        """Move partial matches by an event.

        Args:
            runs: the partial matches.
            mask: the bits of the steps that the event satisfies.
            value: its value.
            time: its timestamp.
            after: receives those that continue.
            done: receives those that are matches.

        Returns:
            Whether any has changed, and the number of those that have ended.
        """
        has_changed, ended, ordinal, so_far = False, 0, self.ordinal, self._so_far
        for run in runs:
            state, first, last = run
            if state.is_plain:
                takes, kept = state.moves.get(mask) or state.plain_moves(mask)
            elif state.choice is None:
                takes, kept = self._conditional_moves(run, mask, value, time)
            else:
                so_far.node = last
                step, given = state.choice
                able = 1 if mask & step and given(value, so_far) else 0
                takes, kept = state.moves.get(able << 1) or state.other_moves(able, 0)
            if takes:
                has_changed = True
                self._has_forked = self._has_forked or kept is not None or len(takes) > 1
                for step, target in takes:
                    taken = (target, first, (last, step, time, value, ordinal))
                    if target.accepts:
                        done.append(taken)
                    if target.continues:
                        after.append(taken)
            if kept is state:
                after.append(run)
            elif kept is not None:
                has_changed = True
                run = (kept, first, last)  # noqa: PLW2901 - the run continues as this one
                is_over = self._is_timed and self._is_over(run, time)
                ended += is_over
                if not is_over:
                    after.append(run)
            elif not takes:
                ended += 1
        return has_changed, ended

    def _conditional_moves(self, run: Run, mask: int, value: Any, time: Any) -> Moves:
        """Return the moves of a partial match in a state that is not plain."""
        state, first, last = run
        so_far = self._so_far
        so_far.node = last
        able = ended = 0
        if not state.waits or self._span is None or time <= first[TIME] + self._span:
            for step, option, within, after, given in state.questions:
                if (
                    mask & step
                    and (within is None or time <= last[TIME] + within)
                    and (after is None or time > last[TIME] + after)
                    and (given is None or given(value, so_far))
                ):
                    able |= option
        for step, given, always, timed in state.killers:
            if mask & step and (given is None or given(value, so_far)):
                ended |= always
                for during, options in timed:
                    if time <= last[TIME] + during:
                        ended |= options
        return state.other_moves(able, ended)

    def _may_start(self, key: Any, time: Any) -> bool:
        """Whether the step of the absence in front has been absent for long enough."""
        return key not in self.silent_since or time > self.silent_since[key] + self._lead_for

    def _break_silence(self, key: Any, value: Any, time: Any) -> None:
        """Record an event of the step that must be absent before a match."""
        if self._lead_given is not None:
            self._so_far.node = None
            if not self._lead_given(value, self._so_far):
                return
        since = self.silent_since.get(key)
        if since is not None and time <= since:
            return  # by arrival, an older event may be later
        self.silent_since[key] = time
        if key not in self.timers.at:
            self.timers.set(key, time + self._lead_for)

    def _start(self, mask: int, value: Any, time: Any, after: list[Run], done: list[Run]) -> bool:
        """Begin a partial match for each first step that the event satisfies; return whether to keep any."""
        begun, before = 0, len(after)
        for bit, step, target, given in self._starts:
            if mask & bit:
                if given is not None:
                    self._so_far.node = None
                    if not given(value, self._so_far):
                        continue
                begun += 1
                if (
                    self._merges
                    and len(after) == 1
                    and after[0][STATE] is target
                    and target.is_like_before
                    and not done
                ):
                    self.counters.used_up += 1  # as `merged` does
                    continue
                node = (None, step, time, value, self.ordinal)
                run = (target, node, node)
                if target.accepts:
                    done.append(run)
                if target.continues:
                    after.append(run)
        if not begun:
            return False
        self.counters.starts += 1
        self._has_forked = self._has_forked or begun > 1
        return bool(done) or len(after) > before

    def _settle(
        self, key: Any, before: Sequence[Run], after: list[Run], done: Sequence[Run], time: Any, ended: int
    ) -> None:
        """Emit the matches that an event completed, and keep the partial matches that continue.

        Args:
            key: the key.
            before: the partial matches before the event.
            after: those that continue, or have begun.
            done: the complete matches.
            time: the timestamp of the event.
            ended: the number of those that have ended.
        """
        over: set[int] = set()
        if done:
            over = self._emit(key, done, after, time)
            if self._after != "all":
                after = [run for run in after if run[FIRST][ORDINAL] not in over]
        if ended:
            self._count_broken(key, before, after, over, ended)
        if len(after) > 1 and (self._merges or len(after) > self._limit):
            after = self._fewer(key, after)
        if not after or self.finished:
            self._keep(key, before, after)
        else:
            self.partials += len(after) - len(before)
            self.runs[key] = after
        if after and self._is_timed:
            self._plan(key, after)

    def _fewer(self, key: Any, runs: list[Run]) -> list[Run]:
        """Return the partial matches to keep: one for each future, and no more than the limit."""
        kept = runs
        if self._merges:
            kept = merged(runs, has_silent_end=self.automaton.has_silent_end)
            if len(kept) < len(runs):
                self.counters.used_up += len(starts_of(runs) - starts_of(kept))
        if len(kept) > self._limit:
            runs, kept = kept, newest(key, kept, self._limit, drops_oldest=self._drops_oldest)
            self.counters.dropped += len(starts_of(runs) - starts_of(kept))
        return kept

    def _keep(self, key: Any, before: Sequence[Run], runs: Sequence[Run]) -> None:
        """Store the partial matches of a key, replacing the previous ones."""
        self.partials += len(runs) - len(before)
        if runs:
            self.runs[key] = runs
            if self.finished and key in self.finished:
                self.finished[key].intersection_update(starts_of(runs))
            return
        if before:
            del self.runs[key]
            if self._is_timed and key not in self.silent_since:
                self.timers.cancel(key)
        self.finished.pop(key, None)

    def _plan(self, key: Any, runs: Sequence[Run]) -> None:
        """Set the timer for the first of a key's partial matches to expire. An earlier timer stays until it fires."""
        planned = self._due.get(key)
        if self._only_span:
            if planned is None:
                self.timers.set(key, runs[0][FIRST][TIME] + self._span)
            return
        soonest = planned
        for run in runs:
            if run[STATE].has_deadline or self._span is not None:
                end = self._deadline(run)
                if end is not None and (soonest is None or end < soonest):
                    soonest = end
        if soonest is not planned:
            self.timers.set(key, soonest)

    def load(self, key: Any, runs: Sequence[Run], finished: set[int], silent_since: Any) -> None:
        """Load the data of a key from a snapshot."""
        self.drop(key)
        if silent_since is not None and self.automaton.lead:
            self.silent_since[key] = silent_since
            self.timers.set(key, silent_since + self._lead_for)
        if finished and self._after == "all":
            self.finished[key] = finished
        if runs:
            self._has_forked = self._has_forked or len(starts_of(runs)) < len(runs)
            starts = [run[FIRST][TIME] for run in runs]
            if self._only_span and any(map(gt, starts, starts[1:])):
                self._only_span = False  # the earlier program took events by arrival
            self._keep(key, (), runs)
            if self._is_timed:
                self._plan(key, runs)

    def drop(self, key: Any) -> None:
        """Drop the partial matches of a key."""
        self.partials -= len(self.runs.pop(key, ()))
        self.finished.pop(key, None)
        self.silent_since.pop(key, None)
        self.timers.cancel(key)

    def _emit(self, key: Any, done: Sequence[Run], others: Iterable[Run], time: Any) -> set[int]:
        """Emit matches, in order.

        Args:
            key: the key.
            done: the matches.
            others: the other partial matches.
            time: the time when the matches are complete.

        Returns:
            The ordinals of the starts that have a match or are discarded.
        """
        told: set[int] = set()
        last_used = -1
        for run in done:
            start = run[FIRST][ORDINAL]
            if self._after == "all" or (start > last_used if self._after == "end" else start not in told):
                self._add(self.matches, key, run, time)
                self.counters.matches += 1
                told.add(start)
                if self._after == "end":
                    last_used = run[LAST][ORDINAL]
        if self._after == "all":
            self.finished.setdefault(key, set()).update(told)
        emitted = len(told)
        if last_used >= 0:
            told.update(run[FIRST][ORDINAL] for run in chain(done, others) if run[FIRST][ORDINAL] <= last_used)
            self.counters.used_up += len(told) - emitted
        return told

    def _add(self, emitted: Emitted, key: Any, run: Run, time: Any) -> None:
        names, last = self.automaton.names, run[LAST][TIME]
        events: list[Event[Any, Any]] = []
        node: Node | None = run[LAST]
        while node is not None:
            events.append(_event((names[node[STEP]], node[VALUE], node[TIME])))
            node = node[BEFORE]
        events.reverse()
        emitted.keys.append(key)
        end = last if emitted is self.timeouts else time
        emitted.values.append(self.make(key, run[FIRST][TIME], end, tuple(events), names))
        emitted.timestamps.append(time)

    def _count_broken(self, key: Any, before: Iterable[Run], after: Iterable[Run], over: set[int], ended: int) -> None:
        """Count the starts without a partial match left; until one forks, each has only one."""
        if self._has_forked:
            gone = starts_of(before).difference(starts_of(after), over)
            ended = len(gone.difference(self.finished.get(key, ())))
        self.counters.broken += ended

    def _is_over(self, run: Run, time: Any) -> bool:
        """Whether all that an event left of a partial match has already expired: then the event has broken it."""
        end = self._deadline(run)
        return end is not None and bool(end < time)

    def _deadline(self, run: Run) -> Any:
        """Return when a partial match expires, by a complete absence or a time limit; None for never."""
        state, first, last = run
        end = None
        if not state.waits:
            if self._span is not None:
                end = first[TIME] + self._span
            near = state.reach
        else:
            if state.waits_for_span:
                end = first[TIME] + self._span
            near = state.patience
        if near is None:
            return end
        near = last[TIME] + near
        return near if end is None or near < end else end

    def expire(self, key: Any, now: Any) -> None:
        """Expire the due partial matches of a key with a fired timer, up to and including an epoch."""
        self._expire(key, self.runs.get(key, ()), now, inclusive=True)

    def _expire(self, key: Any, runs: Sequence[Run], now: Any, *, inclusive: bool) -> Sequence[Run]:
        """Expire the due partial matches of a key; return the others."""
        soonest, before = None, runs
        if self._only_span and runs:
            runs, soonest = self._expire_starts(key, runs, now, inclusive=inclusive)
        while runs and soonest is None:
            soonest, ends = None, list(map(self._deadline, runs))
            for end in ends:
                if end is not None and (soonest is None or end < soonest):
                    soonest = end
            if soonest is None or not (soonest <= now if inclusive else soonest < now):
                break
            runs = self._expire_at(key, runs, ends, soonest)
            soonest = None
        if key in self.silent_since:
            end = self.silent_since[key] + self._lead_for
            if inclusive and end <= now:
                del self.silent_since[key]
            elif soonest is None or end < soonest:
                soonest = end
        self._keep(key, before, runs)
        if soonest is None:
            self.timers.cancel(key)
        else:
            self.timers.set(key, soonest)
        return runs

    def _expire_starts(self, key: Any, runs: Sequence[Run], now: Any, *, inclusive: bool) -> tuple[Sequence[Run], Any]:
        """Emit the starts with a span that is over: they are first, and there are no other deadlines.

        Returns:
            The remaining partial matches, and when the first of them expires.
        """
        finished = self.finished.get(key, ())
        last = None
        for count, run in enumerate(runs):
            _, _, time, _, start = run[FIRST]
            end = time + self._span
            if end > now or (end == now and not inclusive):
                return runs[count:], end
            if start != last and start not in finished:
                self._add(self.timeouts, key, run, end)
                self.counters.timeouts += 1
            last = start
        return (), None

    def _expire_at(self, key: Any, runs: Sequence[Run], ends: Sequence[Any], when: Any) -> list[Run]:
        """Emit the matches and timeouts at a deadline; return the remaining partial matches."""
        kept: list[Run] = []
        done: list[Run] = []
        late: list[Run] = []
        for run, end in zip(runs, ends, strict=True):
            if end is None or end > when:
                kept.append(run)
            elif not run[STATE].waits:
                late.append(run)
            else:
                done.append(run)
                told = run[STATE].after_wait() if self._after == "all" else None
                if told is not None:
                    kept.append((told, run[FIRST], run[LAST]))
        over: set[int] = set()
        if done:
            over = self._emit(key, done, (*kept, *late), when)
            if self._after != "all":
                kept = [run for run in kept if run[FIRST][ORDINAL] not in over]
        if late:
            over = over.union(starts_of(kept), self.finished.get(key, ()))
        for run in late:
            if run[FIRST][ORDINAL] not in over:
                over.add(run[FIRST][ORDINAL])
                self._add(self.timeouts, key, run, when)
                self.counters.timeouts += 1
        return kept

"""The planted bugs: typical mistakes with time, aggregation, patterns, processes and exchanges.

Each stands for a trap of the kind that other stream processors fell into. ``python -m tests.planted`` plants them.
"""

from __future__ import annotations

from tests.planted.bad_record_bugs import BAD_RECORD_BUGS
from tests.planted.batch_bugs import BATCH_BUGS
from tests.planted.calling_bugs import CALLING_BUGS
from tests.planted.command_bugs import COMMAND_BUGS
from tests.planted.config_bugs import CONFIG_BUGS
from tests.planted.deal_bugs import DEAL_BUGS
from tests.planted.drawing_bugs import DRAWING_BUGS
from tests.planted.exchange_bugs import EXCHANGE_BUGS
from tests.planted.frame_bugs import FRAME_BUGS
from tests.planted.hunt import Bug
from tests.planted.kernel_bugs import KERNEL_BUGS
from tests.planted.lookup_bugs import LOOKUP_BUGS
from tests.planted.monitor_bugs import MONITOR_BUGS
from tests.planted.page_bugs import PAGE_BUGS
from tests.planted.partial_bugs import PARTIAL_BUGS
from tests.planted.pattern_bugs import PATTERN_BUGS
from tests.planted.plan_bugs import PLAN_BUGS
from tests.planted.process_bugs import PROCESS_BUGS
from tests.planted.project_bugs import PROJECT_BUGS
from tests.planted.query_bugs import QUERY_BUGS
from tests.planted.reading_bugs import READING_BUGS
from tests.planted.serve_bugs import SERVE_BUGS
from tests.planted.sink_bugs import SINK_BUGS
from tests.planted.sink_column_bugs import SINK_COLUMN_BUGS
from tests.planted.size_bugs import SIZE_BUGS
from tests.planted.spark_bugs import SPARK_BUGS
from tests.planted.sql_bugs import SQL_BUGS
from tests.planted.state_bugs import STATE_BUGS
from tests.planted.steering_bugs import STEERING_BUGS
from tests.planted.table_bugs import TABLE_BUGS
from tests.planted.terminal_bugs import TERMINAL_BUGS
from tests.planted.why_bugs import WHY_BUGS

__all__ = ["BUGS"]

LAWS = "tests/windows/test_laws.py"
PANES = "tests/windows/test_panes.py"
TIMES = "tests/windows/test_time_windows.py"
SESSIONS = "tests/windows/test_sessions.py"
COUNTS = "tests/windows/test_counting.py"
EARLY = "tests/windows/test_early.py"
LATE = "tests/windows/test_late.py"
MOVED = "tests/windows/test_moved_windows.py"
INTERVAL = "tests/joins/test_interval_join.py"
ASOF = "tests/joins/test_asof_join.py"
COGROUP = "tests/joins/test_cogroup.py"
TIMERS = "tests/timers/test_models.py"
TIMER_RULES = "tests/timers/test_behaviour.py"
CLOCK = "tests/timers/test_clock.py"
SELECTION = "tests/selection/test_models.py"
SELECTION_RULES = "tests/selection/test_mistakes.py"
AGGREGATOR_LAWS = "tests/aggregators/test_laws.py"
KERNELS = "tests/aggregators/test_kernels.py"
CHECKS = "tests/aggregators/test_debug.py"
EPOCHS = "tests/conformance/test_time.py"
INSTANTS = "tests/conformance/test_instants.py"

_WINDOWS = [
    Bug(
        "results are stamped with the end of their window",
        "the last hour of a day counts for the next day",
        "operators/windows/time_windows.py",
        "stamp = panes.last(end - 1) if timestamp is None else timestamp",
        "stamp = panes.start(end) if timestamp is None else timestamp",
        (f"{LAWS}::test_the_last_hour_of_a_day_counts_for_that_day",),
    ),
    Bug(
        "a window waits for its end",
        "off by one between the last instant and the end",
        "operators/windows/time_windows.py",
        "            if epoch is not MAX and last > epoch:\n                break",
        "            if epoch is not MAX and last >= epoch:\n                break",
        (f"{PANES}::test_an_epoch_at_the_last_instant_closes_a_window",),
    ),
    Bug(
        "the last float of a window is its end",
        "off by one for one type of timestamps",
        "event_time/panes.py",
        "return nextafter(self.start(number + 1), -inf)",
        "return self.start(number + 1)",
        (PANES,),
    ),
    Bug(
        "the product of floats decides their window",
        "a record lies outside of its window, by rounding",
        "event_time/panes.py",
        "        number = int((timestamp - self.offset) // self.size)\n",
        "        return int((timestamp - self.offset) // self.size)\n",
        (f"{PANES}::test_windows_of_floats_have_no_gaps",),
    ),
    Bug(
        "times before zero are rounded up",
        "division towards zero",
        "event_time/panes.py",
        "return int((timestamp - self.origin) // self.size)",
        "return int((timestamp - self.origin) / self.size)",
        (
            f"{PANES}::test_negative_times_are_rounded_down",
            f"{PANES}::test_windows_contain_their_start_and_not_their_end",
        ),
    ),
    Bug(
        "weeks begin on Thursdays",
        "1970 began on a Thursday",
        "windows.py",
        "not cycle % _WEEK and offset is None:",
        "not cycle % _WEEK and offset is None and False:",
        (PANES,),
    ),
    Bug(
        "a day begins at a midnight that does not exist",
        "clocks are set forward over midnight",
        "event_time/panes.py",
        "    if found.astimezone(zone).replace(tzinfo=None) == wall:\n        return found\n",
        "    return found\n",
        (f"{PANES}::test_calendar_units_begin_at_their_first_midnight",),
    ),
    Bug(
        "a day begins at its second midnight",
        "clocks are set back over midnight",
        "event_time/panes.py",
        "    found = wall.replace(tzinfo=zone).astimezone(UTC)\n",
        "    found = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)\n",
        (f"{PANES}::test_calendar_units_begin_at_their_first_midnight",),
    ),
    Bug(
        "months and quarters begin a month late",
        "calendar arithmetic",
        "event_time/panes.py",
        "divmod(number * _MONTHS[self.unit], 12)",
        "divmod(number * _MONTHS[self.unit] + 1, 12)",
        (PANES,),
    ),
    Bug(
        "floats are summed batch by batch",
        "the last digits depend on where batches are cut",
        "operators/windows/time_windows.py",
        "            self._kernel.add(states, run.key_column(), records, run.timestamps, self._admit)\n",
        "            sums: dict[Any, Any] = {}\n"
        "            self._kernel.add(sums, run.key_column(), records, run.timestamps, self._admit)\n"
        "            states.update(self._kernel.merge_by_key(dict(states), sums))\n",
        (f"{LAWS}::test_floats_do_not_show_where_batches_are_cut",),
    ),
    Bug(
        "what leaves a sliding window is subtracted",
        "1e16 + 1 - 1e16 is 0",
        "operators/windows/sliding.py",
        "return self._combine(suffix, self._prefix) if suffix else self._prefix",
        "whole = self._combine(suffix, self._prefix) if suffix else self._prefix\n"
        "        return {key: acc + 1e16 - 1e16 if type(acc) is float else acc for key, acc in whole.items()}",
        (f"{LAWS}::test_a_large_number_leaves_no_trace_in_later_windows",),
    ),
    Bug(
        "the panes of a sliding window are in a wrong order",
        "merge is not commutative",
        "operators/windows/sliding.py",
        "return self._combine(suffix, self._prefix) if suffix",
        "return self._combine(self._prefix, suffix) if suffix",
        (f"{LAWS}::test_the_distance_of_windows_need_not_divide_their_size",),
    ),
    Bug(
        "blocks of panes begin where a run begins",
        "after a restart floats are rounded otherwise",
        "operators/windows/sliding.py",
        "        block = (number - 1) // self._span * self._span\n",
        "        block = min(panes)\n",
        (f"{TIMES}::test_a_restart_changes_nothing",),
    ),
    Bug(
        "the distance of windows is taken to divide their size",
        "size % every != 0",
        "windows.py",
        '    unit = _common_unit(size, every)\n    return TimeWindows(_panes("sliding"',
        '    unit = min(size, every)\n    return TimeWindows(_panes("sliding"',
        (f"{LAWS}::test_the_distance_of_windows_need_not_divide_their_size", TIMES),
    ),
    Bug(
        "the epoch that a window reached is not restored",
        "a sliding window comes again after a restart",
        "operators/epochs/frontiers.py",
        'self.epoch, self.like = self.state.get("epoch"), self.state.get("like")',
        'self.like = self.state.get("like")',
        (f"{TIMES}::test_a_restart_changes_nothing",),
    ),
    Bug(
        "a worker that was away knows the epoch, and not which windows it closed",
        "a window comes again from another process",
        "operators/epochs/frontiers.py",
        "        if self.on_apply is not None:\n            self.on_apply()\n",
        "",
        ("tests/windows/test_takeovers.py",),
    ),
    Bug(
        "the horizon is that of the open windows",
        "an epoch is passed over that closes a window of the same batch",
        "operators/windows/window_operator.py",
        "        return horizon(panes, epoch)",
        "        return panes.last(min(self.state.panes, default=panes.number(epoch) + 1))",
        (f"{LAWS}::test_an_epoch_closes_a_window_that_was_opened_in_its_batch",),
    ),
    Bug(
        "windows without records are closed one by one",
        "an epoch that jumps far takes for ever",
        "operators/windows/sliding.py",
        "            if oldest >= number:",
        "            if False:",
        (f"{LAWS}::test_an_epoch_may_jump_over_thousands_of_millions_of_windows",),
        seconds=60,
    ),
    Bug(
        "a horizon is looked for at the end of the stream",
        "arithmetic with the greatest epoch",
        "operators/windows/window_operator.py",
        "        if epoch is not MAX:\n            self._horizon = self.horizon(panes, epoch)",
        "        self._horizon = self.horizon(panes, epoch)",
        (f"{TIMES}::test_each_window_has_exactly_its_records",),
    ),
    Bug(
        "results at the end of the stream look final",
        "half a window at the end of a file",
        "operators/windows/sliding.py",
        "                timing = Timing.END if epoch is MAX else Timing.FINAL",
        "                timing = Timing.FINAL",
        (TIMES,),
    ),
    Bug(
        "a window that grows begins again with each pane",
        "the panes before it were merged when they closed",
        "operators/windows/sliding.py",
        "            self._total = self._merge_panes(self._total, held[number])\n        return self._total",
        "            return held[number]\n        return self._total",
        ("tests/windows/test_cumulating.py",),
    ),
    Bug(
        "each change of a pane writes all panes",
        "state by key instead of by pane",
        "states/paned.py",
        "            if dirty is not None:\n                dirty.update(keys)\n",
        "            self._dirty.update(dict.fromkeys(self.panes))\n",
        (f"{LAWS}::test_a_delta_has_only_the_panes_that_changed",),
    ),
    Bug(
        "a change of a pane's states is not written",
        "touch is forgotten",
        "states/paned.py",
        "                dirty.update(keys)\n",
        "                pass\n",
        (f"{TIMES}::test_a_restart_changes_nothing",),
    ),
    Bug(
        "closed panes stay in snapshots",
        "deletions are no part of the delta",
        "states/paned.py",
        "                self._dropped.append((number, states))\n",
        "                pass\n",
        (f"{TIMES}::test_a_restart_changes_nothing",),
    ),
    Bug(
        "panes are merged without being copied",
        "a merge changes its argument",
        "aggregators/collected.py",
        'join="{a} + {b}"',
        'join="{a}.extend({b}) or {a}"',
        (f"{AGGREGATOR_LAWS}::test_a_kernel_merges_as_its_aggregators_do", TIMES),
    ),
    Bug(
        "windows that share panes take any aggregator",
        "the first merge fails, long after the start",
        "streams/operators/windows.py",
        '            check_merge(name, kernel, "windows that share panes")\n',
        "",
        (f"{LAWS}::test_windows_that_share_panes_need_aggregators_that_merge",),
    ),
    Bug(
        "timestamps of two types go to the panes of the first",
        "dates and datetimes, with and without a zone",
        "operators/windows/window_operator.py",
        "if fitted(self._unfitted, timestamp) != panes:",
        "if False:",
        (f"{PANES}::test_timestamps_of_two_types_are_named",),
    ),
    Bug(
        "the first early result takes the accumulators",
        "early results change final ones",
        "operators/windows/time_windows.py",
        "return {key: states[key] for key in keys}",
        "return {key: states.pop(key) for key in keys}",
        (EARLY,),
    ),
    Bug(
        "a late record brings early results of a window that is over",
        "of several windows of a pane, some are closed",
        "operators/windows/early.py",
        "            if panes.last(first + self._windows.span - 1) <= epoch:",
        "            if False:",
        (f"{LATE}::test_early_results_leave_out_windows_that_are_closed",),
    ),
    Bug(
        "a late record reaches a kept window one epoch too long",
        "off by one at the end of the time for late records",
        "operators/windows/window_operator.py",
        "        return bool(last + self._until <= epoch) or any(",
        "        return bool(last + self._until < epoch) or any(",
        (f"{LATE}::test_an_epoch_in_the_same_batch_ends_a_kept_window",),
    ),
    Bug(
        "a late record counts in closed sliding windows only",
        "its newest window is open, its own pane is closed",
        "operators/windows/sliding.py",
        "        if panes.last(newest + self._windows.span - 1) <= epoch:\n",
        "        if panes.last(number) <= epoch:\n",
        (f"{LATE}::test_late_records_are_added_to_windows_that_are_open",),
    ),
    Bug(
        "closed panes are not combined again for a late record",
        "a cache outlives what it was made of",
        "operators/windows/sliding.py",
        "        self._next = None  # combine the closed panes again\n",
        "",
        (f"{LATE}::test_late_records_are_added_to_windows_that_are_open",),
    ),
    Bug(
        "equal keys of other types go to other workers",
        "1 == 1.0 == True, 0.0 == -0.0",
        "partitioners.py",
        "    if denominator == 1:\n        return _encode_integer(numerator)\n",
        "",
        ("tests/test_partitioners.py",),
    ),
]

_SESSIONS = [
    Bug(
        "records exactly the gap apart are in one session",
        "the gap is exclusive",
        "operators/windows/session.py",
        "if newest.last < timestamp < newest.until:",
        "if newest.last < timestamp <= newest.until:",
        (SESSIONS,),
    ),
    Bug(
        "a record between two sessions extends one of them",
        "sessions overlap",
        "operators/windows/session.py",
        "if after < len(sessions) and sessions[after] < until:",
        "if False:",
        (SESSIONS,),
    ),
    Bug(
        "a session's epochs are only those of the sessions before",
        "an epoch is passed over that closes a session of the same batch",
        "operators/windows/session.py",
        "return soonest if earliest is None else min(earliest, soonest)",
        "return soonest if earliest is None else earliest",
        (SESSIONS,),
    ),
    Bug(
        "epochs between two timestamps close sessions too late",
        "epochs that are floats, between integers",
        "operators/windows/session.py",
        "if type(epoch) is not type(self.reached.like):",
        "if False:",
        (f"{SESSIONS}::test_epochs_between_two_timestamps_close_sessions",),
    ),
    Bug(
        "restored sessions have no timers",
        "what follows from the state is not made again",
        "operators/windows/session.py",
        "            self._timers.set(key, instant_before(sessions[1] + self._gap))\n            if index >= kept",
        "            if index >= kept",
        (SESSIONS,),
    ),
    Bug(
        "sessions that join keep the end of the first",
        "a merged interval is cut",
        "operators/windows/session.py",
        "        sessions[at + 1] = sessions[after + 1]\n",
        "",
        (SESSIONS,),
    ),
]

_COUNTS = [
    Bug(
        "overlapping windows of records start at each full one",
        "count windows with a distance",
        "operators/windows/counting.py",
        "                windows[0] -= self._every\n",
        "                windows[0] = 0\n",
        (COUNTS,),
    ),
    Bug(
        "the rest at the end of the stream is behind the epoch",
        "results of the end are late",
        "operators/windows/counting.py",
        "timestamps.append(last if epoch is None or last > epoch else instant_after(epoch))",
        "timestamps.append(last)",
        (COUNTS,),
    ),
]

_AGGREGATORS = [
    Bug(
        "variances are merged without the distance of their means",
        "moments add up",
        "aggregators/sums.py",
        " + apart * apart * one[0] * other[0] / count]",
        "]",
        (AGGREGATOR_LAWS,),
    ),
    Bug(
        "the last value is the last one to arrive",
        "arrival instead of event time",
        "aggregators/extremes.py",
        'step = "if {t} >= {a}[0]: {to} = ({t}, {x})"',
        'step = "{to} = ({t}, {x})"',
        (KERNELS, f"{LAWS}::test_the_order_of_arrival_within_the_bound_does_not_matter"),
    ),
    Bug(
        "of equal extremes the last one counts",
        "ties depend on the order of arrival",
        "aggregators/extremes.py",
        "or ({{x}} == {{a}}[0] and {{t}} < {{a}}[1])",
        "or {{x}} == {{a}}[0]",
        (KERNELS,),
    ),
    Bug(
        "sums of integers overflow",
        "64 bits",
        "aggregators/sums.py",
        "s_ = {{a}} + {{x}};",
        "s_ = ({{a}} + {{x}} + 2**63) % 2**64 - 2**63 if type({{x}}) is int else {{a}} + {{x}};",
        (f"{LAWS}::test_sums_of_integers_have_no_greatest_one",),
    ),
    Bug(
        "sums of values that are known to be integers overflow",
        "64 bits",
        "aggregators/sums.py",
        'step = "{to} = {a} + {x}"',
        'step = "{to} = ({a} + {x} + 2**63) % 2**64 - 2**63"',
        (f"{LAWS}::test_sums_of_integers_have_no_greatest_one",),
    ),
    Bug(
        "a collected result is the accumulator",
        "an emitted list grows",
        "aggregators/collected.py",
        'outcome = "tuple({0})"',
        'outcome = "{0}"',
        (KERNELS,),
    ),
    Bug(
        "false and zero values are skipped like None",
        "they are false too",
        "aggregators/generated.py",
        'return [f"if {x} is not None:",',
        'return [f"if {x}:",',
        ("tests/aggregators/test_skip_none.py::test_the_result_is_that_of_the_other_records",),
    ),
    Bug(
        "a merged state is that of the part that has one",
        "the other part is empty",
        "aggregators/slots.py",
        "            if one is other or self.is_plain:\n",
        "            if True:\n",
        ("tests/aggregators/test_skip_none.py::test_a_merged_state_is_not_shared",),
    ),
    Bug(
        "the checks let NaN pass",
        "NaN sticks, silently",
        "aggregators/generated.py",
        "if self.refuses_nan and self._needs_value(column, equality=True):",
        "if False:",
        (CHECKS,),
    ),
    Bug(
        "the checks overlook a kept value that is mutated",
        "collect, first and max_by keep values",
        "aggregators/fuse.py",
        '        """Return the result of an accumulator; check that it is not mutated or returned."""\n'
        "        self._watch.verify(acc)\n",
        "",
        (CHECKS,),
    ),
    Bug(
        "a mean of means",
        "results are merged instead of accumulators",
        "aggregators/sums.py",
        "({1} / {0} if",
        "({1} / 2 if",
        (KERNELS,),
    ),
]

_JOINS = [
    Bug(
        "before and after are swapped on the right side",
        "asymmetric intervals",
        "operators/joins/interval_join.py",
        "_Side(RIGHT, -after, before,",
        "_Side(RIGHT, -before, after,",
        (INTERVAL,),
    ),
    Bug(
        "records are dropped by the newest record",
        "pairs are lost when records are out of order",
        "operators/joins/interval_join.py",
        "            self._pair(side, rows, results)\n",
        "            self._pair(side, rows, results)\n            self._drop(max(run.timestamps))\n",
        (INTERVAL,),
    ),
    Bug(
        "the other side's records stay without a partner",
        "an outer join emits a matched record alone",
        "operators/joins/interval_join.py",
        "                if side.others_keep:\n                    self._settle(other, key, index)\n",
        "",
        (INTERVAL,),
    ),
    Bug(
        "a snapshot forgets which records have a partner",
        "matched records come alone after a restart",
        "operators/joins/interval_join.py",
        "            settled[index] = True\n            self.state.touch(number, (key,))\n",
        "            settled[index] = True\n",
        (f"{INTERVAL}::test_a_snapshot_knows_which_records_have_a_partner",),
    ),
    Bug(
        "partners are looked for in one pane",
        "an interval reaches into the next pane",
        "operators/joins/interval_join.py",
        "range(at - self._slack, at + 2 + self._slack)",
        "range(at - self._slack, at + 1 + self._slack)",
        (INTERVAL,),
    ),
    Bug(
        "right records of the same time are too new",
        "equal counts",
        "operators/joins/asof_join.py",
        "at = bisect_right(times, timestamp) - 1\n            is_near",
        "at = bisect_right(times, timestamp - 1) - 1\n            is_near",
        (ASOF,),
    ),
    Bug(
        "the newest right record up to the epoch is dropped",
        "the version that counts is gone",
        "operators/joins/asof_join.py",
        "first = max(0, bisect_right(times, epoch) - 1)",
        "first = min(len(times) - 1, bisect_right(times, epoch))",
        (f"{ASOF}::test_the_version_of_an_epoch_outlives_it",),
    ),
    Bug(
        "old versions are kept",
        "state that grows",
        "operators/joins/asof_join.py",
        "        if right is not None and len(right[0]) > 1:\n            deadlines.append(right[0][1])\n",
        "",
        (f"{ASOF}::test_versions_of_a_key_that_falls_silent_are_dropped",),
    ),
    Bug(
        "groups have the records of all streams in the first list",
        "which stream a record came from",
        "operators/joins/cogroup.py",
        "stream = self._collect.stream = self._streams[edge]",
        "stream = self._streams[edge]",
        (COGROUP,),
    ),
    Bug(
        "results share the lists of their window",
        "an emitted list is the accumulator",
        "operators/joins/cogroup.py",
        "return tuple(map(list, acc))",
        "return tuple(acc)",
        (f"{COGROUP}::test_changed_results_change_no_other_result",),
    ),
]

_TIMERS = [
    Bug(
        "a dropped key keeps its timer",
        "a timer fires for a key without a state",
        "operators/keyed/timed_op.py",
        "            self.state.pop(key, None)\n            self.timers.cancel(key)\n",
        "            self.state.pop(key, None)\n",
        (TIMERS,),
    ),
    Bug(
        "periodic timers go on at the end of the stream",
        "the greatest epoch never comes to an end",
        "operators/keyed/timed_op.py",
        "        if epoch is not MAX:\n            while",
        "        if True:\n            while",
        (f"{TIMER_RULES}::test_a_periodic_timer_fires_once_at_the_end",),
        seconds=60,
    ),
    Bug(
        "timers of one time fire in another order after a restart",
        "the order of setting is state",
        "operators/keyed/timed_op.py",
        "            self._changed.pop(key, None)\n",
        "",
        (TIMERS, TIMER_RULES),
    ),
    Bug(
        "a timer that was moved fires at both times",
        "a superseded timer",
        "event_time/timers.py",
        "        self.cancel(key)\n        bucket = self._buckets.get(at)\n",
        "        bucket = self._buckets.get(at)\n",
        (TIMERS,),
    ),
    Bug(
        "timers behind an epoch wait for the next one",
        "off by one between equal and late",
        "operators/keyed/timed_op.py",
        "            while (at := timers.pending.earliest) is not None and at <= epoch:",
        "            while (at := timers.pending.earliest) is not None and at < epoch:",
        (TIMERS,),
    ),
    Bug(
        "the clock of a run goes back behind its snapshot",
        "the system's clock was set back",
        "engine/ticks.py",
        "            self.now = max(self.now, time)\n",
        "            pass\n",
        (CLOCK,),
    ),
    Bug(
        "a state that a timer changed is not written",
        "touch is forgotten",
        "operators/keyed/timed_op.py",
        "        output.key = NO_KEY\n        self.state.touch(keys)\n",
        "        output.key = NO_KEY\n",
        (TIMERS,),
    ),
]

_SELECTION = [
    Bug(
        "repetitions across the bound of two panes pass",
        "only one neighbour is looked at",
        "operators/keyed/distinct.py",
        "for near in (number - 1, number + 1))",
        "for near in (number - 1, number - 1))",
        (SELECTION,),
    ),
    Bug(
        "ids are forgotten a pane too soon",
        "a record is near one whose pane is gone",
        "operators/keyed/distinct.py",
        "panes.start(min(numbers) + 2) <= epoch:",
        "panes.start(min(numbers) + 1) <= epoch:",
        (SELECTION_RULES, SELECTION),
    ),
    Bug(
        "changes keep the value itself",
        "a value that is mutated further on",
        "operators/keyed/distinct.py",
        "states[key] = copied(fact)",
        "states[key] = fact",
        (SELECTION_RULES,),
    ),
    Bug(
        "tokens come back at the rate of one",
        "a token bucket of n",
        "operators/keyed/throttle.py",
        "max(nothing, debt - n * (timestamp - then))",
        "max(nothing, debt - (timestamp - then))",
        (f"{SELECTION}::test_throttled_keys_spend_tokens",),
    ),
    Bug(
        "a limit looks at the records before one that is out of order only",
        "a sliding limit",
        "operators/keyed/throttle.py",
        "range(max(0, place - n), min(place, len(row) - 1 - n) + 1)",
        "range(max(0, place - n), place - n + 1)",
        (f"{SELECTION}::test_no_span_has_more_than_its_limit",),
    ),
    Bug(
        "a record at the end of a list's time joins it",
        "lists depend on epochs",
        "operators/keyed/collecting.py",
        "if held is not None and timestamp >= held[0]:",
        "if held is not None and timestamp > held[0]:",
        (SELECTION,),
    ),
    Bug(
        "sorted records lose their order of arrival in a snapshot",
        "ties after a restart",
        "operators/keyed/collecting.py",
        "        number = next(reversed(numbers)) + 1 if numbers else 0\n",
        "        number = -next(reversed(numbers)) - 1 if numbers else 0\n",
        (SELECTION,),
    ),
    Bug(
        "an instant is emitted again after a restart",
        "the position of a trigger",
        "sources/instants.py",
        "            self._last = found[-1]\n",
        "            self._last = found[-1] - _TICK\n",
        (f"{INSTANTS}::test_instants_come_when_the_clock_reaches_them",),
    ),
    Bug(
        "the last instant that was missed is left out",
        "a trigger that was down",
        "sources/instants.py",
        "max(last, latest - _TICK)",
        "max(last, latest)",
        (f"{INSTANTS}::test_instants_missed_while_the_job_was_down",),
    ),
]

_EPOCHS = [
    Bug(
        "a record at the epoch is on time",
        "equal is late",
        "operators/epochs/generator.py",
        "            if previous is not None and not timestamp > previous:\n",
        "            if previous is not None and timestamp < previous:\n",
        (EPOCHS,),
    ),
    Bug(
        "times in a zone are compared by the clock on the wall",
        "an hour that comes twice",
        "operators/epochs/timestamps.py",
        "    moving = {key for key, zone in zones.items() if zone is not None and not is_fixed(zone)}\n",
        "    moving: set[int] = set()\n",
        (EPOCHS,),
    ),
    Bug(
        "a new worker begins at the greatest epoch",
        "records are late after a rescale",
        "engine/states/epochs.py",
        "    return None if None in epochs else min(epochs)",
        "    return None if None in epochs else max(epochs)",
        ("tests/engine/test_placement.py",),
    ),
    Bug(
        "a late record is on time on its new worker",
        "a window comes twice after a rescale",
        "engine/states/rescale.py",
        "        past = None if placement is None else past_epochs(old, dealt, earlier, is_known=known)\n",
        "        past = None\n",
        (f"{MOVED}::test_epochs_of_each_worker",),
    ),
    Bug(
        "parts share the epoch of the newest",
        "the slower file is all late",
        "operators/epochs/part_epochs.py",
        "            least = self._least()\n",
        "            least = max(self._by_part.values())\n",
        (EPOCHS,),
    ),
    Bug(
        "a finished worker is lifted to the newest of the others",
        "records of busy workers are late",
        "engine/idle_epochs.py",
        "        least = min(epochs) if epochs",
        "        least = max(epochs) if epochs",
        ("tests/windows/test_finished_parts.py",),
    ),
    Bug(
        "an epoch is rounded to the multiple before",
        "a cached multiple",
        "operators/epochs/rounding.py",
        "            and self._multiple <= epoch <= self._until\n",
        "            and self._multiple <= epoch\n",
        ("tests/properties/test_every.py", "tests/properties/test_epochs_by_column.py"),
    ),
    Bug(
        "the merged epoch is that of the newest edge",
        "records are behind a join's epoch",
        "operators/epochs/frontiers.py",
        "        lowest = min((self._epochs[edge] for edge in self._busy), default=MIN)\n",
        "        lowest = max((self._epochs[edge] for edge in self._busy), default=MIN)\n",
        ("tests/operators/test_merge.py",),
    ),
]

BUGS: list[Bug] = [
    *_WINDOWS,
    *_SESSIONS,
    *_COUNTS,
    *_AGGREGATORS,
    *_JOINS,
    *_TIMERS,
    *_SELECTION,
    *_EPOCHS,
    *PATTERN_BUGS,
    *PROCESS_BUGS,
    *PROJECT_BUGS,
    *DRAWING_BUGS,
    *BAD_RECORD_BUGS,
    *CALLING_BUGS,
    *DEAL_BUGS,
    *EXCHANGE_BUGS,
    *FRAME_BUGS,
    *BATCH_BUGS,
    *PARTIAL_BUGS,
    *QUERY_BUGS,
    *READING_BUGS,
    *KERNEL_BUGS,
    *LOOKUP_BUGS,
    *MONITOR_BUGS,
    *PAGE_BUGS,
    *TABLE_BUGS,
    *WHY_BUGS,
    *COMMAND_BUGS,
    *PLAN_BUGS,
    *SERVE_BUGS,
    *SINK_BUGS,
    *SINK_COLUMN_BUGS,
    *SIZE_BUGS,
    *SPARK_BUGS,
    *CONFIG_BUGS,
    *SQL_BUGS,
    *STATE_BUGS,
    *STEERING_BUGS,
    *TERMINAL_BUGS,
]

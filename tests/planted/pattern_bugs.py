"""The planted bugs of patterns: each breaks a rule of what a pattern means, or falls into a trap of other engines."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["PATTERN_BUGS"]

_MEANING = "tests/patterns/test_meaning.py"
_DATAFLOWS = "tests/patterns/test_dataflows.py"
EXAMPLES = f"{_MEANING}::test_examples_give_their_matches"
MATCHES = f"{_MEANING}::test_matches_are_those_of_the_reference"
TIMEOUTS = f"{_MEANING}::test_timeouts_are_those_of_the_reference"
RESULTS = f"{_DATAFLOWS}::test_results_are_those_of_the_reference"
RESTARTED = f"{_DATAFLOWS}::test_examples_survive_a_restart_after_each_record"
RESTARTS = f"{_DATAFLOWS}::test_restarts_and_rescales_change_nothing"
HOSTILE = "tests/patterns/test_hostile.py"
FINDING = "tests/patterns/test_finding.py"
OPERATOR = "tests/patterns/test_operator.py"
BUILDING = "tests/patterns/test_building.py"
CHANGED = "tests/patterns/test_changed_patterns.py"

_CONNECTORS = [
    Bug(
        "an event that a step waits for is passed over",
        "every prefix of a loop is a match",
        "patterns/automaton.py",
        'is_compelled = is_compelled or option.by != "then_any"',
        "is_compelled = False",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "an event lies between two that are next to each other",
        "strict contiguity is relaxed",
        "patterns/automaton.py",
        'if not ended >> number & 1 and option.by != "next":',
        "if not ended >> number & 1:",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "a step that is compelled closes those that are not",
        "then_any tries every way, beside a loop too",
        "patterns/automaton.py",
        'kept = [option for option in kept if option.by == "then_any"]',
        "kept = []",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "branches that begin alike lose one another",
        "one choice of events, two places in the pattern",
        "patterns/automaton.py",
        "targets[option.step] = targets.get(option.step, frozenset()) | option.targets",
        "targets[option.step] = option.targets",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "a step that must not come breaks the match that it completes",
        "absence and end in one event",
        "patterns/automaton.py",
        "            if able >> number & 1:\n",
        "            if able >> number & 1 and not ended >> number & 1:\n",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "an optional beginning is obligatory",
        "an optional first step",
        "patterns/positions.py",
        "left.first + right.first if left.can_be_empty else left.first",
        "left.first",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "an optional end is obligatory",
        "an optional last step",
        "patterns/positions.py",
        "right.last + left.last if right.can_be_empty else right.last",
        "right.last",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "a loop without limit ends at its least number",
        "at_least(2) is times(2)",
        "patterns/positions.py",
        "            self._link(rounds[-1], gap, rounds[-1])\n",
        "            pass\n",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "a loop over what may be empty needs all its rounds",
        "an empty round is no event",
        "patterns/positions.py",
        "least = 1 if item_can_be_empty else max(tree.low, 1)",
        "least = max(tree.low, 1)",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "steps in any order come in one order",
        "`and` is `then`",
        "patterns/tree.py",
        "for steps in permutations(tree.steps))",
        "for steps in [tree.steps])",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
]

_ABSENCE = [
    Bug(
        "a longer way through a loop does not end the wait for silence",
        "three failures are told although the fourth has come",
        "patterns/automaton.py",
        "        else:\n            live = enumerate(state.waits, len(state.options))\n",
        "        if True:\n            live = enumerate(state.waits, len(state.options))\n",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "an event at the very end of an absence in the middle does not break it",
        "exclusive bounds",
        "patterns/machine.py",
        "                    if time <= last[TIME] + during:\n",
        "                    if time < last[TIME] + during:\n",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "an event is taken at the very end of the absence before it",
        "exclusive bounds",
        "patterns/machine.py",
        "(after is None or time > last[TIME] + after)",
        "(after is None or time >= last[TIME] + after)",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "an absence in front ends an instant early",
        "exclusive bounds",
        "patterns/machine.py",
        "or time > self.silent_since[key] + self._lead_for",
        "or time >= self.silent_since[key] + self._lead_for",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "silence in front begins with the first event that broke it",
        "the newest one counts",
        "patterns/machine.py",
        "        self.silent_since[key] = time\n",
        "        self.silent_since.setdefault(key, time)\n",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "the longest of several absences counts",
        "earliest end",
        "patterns/automaton.py",
        "self.patience = min((wait.during",
        "self.patience = max((wait.during",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "nothing follows a match of absence",
        "a match that uses nothing up goes on",
        "patterns/machine.py",
        'told = run[STATE].after_wait() if self._after == "all" else None',
        "told = None",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
]

_TIME = [
    Bug(
        "an event exactly as late as a connector allows is too late",
        "exclusive bounds",
        "patterns/machine.py",
        "(within is None or time <= last[TIME] + within)",
        "(within is None or time < last[TIME] + within)",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "a deadline comes before an event of its time",
        "exclusive bounds",
        "patterns/machine.py",
        "                if due is not None and due < time:\n"
        "                    runs = self._expire(key, runs, time, inclusive=False)\n",
        "                if due is not None and due <= time:\n"
        "                    runs = self._expire(key, runs, time, inclusive=True)\n",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "a start expires with the first of its ways on",
        "every open connector's bound",
        "patterns/automaton.py",
        "self.reach = max(bounded)",
        "self.reach = min(bounded)",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "a way on without a bound expires",
        "every open connector's bound",
        "patterns/automaton.py",
        "if options and len(bounded) == len(options) else None",
        "if bounded else None",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "a wait for absence times out",
        "a wait that is not over is no timeout",
        "patterns/machine.py",
        "        if not state.waits:\n            if self._span is not None:\n",
        "        if True:\n            if self._span is not None:\n",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "what an event breaks after its time is told as a timeout of the past",
        "a result behind the epoch",
        "patterns/machine.py",
        "is_over = self._is_timed and self._is_over(run, time)",
        "is_over = False",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "a start that has a match times out",
        "a timeout for each partial match that is left",
        "patterns/machine.py",
        "over.union(starts_of(kept), self.finished.get(key, ()))",
        "over.union(starts_of(kept))",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "a start times out while another way on is open",
        "a timeout for each partial match",
        "patterns/machine.py",
        "over.union(starts_of(kept), self.finished.get(key, ()))",
        "over.union(self.finished.get(key, ()))",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "a start times out once for each of its ways",
        "a timeout for each partial match",
        "patterns/machine.py",
        "                over.add(run[FIRST][ORDINAL])\n                self._add(self.timeouts",
        "                self._add(self.timeouts",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "a start whose span is over times out once for each of its ways",
        "a timeout for each partial match",
        "patterns/machine.py",
        "if start != last and start not in finished:",
        "if start not in finished:",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "a start with a match times out when its span is over",
        "a timeout for each partial match that is left",
        "patterns/machine.py",
        "if start != last and start not in finished:",
        "if start != last:",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "the spans of starts by arrival are over in the order of arrival",
        "a match longer than the bound, after the order of a program has changed",
        "patterns/machine.py",
        "if self._only_span and any(map(gt, starts, starts[1:])):",
        "if False:",
        (CHANGED,),
    ),
]

_SELECTION = [
    Bug(
        "a match of absence uses up what began during its wait",
        "its last event counts, not its deadline",
        "patterns/machine.py",
        "                    last_used = run[LAST][ORDINAL]\n",
        "                    last_used = self.ordinal\n",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "a first event has all its matches",
        "one match for each first event",
        "patterns/machine.py",
        'if self._after == "end" else start not in told',
        'if self._after == "end" else True',
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "what a match has used up goes on",
        "matches that overlap",
        "patterns/machine.py",
        "                after = [run for run in after if run[FIRST][ORDINAL] not in over]\n",
        "                pass\n",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "one partial match of a state stands for those with other deadlines",
        "a start that is too old hides a younger one",
        "patterns/machine.py",
        "span is None and not automaton.has_bounds and not automaton.has_given",
        "not automaton.has_given",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "one partial match of a state stands for those with other values",
        "conditions on the match so far",
        "patterns/machine.py",
        "span is None and not automaton.has_bounds and not automaton.has_given",
        "span is None and not automaton.has_bounds",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "the younger of two starts with one future is kept",
        "the match that began first is preferred",
        "patterns/runs.py",
        "    for run in runs:\n        state = run[STATE]\n        future =",
        "    for run in reversed(runs):\n        state = run[STATE]\n        future =",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "a match passes its event over rather than take it",
        "the order of preference",
        "patterns/machine.py",
        "        for run in done:\n            start = run[FIRST][ORDINAL]\n",
        "        for run in reversed(done):\n            start = run[FIRST][ORDINAL]\n",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
]

_CONDITIONS = [
    Bug(
        "the condition on the match so far is not asked for the first event",
        "the match is empty, not missing",
        "patterns/machine.py",
        "                    if not given(value, self._so_far):\n                        continue\n",
        "                    pass\n",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "the bits of an event decide where a condition on the match so far does",
        "a cache by the event alone",
        "patterns/automaton.py",
        "all(it.within is None and it.after is None and it.given is None for it in self.questions)",
        "all(it.within is None and it.after is None for it in self.questions)",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "the bits of an event decide where a condition on the match so far ends it",
        "a cache by the event alone",
        "patterns/automaton.py",
        "and all(it.given is None and not it.timed for it in self.killers)",
        "and all(not it.timed for it in self.killers)",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "the last value of a step is its first",
        "a list that is walked backwards",
        "patterns/match.py",
        "                value: V_co = node[VALUE]\n                return value\n",
        "                return self[step][0]\n",
        (EXAMPLES, MATCHES, TIMEOUTS),
    ),
    Bug(
        "instances of derived classes are not of the class",
        "the type instead of isinstance",
        "patterns/positions.py",
        "if issubclass(kind, base))",
        "if kind is base)",
        (FINDING,),
    ),
    Bug(
        "moves are remembered for ever",
        "memory that grows with the data",
        "patterns/automaton.py",
        "        if self._moves > _MOST_MOVES:\n",
        "        if False:\n",
        (f"{HOSTILE}::test_branches_that_end_one_by_one_do_not_fill_the_memory",),
    ),
    Bug(
        "partial matches are not counted",
        "a pattern without a bound fills the memory",
        "patterns/machine.py",
        "        if len(kept) > self._limit:\n",
        "        if False:\n",
        (f"{HOSTILE}::test_equal_timestamps_that_all_start_reach_the_limit",),
    ),
]

_OPERATOR = [
    Bug(
        "records that wait are not in snapshots",
        "a restart between a record and its epoch",
        "operators/pattern_matching.py",
        "flat = flatten(machine, key, waiting.get(key, ()))",
        "flat = flatten(machine, key, ())",
        (RESTARTED, RESULTS, RESTARTS),
    ),
    Bug(
        "a key that only time has changed is not written",
        "a timeout comes again after a restart",
        "operators/pattern_matching.py",
        "            if tracked:\n                self._dirty[key] = None\n",
        "",
        (RESTARTED, RESULTS, RESTARTS),
    ),
    Bug(
        "the starts with a match are not in snapshots",
        "a start that has matched times out after a restart",
        "patterns/flat.py",
        "sorted(index[ordinal] for ordinal in machine.finished.get(key, ()))",
        "[]",
        (RESTARTED, RESULTS, RESTARTS),
    ),
    Bug(
        "silence in front is not in snapshots",
        "the first login after a restart",
        "patterns/flat.py",
        "machine.load(key, runs, {first + event for event in finished}, since)",
        "machine.load(key, runs, {first + event for event in finished}, None)",
        (RESTARTED, RESULTS, RESTARTS),
    ),
    Bug(
        "events that arrive late within the bound are matched last",
        "order of arrival instead of order of time",
        "operators/pattern_matching.py",
        "                self._sorted.sort(key=order)\n",
        "                pass\n",
        (RESTARTED, RESULTS, RESTARTS),
    ),
    Bug(
        "a record at the epoch is in time",
        "off by one at the epoch",
        "operators/pattern_matching.py",
        "late += [index for index, it in enumerate(timestamps, done) if it <= epoch]",
        "late += [index for index, it in enumerate(timestamps, done) if it < epoch]",
        (OPERATOR,),
    ),
    Bug(
        "a record at the epoch waits for the next one",
        "off by one at the epoch",
        "operators/pattern_matching.py",
        "not rows or rows[-1][0] <= epoch else bisect_right(rows, epoch, key=_TIME)",
        "not rows or rows[-1][0] < epoch else sum(row[0] < epoch for row in rows)",
        (RESULTS, OPERATOR),
    ),
    Bug(
        "records that fulfil no step do not break what is next",
        "irrelevant records are dropped too early",
        "operators/pattern_matching.py",
        "        if self.machine.automaton.is_strict:\n            rows =",
        "        if False:\n            rows =",
        (RESTARTED, RESULTS, RESTARTS),
    ),
    Bug(
        "a duration is part of the shape",
        "a longer bound refuses the state",
        "patterns/printed.py",
        "    text = _Text(durations=False).tree(tree)\n    return front + (",
        "    text = _Text(durations=True).tree(tree)\n    return front + (",
        (BUILDING,),
    ),
]

PATTERN_BUGS: list[Bug] = [*_CONNECTORS, *_ABSENCE, *_TIME, *_SELECTION, *_CONDITIONS, *_OPERATOR]

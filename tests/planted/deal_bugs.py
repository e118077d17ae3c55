"""The planted bugs of parts: how they are dealt to workers, and what follows them."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["DEAL_BUGS"]

_DEAL = "tests/engine/test_deal.py"
_PARTS = "tests/conformance/test_parts.py"
_POOL = "tests/engine/test_pool.py"
_ON_DEMAND = "tests/conformance/test_on_demand.py"
_HANDED_OUT = "tests/spark/test_handed_out_parts.py"
_MOVES = "tests/conformance/test_part_moves.py"
_BALANCE = "tests/engine/test_balance.py"
_DATAFLOWS = "tests/properties/test_dataflows.py"
_GOLDEN = "tests/golden/test_golden.py::test_states_of_parts_are_found_where_the_parts_are_dealt"

DEAL_BUGS = [
    Bug(
        "a part is on two workers",
        "the new worker of a part is added to the old one",
        "engine/parts/dealing.py",
        "            dealt[name][places[unit]].append(part)\n",
        "            dealt[name][places[unit]].append(part)\n"
        "            if held.get(name, {}).get(part, places[unit]) != places[unit] < workers - 1:\n"
        "                dealt[name][-1].append(part)\n",
        (f"{_DEAL}::test_a_history_of_changes_leaves_each_part_on_one_worker",),
    ),
    Bug(
        "the last new part of a source is on no worker",
        "one too few",
        "engine/parts/dealing.py",
        "    return {name: [*parts, *new.get(name, ())] for name, parts in listed.items()}\n",
        "    return {name: [*parts, *new.get(name, ())[: len(parts)]] for name, parts in listed.items()}\n",
        (f"{_DEAL}::test_new_parts_go_where_the_fewest_are_left_to_read",),
    ),
    Bug(
        "parts that have ended count",
        "a part is a part",
        "engine/parts/dealing.py",
        "if part not in ended.get(name, ())]",
        "if part not in ()]",
        (f"{_DEAL}::test_new_parts_go_where_the_fewest_are_left_to_read",),
    ),
    Bug(
        "more parts move than balance needs",
        "each worker gets the level, and no more",
        "engine/parts/dealing.py",
        "            share, above = level + 1, above - 1\n",
        "            share, above = level, above - 1\n",
        (f"{_DEAL}::test_as_few_parts_move_as_balance_needs",),
    ),
    Bug(
        "equal parts are dealt apart",
        "a part belongs to its source",
        "engine/parts/dealing.py",
        "(groups.get(name, name), part)",
        "(name, part)",
        (f"{_DEAL}::test_equal_parts_of_streams_that_meet_stay_together", _PARTS),
    ),
    Bug(
        "parts are dealt where their stream meets hashed keys",
        "all parts are alike",
        "engine/plan.py",
        "        return frozenset(found)\n\n    @property\n    def lifts_silent",
        "        return frozenset()\n\n    @property\n    def lifts_silent",
        (f"{_DEAL}::test_parts_of_streams_that_meet_hashed_keys_are_hashed",),
    ),
    Bug(
        "hashed parts stay where they were",
        "few parts move",
        "engine/parts/dealing.py",
        "    } | fixed\n",
        "    }\n    places = fixed | places\n",
        (f"{_PARTS}::test_parts_meet_keys_that_are_hashed",),
    ),
    Bug(
        "states of parts stay behind at a start",
        "the number of workers is the same",
        "engine/states/rescale.py",
        "    if placement is part_select and redeal is not None:\n        return False",
        "    if placement is part_select and before == after:\n        return True",
        (_GOLDEN,),
    ),
    Bug(
        "the epoch of a part stays where its hash is",
        "epochs are placed as keys are",
        "engine/states/rescale.py",
        "    return part_select if redeal is None or name is None else redeal.after.of(name)\n",
        "    return part_select\n",
        (f"{_PARTS}::test_states_follow_their_parts_to_any_number_of_workers",),
    ),
    Bug(
        "parts that were hashed stay uneven for ever",
        "a restart moves nothing",
        "engine/states/loading.py",
        "held, states=states_at)",
        "held, levels=before != after, states=states_at)",
        (f"{_DEAL}::test_parts_that_were_hashed_are_dealt_at_the_next_start",),
    ),
    Bug(
        "a restart deals the parts anew",
        "the number of workers does not matter",
        "engine/states/loading.py",
        "redeal(program, listed, after, held, levels=before != after)",
        "redeal(program, listed, after, {}, levels=before != after, states=held)",
        (f"{_DEAL}::test_parts_that_were_hashed_are_dealt_at_the_next_start",),
    ),
    Bug(
        "a part is handed out twice after a crash",
        "a new run begins with all parts",
        "engine/parts/dealing.py",
        "        dealt = {of[part] for name, of in units.items() for part in held.get(name, ()) if part in of}\n",
        "        dealt = set[_Unit]()\n",
        (f"{_POOL}::test_a_part_that_was_being_read_stays_with_its_worker",),
    ),
    Bug(
        "unread parts do not hold the time back",
        "a part counts once it is read",
        "operators/epochs/part_epochs.py",
        "            return (*live, UNREAD)\n",
        "            return live\n",
        (f"{_POOL}::test_unread_parts_hold_the_time_back_on_every_worker", _ON_DEMAND),
    ),
    Bug(
        "a rescale forgets the parts that wait",
        "all parts are held",
        "runtime/coordination/coordinator.py",
        "        self.ticks.place(self._host.parts, self._host.listed)\n",
        "        self.ticks.place(self._host.parts)\n",
        (f"{_ON_DEMAND}::test_a_rescale_in_the_middle_reads_each_part_once",),
    ),
    Bug(
        "a source ends while parts wait",
        "a source has ended if no worker reads it",
        "engine/ticks.py",
        "        live = self._live | self._pool.places\n",
        "        live = self._live\n",
        (f"{_POOL}::test_each_part_is_read_once_whatever_happens",),
    ),
    Bug(
        "a part that waits for the one before is silent",
        "each part is polled in each tick",
        "operators/epochs/part_epochs.py",
        "        for part in self.source.asked_parts:\n",
        "        for part in self.source.polled_parts:\n",
        (f"{_POOL}::test_a_part_that_waits_for_the_one_before_is_not_silent",),
    ),
    Bug(
        "a lost worker forgets the parts that it got",
        "the parts of a worker are those that it began with",
        "operators/hosting/source.py",
        "        if self._waiting:\n            held",
        "        if False:\n            held",
        (f"{_HANDED_OUT}::test_each_part_is_read_once",),
    ),
    Bug(
        "a query asks the worker of a part's hash",
        "keys are hashed",
        "engine/state_queries.py",
        "if placement in (None, part_select) or",
        "if placement is None or",
        (f"{_PARTS}::test_a_query_finds_the_state_of_a_part",),
    ),
    Bug(
        "rows go where a part is, until there is one",
        "tables stay with their stream",
        "streams/operators/table.py",
        "return rendezvous_select if place is part_select else place",
        "return place",
        (f"{_PARTS}::test_tables_of_parts_are_joined_by_other_keys",),
    ),
    Bug(
        "the state of a part that moves stays",
        "what the position says is enough",
        "engine/part_moves.py",
        "        case Movement.BY_KEY | Movement.BY_SLOT | Movement.BY_ENTRY if placement_of(node) is part_select:\n",
        "        case Movement.BY_SLOT | Movement.BY_ENTRY if placement_of(node) is part_select:\n",
        (f"{_MOVES}::test_results_and_snapshots_with_moves",),
    ),
    Bug(
        "windows of a part that moves stay",
        "a slot is no key",
        "engine/part_moves.py",
        "            return keys.__contains__ if key_of is None else lambda name: key_of(name) in keys\n",
        "            return keys.__contains__\n",
        (f"{_MOVES}::test_results_and_snapshots_with_moves",),
    ),
    Bug(
        "the old worker keeps the state of a part that has moved",
        "it is overwritten when the part returns",
        "engine/part_moves.py",
        "if not belongs(key)}",
        "if key not in ()}",
        (f"{_MOVES}::test_states_after_failures_in_the_middle",),
    ),
    Bug(
        "letters of a part are lost where there were none",
        "a worker has all states",
        "engine/part_moves.py",
        "for name, entries in given.states.items()}\n",
        "for name, entries in given.states.items() if name in live}\n",
        (f"{_MOVES}::test_results_and_snapshots_with_moves",),
    ),
    Bug(
        "the epoch of a moved part goes back",
        "the new worker has an epoch of its own",
        "engine/part_moves.py",
        "            found[spec.name] = routed[spec.name][move.after]\n",
        "            found[spec.name] = {\n"
        "                key: it for key, it in routed[spec.name][move.after].items() if not isinstance(key, tuple)\n"
        "            }\n",
        (f"{_MOVES}::test_results_and_snapshots_with_moves",),
    ),
    Bug(
        "a part that moves is late on a worker that is ahead",
        "epochs never go back",
        "engine/part_moves.py",
        "    return {**got, **times}  # of other stages too, whose states are not here\n",
        "    known = {name: state for name, state in times.items() if name in live}\n"
        '    return {**got, **{name: {**it, "epoch": live[name].get("epoch")} for name, it in known.items()}}\n',
        (f"{_MOVES}::test_results_and_snapshots_with_moves",),
    ),
    Bug(
        "exchanges remember how far the new worker of a part was ahead",
        "what has been issued is issued",
        "engine/part_moves.py",
        "        if ahead in edges:\n",
        "        if ahead in edges and not edges:\n",
        (f"{_MOVES}::test_results_and_snapshots_with_moves",),
    ),
    Bug(
        "a move in the tick of a snapshot",
        "after a change of parts, everything is decided anew",
        "runtime/coordination/coordinator.py",
        "            return self._next(polls=not self.snapshots.is_blocked)  # no snapshot before the next tick\n",
        "            return self._decide()\n",
        (f"{_MOVES}::test_results_and_snapshots_with_moves",),
    ),
    Bug(
        "parts move back and forth",
        "the idlest worker is the best one",
        "engine/parts/balance.py",
        " or after in self._left[key]",
        "",
        (f"{_BALANCE}::test_a_history_of_rates",),
    ),
    Bug(
        "parts move at every look",
        "the pause is that between two looks",
        "engine/parts/balance.py",
        "        return has_lasted and (self._moved is None or now - self._moved >= _PAUSE)\n",
        "        return has_lasted\n",
        (f"{_BALANCE}::test_a_history_of_rates",),
    ),
    Bug(
        "a part moves that makes the idle worker the busy one",
        "the fastest part helps most",
        "engine/parts/balance.py",
        "            then = max(by_lane[top] - load, by_lane[bottom] + load)\n",
        "            then = by_lane[top] - load\n",
        (f"{_BALANCE}::test_a_choice_is_the_best_of_all", f"{_BALANCE}::test_a_history_of_rates"),
    ),
    Bug(
        "parts with much state move",
        "the limit is for others",
        "runtime/processes/worker_process.py",
        "            if size > command.limit:\n",
        "            if size > 1000 * command.limit:\n",
        (f"{_MOVES}::test_a_part_with_too_much_state_stays",),
    ),
    Bug(
        "the rate of a part is that of its worker",
        "a worker has one part",
        "engine/parts/reads.py",
        "                it.rate = kept * it.rate + (1 - kept) * (it.records - it.before) / passed\n",
        "                it.rate = kept * it.rate + (1 - kept) * it.records / passed\n",
        ("tests/engine/test_part_reads.py",),
    ),
    Bug(
        "the letters and counts of a part that moves start over",
        "only the position is its own",
        "engine/part_moves.py",
        "    return Given(states, ended, heard)\n",
        "    return Given({name: it for name, it in states.items() if name in move.parts}, ended, heard)\n",
        ("tests/recovery/test_machine.py", f"{_DATAFLOWS}::test_moves_of_parts_do_not_show"),
    ),
    Bug(
        "the last parts of a pool are handed out twice",
        "two workers may be idle at the end",
        "engine/parts/pool.py",
        "                    insort(self._hands[other, worker], self._remove(other, part))\n",
        "                    insort(self._hands[other, worker], self._remove(other, part))\n"
        "                    if len(self._waiting[other]) < 2:\n"
        "                        given[other][(worker + 1) % self._workers].append(part)\n",
        ("tests/recovery/test_machine.py", f"{_DATAFLOWS}::test_moves_of_parts_do_not_show"),
    ),
    Bug(
        "equal parts of streams that meet are apart",
        "each source has its own parts",
        "engine/plan.py",
        "                groups.update(dict.fromkeys(together, together))\n            if found:\n",
        "                groups.update({name: {name} for name in together})\n            if found:\n",
        (f"{_DEAL}::test_equal_parts_of_streams_that_meet_stay_together",),
    ),
    Bug(
        "equal parts that were apart have the epoch of one of their workers",
        "the last source decides",
        "engine/parts/places.py",
        "                if found.setdefault(part, worker) != worker:\n",
        "                if found.setdefault(part, worker) is None:\n",
        (f"{_DEAL}::test_parts_of_streams_that_begin_to_meet_come_together",),
    ),
    Bug(
        "a busy part beside quiet ones has its share of a tick only",
        "shares are fair",
        "operators/hosting/source.py",
        "        if rest < _SMALLEST_POLL:\n",
        "        if rest < BATCH_SIZE:\n",
        ("tests/operators/hosting/test_shares_of_ticks.py",),
    ),
    Bug(
        "a part is polled again after its end",
        "a reader knows when it has ended",
        "operators/hosting/source.py",
        "                if self._call(part, self._readers[part].is_finished):\n                    continue\n"
        "                more = ",
        "                more = ",
        ("tests/operators/hosting/test_shares_of_ticks.py",),
    ),
]

"""The planted bugs of the monitor: whose files are believed, who may ask, and what clients can do to a run."""

from __future__ import annotations

from tests.planted.hunt import Bug

__all__ = ["MONITOR_BUGS"]

_FILES = "monitor/run_files.py"
_SOCKET = "monitor/control_socket.py"
_DOCUMENTS = "monitor/documents.py"
_OF_FILES = "tests/monitor/test_run_files.py"
_OF_SOCKET = "tests/monitor/test_control_socket.py"
_OF_DOCUMENTS = "tests/monitor/test_documents.py"
_OF_RUNS = "tests/monitor/test_runs.py"
_OF_TICKS = "tests/spark/test_ticks.py"
_NO_PLACE = f"{_OF_FILES}::test_a_run_continues_without_a_place_for_its_files"

MONITOR_BUGS = [
    Bug(
        "a killed run is listed forever",
        "a run removes its own file",
        _FILES,
        "content.ended is None and content.process is not None and content.process.is_dead",
        "False",
        (f"{_OF_FILES}::test_runs_of_dead_processes_are_noted_as_killed_and_others_stay",),
    ),
    Bug(
        "files of another container are removed",
        "a process that is not here has ended",
        _FILES,
        "content.process is not None and content.process.is_dead",
        "(content.process is None or content.process.is_dead or not content.process.is_here)",
        (f"{_OF_FILES}::test_runs_of_dead_processes_are_noted_as_killed_and_others_stay",),
    ),
    Bug(
        "a folder that a link leads to is ours",
        "stat follows links",
        _FILES,
        "found = folder.lstat()",
        "found = folder.stat()",
        (_NO_PLACE,),
    ),
    Bug(
        "a folder that others can open will do",
        "the files in it are private",
        _FILES,
        "if found.st_mode & 0o077 else None",
        "if False else None",
        (_NO_PLACE,),
    ),
    Bug(
        "a pipe in the folder stops those who look",
        "opening a file takes no time",
        _FILES,
        "os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK",
        "os.O_RDONLY",
        (f"{_OF_FILES}::test_other_files_are_skipped_with_a_warning",),
        60,
    ),
    Bug(
        "a half-written file stays on a full disk",
        "only the last name counts",
        _FILES,
        "        with suppress(OSError):\n            new.unlink()\n",
        "",
        (f"{_OF_FILES}::test_a_file_that_can_not_be_written_as_a_whole",),
    ),
    Bug(
        "a socket that somebody listens on is cleared away",
        "old files are leftovers",
        _FILES,
        " > _YOUNG and not _answers(path)",
        " > _YOUNG",
        (f"{_OF_FILES}::test_leftovers_of_killed_processes_are_cleared_away",),
    ),
    Bug(
        "a forked child ends the run for others",
        "who leaves a run cleans up",
        "monitor/watch.py",
        "        if os.getpid() != self._pid:\n            return\n        with self._closing:",
        "        with self._closing:",
        (f"{_OF_RUNS}::test_a_forked_child_removes_nothing",),
    ),
    Bug(
        "half requests keep everybody out",
        "who came first stays",
        _SOCKET,
        "            self._drop(moving[0])\n",
        "            end.close()\n            return\n",
        (f"{_OF_SOCKET}::test_a_hundred_half_requests_keep_nobody_else_out",),
    ),
    Bug(
        "silent clients stay",
        "a client sends what it came for",
        _SOCKET,
        "if not it.waits and it.deadline <= now",
        "if False",
        (f"{_OF_SOCKET}::test_slow_clients_are_closed",),
    ),
    Bug(
        "a socket without files tries again at once",
        "the next one will be accepted",
        _SOCKET,
        "            self._stop_listening()\n            self._accepts_at = time.monotonic() + _PAUSE\n",
        "            pass\n",
        (f"{_OF_SOCKET}::test_too_many_open_files",),
    ),
    Bug(
        "an answer goes to all who send a line without end",
        "a line ends",
        _SOCKET,
        "        elif len(connection.received) > _LONGEST_REQUEST:\n",
        "        elif len(connection.received) > 1 << 30:\n",
        (f"{_OF_SOCKET}::test_half_a_line_and_a_line_without_end",),
    ),
    Bug(
        "a refused wait is an error of the run",
        "who waits too long has failed",
        "monitor/answers.py",
        "            if not answer.done():\n",
        "            if False:\n",
        (f"{_OF_RUNS}::test_progress_and_requests_during_a_long_tick",),
    ),
    Bug(
        "an argument that nobody knows is left out",
        "be liberal in what you accept",
        "monitor/asks.py",
        "    if name not in known:\n        raise",
        '    if name not in known:\n        return _Form(lambda _: True, "")\n        raise',
        (f"{_OF_SOCKET}::test_a_line_that_is_no_request",),
    ),
    Bug(
        "values of users are values of JSON",
        "numbers are numbers",
        _DOCUMENTS,
        "    if of_user:\n",
        "    if False:\n",
        (f"{_OF_DOCUMENTS}::test_keys_of_events_and_errors",),
    ),
    Bug(
        "errors show secrets",
        "anybody who asks is the user",
        _DOCUMENTS,
        '"message": safe_line(reason_of(error)),',
        '"message": reason_of(error),',
        (f"{_OF_DOCUMENTS}::test_errors_are_short_and_without_secrets",),
    ),
    Bug(
        "names break out of their line",
        "UTF-8 is text",
        _DOCUMENTS,
        "ensure_ascii=True",
        "ensure_ascii=False",
        (f"{_OF_DOCUMENTS}::test_names_and_values_are_text_on_one_line",),
    ),
    Bug(
        "a restart has a negative rate",
        "counts only grow",
        "monitor/recent_past.py",
        " or progress.restarts != self._restarts",
        "",
        ("tests/monitor/test_history.py::test_a_restart_begins_at_zero_and_is_not_a_negative_rate",),
    ),
    Bug(
        "a value forges a line of the log",
        "a message is one line",
        "monitor/logs.py",
        "return redacted(super().formatMessage(record))",
        "return super().formatMessage(record)",
        ("tests/monitor/test_logs.py::test_text_lines",),
    ),
    Bug(
        "a traceback forges a line of the log",
        "a traceback is code",
        "monitor/logs.py",
        'f"    {redacted(line)}"',
        "redacted(line)",
        ("tests/monitor/test_logs.py::test_text_lines",),
    ),
    Bug(
        "a warning that repeats is lost",
        "it was written once",
        "monitor/logs.py",
        "if at is not None and now - at < self._seconds:",
        "if at is not None:",
        ("tests/monitor/test_logs.py::test_a_warning_that_repeats_is_written_once_a_minute",),
    ),
    Bug(
        "a name breaks the table of runs",
        "a cell is a line",
        "cli/output/texts.py",
        "[safe_line(cell) for cell in row]",
        "[*row]",
        ("tests/monitor/test_commands.py::test_hostile_texts_in_files_are_text_on_the_terminal",),
    ),
    Bug(
        "a run that has failed was stopped",
        "who is gone has ended",
        "cli/commands/runs.py",
        '    if status != "ended":',
        "    if False:",
        ("tests/monitor/test_commands.py::test_a_stop_that_takes_longer_and_a_run_that_fails",),
    ),
    Bug(
        "the environment adds a second monitor",
        "one more does no harm",
        "monitor/monitor.py",
        "return own if any(isinstance(it, Monitor) for it in own) else",
        "return",
        (f"{_OF_RUNS}::test_the_environment_asks_for_a_monitor",),
    ),
    Bug(
        "a task that stores nothing reports its facts",
        "a repeated task measures the same",
        "runtime/spark/tasks/stage.py",
        "        if not is_noted:\n            report.report.facts = {}",
        "        if is_noted is None:\n            report.report.facts = {}",
        (f"{_OF_TICKS}::test_facts_are_those_of_the_first_try",),
    ),
    Bug(
        "facts are repeated with each report",
        "sums are replaced, not added",
        "engine/stage_operators.py",
        "        self.busy = self.batches = self.largest = self.made = operator.calls = operator.demotions = 0\n",
        "",
        ("tests/conformance/test_counts.py::test_facts_of_each_operator",),
    ),
    Bug(
        "the busy time of sinks on the driver is lost",
        "a sink works where the workers are",
        "runtime/transport/sink_proxies.py",
        "facts={it.context.operator_name: Facts(took) for it, took in zip(writers, busy, strict=True)}",
        "facts={}",
        ("tests/conformance/test_counts.py::test_busy_time_of_sinks",),
    ),
]

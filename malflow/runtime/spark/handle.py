"""The handle of a run on Spark, which restarts the run after failures."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from malflow.engine.plan import Program
from malflow.runtime.handle import DrivenHandle
from malflow.runtime.progress.progress import Progress, finished
from malflow.runtime.requests.mailbox import RunRequests
from malflow.runtime.restarts import PASSING, Restarts
from malflow.runtime.spark.folder_owner import run_name
from malflow.runtime.spark.leftovers import Sweep
from malflow.runtime.spark.lost_java import mute_lost_java
from malflow.runtime.spark.run_attempt import RunAttempt
from malflow.runtime.spark.session_users import is_alive
from malflow.runtime.spark.settings import Settings
from malflow.runtime.spark.spark_session import java_loss_named, leave_session
from malflow.runtime.spark.unix_sockets import folder_of_driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["SparkHandle"]


class SparkHandle(DrivenHandle):
    """The handle of a run on Spark: makes attempts until one ends the run, then releases shared resources.

    Args:
        session: the Spark session.
        program: the program.
        parallelism: the initial number of workers.
        settings: the run's settings.
        requests: the requests to the run, and its listeners.
        ours: whether to stop the session at the end.
    """

    def __init__(
        self,
        session: SparkSession,
        program: Program,
        parallelism: int,
        settings: Settings,
        requests: RunRequests,
        *,
        ours: bool,
    ) -> None:
        super().__init__(requests, keeps=settings.options.persistence.is_enabled)
        self._session = session
        self._program = program
        self._settings = settings
        self._ours = ours
        options = settings.options
        self._restarts = Restarts(program, options.restart, requests, keeps=options.persistence.is_enabled)
        self._attempt = self._new_attempt(parallelism)
        mute_lost_java(session)

    @property
    def reader_is_gone(self) -> bool:
        """Whether the run has ended because the reader of standard output exited (a broken pipe)."""
        return self._attempt.reader_is_gone

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        return self._requests.stamped(self._attempt.progress)

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's handle of the current query; a rescale or restart creates a new one."""
        query = self._attempt.query
        return None if query is None else query.query

    @property
    def copies(self) -> float:
        """How many Python processes hold the state of a stage of a worker, on average; 0 before the first tick.

        It is about 1 where each executor has one core; on an executor with more, Spark chooses among its processes.
        """
        return self._attempt.places.copies

    @property
    def moves(self) -> int:
        """How many times a stage of a worker ran on another executor than in the tick before.

        Counted since the start, or since the last rescale or restart.
        """
        return self._attempt.places.moved

    @property
    def read_bytes(self) -> int:
        """How many bytes of the scratch folder were read by processes that needed the state of a worker.

        At the start that is all state; then only that of workers which move. Counted as `moves`.
        """
        return self._attempt.places.read

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._run_until_done()
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._requests.end(error)
            self._requests.listeners.notify(finished(self._program, self.progress, error))
            error = None  # its traceback holds this frame
            if self._settings.options.scratch is None:
                shutil.rmtree(self._settings.scratch.url, ignore_errors=True)
            if self._ours:
                leave_session()

    def _run_until_done(self) -> None:
        """Run to the end, with restarts from the last snapshot after failures outside the dataflow."""
        while True:
            attempt, settings = self._attempt, self._settings
            try:
                with java_loss_named(self._session, ours=self._ours):
                    attempt.run()
            except PASSING as error:
                if not self._restarts.allows(attempt, error) or not is_alive(self._session):
                    raise
                self._restarts.pause(error)
            else:
                return
            scratch, options = replace(settings.scratch, run=run_name()), settings.options
            options = replace(options, restore="latest") if attempt.has_begun else options
            self._settings = replace(settings, options=options, scratch=scratch)
            self._attempt = self._new_attempt(attempt.parallelism)

    def _new_attempt(self, parallelism: int) -> RunAttempt:
        settings = self._settings
        is_temporary, sockets = settings.options.scratch is None, folder_of_driver(self._session)
        sweep = Sweep(settings.scratch, is_temporary=is_temporary, sockets=sockets)
        return RunAttempt(
            self._session,
            self._program,
            parallelism,
            settings,
            self._requests,
            self._restarts.guard,
            self._restarts.count,
            sweep=sweep,
        )

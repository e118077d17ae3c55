"""Errors of connectors are the same after they were sent to another process."""

from __future__ import annotations

import pickle

import pytest

from malflow.connectors.delta.table import DeltaSinkError
from malflow.connectors.files.parser import BadRecord
from malflow.connectors.files.paths import InputFileError
from malflow.connectors.kafka.client import KafkaClientError
from malflow.connectors.lost_output import SinkFileError
from malflow.errors import GraphError, MalflowError, StoreError
from malflow.runtime.transport.error_pickles import dumps_error, loaded_error

ERRORS = [
    BadRecord("towns.csv", 3, b"Ulm;", "it has 1 field", mend="fix it"),
    DeltaSinkError("s3://bucket/table", "could not be read"),
    GraphError("operator 'sum' needs a key", operator="sum", location="flow.py:3"),
    InputFileError("towns.csv", "is gone"),
    KafkaClientError("fetch failed", 7),
    SinkFileError("out.jsonl", "is full"),
    StoreError("the store is away"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda it: type(it).__name__)
def test_a_pickled_error_keeps_its_text_and_attributes(error: MalflowError) -> None:
    loaded = pickle.loads(pickle.dumps(error, 5))
    assert type(loaded) is type(error)
    assert (str(loaded), repr(loaded), loaded.args, vars(loaded)) == (str(error), repr(error), error.args, vars(error))


def test_a_pickled_error_keeps_its_notes() -> None:
    error = SinkFileError("out.jsonl", "is full")
    error.add_note("and while closing: it is still full")
    assert pickle.loads(pickle.dumps(error, 5)).__notes__ == error.__notes__


def test_an_error_sent_by_spark_has_its_notes_once() -> None:

    error = StoreError("the store is away")
    error.add_note("and while closing: it is still away")
    assert loaded_error(dumps_error(error)).__notes__ == error.__notes__

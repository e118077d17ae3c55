"""Read the newest snapshot of a job by its format, without malflow: docs/format.md describes every byte.

It reads trusted pickles, without compression or pieces.
"""

import hashlib
import json
import pickle
import struct
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource


def require(holds: bool, place: object) -> None:
    """End the program at a file that is not as the format says."""
    if not holds:
        raise SystemExit(f"damaged: {place}")


def sealed(path: Path) -> Any:
    """Return the content of a job file or manifest."""
    body = json.loads(path.read_bytes())
    inner = {name: value for name, value in body.items() if name not in ("mac", "sha256")}
    plain = json.dumps(inner, sort_keys=True, separators=(",", ":")).encode()
    require(hashlib.sha256(plain).hexdigest() == body["sha256"], path)
    return body


def sections(data: bytes) -> Iterator[tuple[Any, bytes]]:
    """Yield the sections of a data file, each with its frame."""
    magic, version, checksum, length = struct.unpack_from(">8sHII", data)
    require((magic, version) == (b"\x8dMFS\r\n\x1a\n", 1), "the first bytes")
    require(zlib.crc32(data[18:]) == checksum, "the checksum")
    header, at = json.loads(data[18 : 18 + length]), 18 + length
    require((header["codec"], header["compression"]) == ("pickle", "none"), "not pickles without compression")
    for section in header["sections"]:
        yield section, data[at : at + section["stored"]]
        at += section["stored"]


def newest(job: Path) -> dict[tuple[str, int], dict[Any, Any]]:
    """Return the keys and values of each state and worker."""
    manifest = sealed(max((job / "m").iterdir()))
    states: dict[tuple[str, int], dict[Any, Any]] = {}
    for entry in manifest["files"]:
        data = (job / entry["name"]).read_bytes()
        require((len(data), hashlib.sha256(data).hexdigest()) == (entry["bytes"], entry["sha256"]), entry["name"])
        for section, frame in sections(data):
            state = states.setdefault((section["state"], section["worker"]), {})
            if section["what"] == "whole":
                state.clear()
                continue
            chunk = pickle.loads(frame)
            if section["what"] in ("deleted", "appended"):
                for key in chunk:
                    state.pop(key, None)
            if section["what"] != "deleted":
                state.update(chunk)
    return states


def build_dataflow(provider: StreamProvider) -> None:
    words = provider.new_stream().source("words", SingleIteratorSource(["once", "upon", "a", "time", "once"]))
    keyed = words.key_distribute("word", lambda msg: msg.value)
    keyed.stateful_map("count", lambda _word, _value, n: (n + 1, n + 1), default=int).sink("out", VecSink())


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        SingleThreadRuntime(build_dataflow, FsspecBackend(folder, job="words", compression="none")).execute()
        print(newest(Path(folder, "words"))["count", 0])


if __name__ == "__main__":
    main()

"""The types of calls of systems outside; checked by mypy, not run."""

from __future__ import annotations

from typing import assert_type

from malflow import KeyedStream, Retry, Stream
from malflow.message import NoKeyType


async def length(text: str) -> int:
    return len(text)


async def lengths(texts: list[str]) -> list[int]:
    return [len(text) for text in texts]


class Client:
    async def open(self) -> None: ...
    async def __call__(self, text: str) -> bytes:
        return text.encode()


def called(words: Stream[NoKeyType, str, int], keyed: KeyedStream[int, str, int]) -> None:
    assert_type(words.map_async("one", length, capacity=5), Stream[NoKeyType, int, int])
    assert_type(words.map_async("client", Client(), retry=Retry()), Stream[NoKeyType, bytes, int])
    assert_type(words.map_async("lists", lengths, batch=64), Stream[NoKeyType, int, int])
    assert_type(words.map_async("threads", len, threads=8), Stream[NoKeyType, int, int])
    assert_type(words.map_async("skips", length, on_error="skip"), Stream[NoKeyType, int, int])
    assert_type(keyed.map_async("keyed", length), KeyedStream[int, int, int])
    assert_type(keyed.map_async("keeps", length, on_error="dead_letter"), KeyedStream[int, int, int])
    assert_type(keyed.map_async("keyed lists", lengths, batch=64), KeyedStream[int, int, int])


def mistakes(words: Stream[NoKeyType, str, int]) -> None:
    words.map_async("plain", len)  # type: ignore[arg-type]
    words.map_async("one for a list", length, batch=64)  # type: ignore[arg-type]
    words.map_async("a list for one", lengths)  # type: ignore[arg-type]
    words.map_async("no fate", length, on_error="drop")  # type: ignore[call-overload]

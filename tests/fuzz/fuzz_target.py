"""Targets of the fuzzers."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from tests.fuzz.fuzz_inputs import only_ours

T = TypeVar("T")


class Bench(NamedTuple):
    """The tools of a target as long as it is worked with: a folder of its own, and a stack that closes what it opened."""

    folder: Path
    stack: ExitStack


@dataclass(frozen=True)
class Target:
    """
    A decoder of foreign bytes.

    Args:
        seeds: Inputs that it reads without an error, made by the code that writes them where there is such code.
        read: Reads any bytes, and asserts what has to hold of the outcome.
        errors: What it may raise beside a `ChatledgerError`: where it implements a library's interface, or where only the
            module that calls it sees the error.
        msgpack_at: Where msgpack begins in an input; None when it is something else. Fuzzers then change values in it, too.
        max_bytes: Longer inputs are not tried.
    """

    seeds: Sequence[bytes]
    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...] = ()
    msgpack_at: int | None = None
    max_bytes: int = 4096

    def check(self, raw: bytes) -> None:
        """Read an input, which must not raise anything but the documented errors."""
        only_ours(lambda: self.read(raw), also=self.errors)


Maker = Callable[[Bench], Target]


def chosen(raw: bytes, options: Sequence[T]) -> tuple[T, bytes]:
    """One of some options, by the first byte, and the other bytes."""
    return options[(raw[0] if raw else 0) % len(options)], raw[1:]


def numbered(contents: Sequence[bytes]) -> list[bytes]:
    """Inputs from which `chosen` chooses the option of the same number."""
    assert len(contents) <= 256
    return [bytes([number]) + content for number, content in enumerate(contents)]


def as_text(raw: bytes) -> str:
    """Any text, lone surrogates too: `sys.argv` may have them."""
    return raw.decode("utf-8", "surrogateescape")

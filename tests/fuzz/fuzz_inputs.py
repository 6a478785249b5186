"""Inputs that are nearly right: valid bytes with some edits, and msgpack that says wrong things about itself."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar, cast

import msgspec
from hypothesis import strategies as st

from chatledger import ChatledgerError

T = TypeVar("T")

DEEP: Final = 3000
"""More levels than any decoder here recurses."""
WILD: Final = (
    b"",
    b"\0",
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xc1",  # what msgpack never uses
    b"\xc1E",
    b"\xc1R",
    b"\xc1Z",
    b"\xdd\xff\xff\xff\xff",  # an array of 2**32 - 1 elements
    b"\xdf\xff\xff\xff\xff",  # a map
    b"\xc6\xff\xff\xff\xff",  # bytes
    b"\xdb\xff\xff\xff\xff",  # text
    b"\xc9\xff\xff\xff\xff\x01",  # an extension
    b"\xd9\x02\xed\xa0",  # text that is no UTF-8
    b"\x91" * DEEP + b"\xc0",
    b"\x81\xa1a" * DEEP + b"\xc0",
    b"\x82\xa1a\x01\xa1a\x02",  # the same key twice
    b"[" * DEEP,
    b'{"a":' * DEEP,
    b'"\\ud800"',
    b"\xed\xa0\x80",
    b"9" * 5000,
    b"-1",
    b"1e999",
    b"../" * 9,
    b"\n",
    b"%",
    b"\xef\xbb\xbf",
)

any_edits: Final = st.lists(
    st.tuples(
        st.sampled_from(["flip", "insert", "delete", "truncate", "overwrite", "repeat"]),
        st.integers(0, 2**16),
        st.integers(0, 255),
        st.sampled_from(WILD) | st.binary(max_size=8),
    ),
    min_size=1,
    max_size=4,
)


def edited(sample: bytes, edits: Sequence[tuple[str, int, int, bytes]]) -> bytes:
    """A sample with edits: (what, where, how much, with what)."""
    for kind, place, amount, content in edits:
        at = place % (len(sample) + 1)
        if kind == "flip" and at < len(sample):
            sample = sample[:at] + bytes([sample[at] ^ (amount or 1)]) + sample[at + 1 :]
        elif kind == "insert":
            sample = sample[:at] + content + sample[at:]
        elif kind == "delete":
            sample = sample[:at] + sample[at + amount :]
        elif kind == "truncate":
            sample = sample[:at]
        elif kind == "overwrite":
            sample = sample[:at] + content + sample[at + len(content) :]
        elif kind == "repeat":
            sample = sample[:at] + sample[at : at + amount] * 2 + sample[at + amount :]
    return sample


any_text: Final = st.text(st.characters(codec=None) | st.sampled_from('()"* \0\ud800漢กa'), max_size=60)
"""Lone surrogates too: `sys.argv` may have them."""


def nearly(samples: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Samples with some edits."""
    return st.builds(edited, st.sampled_from(samples), any_edits)


_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=6)
    | st.binary(max_size=40)
    | st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), st.binary(max_size=4))
)
odd_values: Final[st.SearchStrategy[Any]] = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | st.integers(0, 9), inner, max_size=4)
    ),
    max_leaves=8,
)
"""Values that msgpack can say, most of which nobody expects."""


def with_odd_part(sample: bytes, path: Sequence[int], odd: Any) -> bytes:
    """A msgpack sample with one value in it replaced; the sample itself where that cannot be."""
    try:
        whole: Any = [msgspec.msgpack.decode(sample)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return sample
    container: Any = whole
    key: Any = 0
    for step in path:
        found: Any = container[key]
        if not isinstance(found, dict | list) or not found:
            break
        container = cast("Any", found)
        keys = list(cast("dict[Any, Any]", found)) if isinstance(found, dict) else list(range(len(container)))
        key = keys[step % len(keys)]
    container[key] = odd
    try:
        return msgspec.msgpack.encode(whole[0])
    except (TypeError, ValueError, RecursionError):
        return sample


def odd_msgpack(samples: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Samples of msgpack with a wrong value somewhere, and any other msgpack."""
    paths = st.lists(st.integers(0, 40), max_size=5)
    return st.builds(with_odd_part, st.sampled_from(samples), paths, odd_values) | odd_values.map(
        msgspec.msgpack.encode
    )


def only_ours(work: Callable[[], T], *, also: tuple[type[Exception], ...] = ()) -> T | None:
    """
    Return the answer of `work`; None where it raises an error of ours, which says something.

    Args:
        work: What reads.
        also: Errors of a library's interface, where that is what `work` implements.
    """
    with suppress(*also):
        try:
            return work()
        except ChatledgerError as error:
            assert str(error)  # noqa: PT017 - whether it is raised is not the question
    return None

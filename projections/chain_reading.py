"""Reading whole chains: what is done for every message of a page, and nothing else."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from chatledger.domain.values import Message

from .lazy_message import UndecodedMessage, decode_lazily, place_lazily

Run = tuple[int, int, int]
"""Messages of a chain that follow each other in a segment: its number, the first offset and the last one."""
Arrays = Callable[[int, int, int], Iterator[tuple[int, bytes | memoryview]]]
"""The pages that hold a run: the offset of the first message, and the msgpack array of the messages."""

_decode: Final = msgspec.msgpack.Decoder(list[Message]).decode
_set: Final = msgspec.structs.force_setattr


def read_runs(
    runs: Iterable[Run], arrays: Arrays, parent_of: Callable[[Run], str | None], *, chat_id: str, lazy_data: bool
) -> list[Message]:
    """
    The messages of runs that follow each other, root first.

    Args:
        runs: What to read.
        arrays: Finds the pages of a run.
        parent_of: Finds the id of the parent of the first message of a run.
        chat_id: The chat they belong to.
        lazy_data: Whether data are decoded when they are asked for.
    """
    decode: Callable[[bytes | memoryview], Sequence[Message]] = decode_lazily if lazy_data else _decode
    place = partial(place_lazily, UndecodedMessage(chat_id)) if lazy_data else partial(_place, chat_id)
    messages: list[Message] = []
    parent_id: str | None = None
    for run in runs:
        number, first, last = run
        for page_first, array in arrays(number, first, last):
            page = decode(array)
            start = first - page_first if first > page_first else 0
            if not messages:
                parent_id = page[start - 1].id if start else parent_of(run)
            if start or last - page_first + 1 < len(page):
                page = page[start : last - page_first + 1]
            parent_id = place(page, parent_id)
            messages += page
    return messages


def _place(chat_id: str, messages: Iterable[Message], parent_id: str | None) -> str | None:
    """Say of messages that follow each other what chat they belong to and what they answer; returns the id of the last one."""
    for message in messages:
        _set(message, "chat_id", chat_id)
        _set(message, "parent_id", parent_id)
        parent_id = message.id
    return parent_id

"""Fuzzed: events, as they are encoded and as they are stored."""

import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from tests.fuzz.fuzz_samples import SampleEvent, events, mappers, records, referring
from tests.fuzz.fuzz_target import Bench, Maker, Target, chosen, numbered

from chatledger import Recorded
from chatledger.domain.chat.events import Event, MessagesAppended
from chatledger.domain.log.codec import decode_event, references_in
from chatledger.domain.log.large_data import UnknownContentError, carried, is_carrying
from chatledger.infra.log.mapper import MARK


def _event(_: Bench) -> Target:
    """The number of a sample, and what the event of its topic is read from."""

    def read(raw: bytes) -> None:
        sample, state = chosen(raw, events())
        with suppress(UnknownContentError):
            assert isinstance(decode_event(sample.topic, state), Event)

    return Target(numbered([sample.state for sample in events()]), read, msgpack_at=1)


def _record(_: Bench) -> Target:
    """The number of a mapper and of a sample, and the record: compressed, encrypted, both or neither."""

    def read(raw: bytes) -> None:
        mapper, rest = chosen(raw, sorted(mappers()))
        sample, state = chosen(rest, events())
        assert isinstance(mappers()[mapper].recorded(sample.stored_as(state)), Recorded)

    numbers = {name: number for number, name in enumerate(sorted(mappers()))}
    seeds = [
        bytes([numbers[name], number]) + record
        for number, sample in enumerate(events())
        for name, record in zip(mappers(), records(sample), strict=True)
    ]
    return Target(seeds, read)


def framed(frame: bytes) -> bytes:
    """A compressed record with a right checksum, which keeps chance out, not malice."""
    return MARK + zlib.crc32(frame).to_bytes(4, "little") + frame


def _frame(_: Bench) -> Target:
    """The number of a sample, and a compressed frame, whose checksum is then made to fit."""
    import zstandard

    def read(raw: bytes) -> None:
        sample, frame = chosen(raw, events())
        mappers()["plain"].recorded(sample.stored_as(framed(frame)))

    return Target(numbered([zstandard.compress(sample.state)[4:] for sample in events()]), read)


def resealed(sample: SampleEvent, plain: bytes) -> bytes:
    """A record that says this in its place: who has the key may write anything."""
    return mappers()["encrypted"].pack(plain, (sample.chat_id, sample.version, sample.topic))


def _sealed(_: Bench) -> Target:
    """The number of a sample, and the text that is then encrypted."""

    def read(raw: bytes) -> None:
        sample, plain = chosen(raw, events())
        mappers()["encrypted"].recorded(sample.stored_as(resealed(sample, plain)))

    return Target(numbered([sample.state for sample in events()]), read, msgpack_at=1)


def _references(_: Bench) -> Target:
    """An event with references to large data, or one that carries them: nothing is fetched, and no memory taken, for a damaged one."""

    def read(stored: bytes) -> None:
        state, contents = carried(stored) if is_carrying(stored) else (stored, {})
        references = references_in(MessagesAppended.TOPIC, state)
        assert len(references) <= len(stored)
        with suppress(UnknownContentError):
            decode_event(MessagesAppended.TOPIC, state, contents)

    return Target(referring(), read)


EVENTS: Final[Mapping[str, Maker]] = {
    "event": _event,
    "record": _record,
    "record-frame": _frame,
    "record-sealed": _sealed,
    "record-references": _references,
}

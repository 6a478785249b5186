"""
Coverage-guided fuzzing of the decoders that take bytes, for as long as one likes: needs `pip install atheris`.

    python -m tests.fuzz.run_atheris [TARGET] [arguments of libFuzzer, such as -max_total_time=600]

Without a target it lists them. What it finds is left as a file `crash-…` in the current folder.
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from eventsourcing.persistence import DataError
from tests.fuzz.fuzz_inputs import only_ours
from tests.fuzz.fuzz_samples import anchors, bookmarks, events, mappers, records, referring

from chatledger import Anchor
from chatledger.domain.codec import decode_event
from chatledger.domain.large_data import put_together
from chatledger.domain.search.query import parse
from chatledger.infra.jetstream.subjects import raw_id
from chatledger.infra.log.bookmarks import decode_bookmark
from chatledger.infra.log.keys import read_keys
from chatledger.infra.servers import read_place
from chatledger.projections.search.postings import Part, occurrences_of, unpack, unpack_few


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _event(raw: bytes) -> None:
    event = events()[raw[0] % len(events())] if raw else events()[0]
    only_ours(lambda: decode_event(event.topic, raw[1:]))


def _record(raw: bytes) -> None:
    for mapper in mappers().values():
        only_ours(partial(mapper.recorded, events()[0].stored_as(raw)))


def _postings(raw: bytes) -> None:
    only_ours(lambda: occurrences_of(unpack([raw])))
    only_ours(lambda: unpack_few([Part(0, [raw])]))


def _token(raw: bytes) -> None:
    only_ours(lambda: raw_id(_text(raw), _text(raw)), also=(DataError,))


TARGETS: Final[dict[str, tuple[Callable[[bytes], Any], Sequence[bytes]]]] = {
    "anchor": (lambda raw: only_ours(lambda: Anchor.from_json(raw)), anchors()),
    "bookmark": (lambda raw: only_ours(lambda: decode_bookmark(raw, 0)), bookmarks()),
    "event": (_event, [b"\0" + event.state for event in events()]),
    "keys": (lambda raw: only_ours(lambda: read_keys(_text(raw))), [b"k:YWJj"]),
    "large": (lambda raw: only_ours(lambda: put_together(raw, lambda _: b"")), referring()),
    "location": (
        lambda raw: only_ours(lambda: read_place(_text(raw), stream="s", login=None, replicas=None)),
        [b"nats://user:secret@host:4222/stream?replicas=3"],
    ),
    "postings": (_postings, [b"\x80\0\0\0\0\0"]),
    "query": (lambda raw: parse(_text(raw)), [b'salt AND ("a b"* OR c) NOT d']),
    "record": (_record, [one for event in events()[:3] for one in records(event)]),
    "token": (_token, [b"bYQ", b"u" + b"0" * 32]),
}


def main(arguments: list[str]) -> int:
    """Fuzz one target. Returns the exit code."""
    if not arguments or arguments[0] not in TARGETS:
        print("targets:", ", ".join(TARGETS))
        return 2
    import atheris  # type: ignore[import-untyped,unused-ignore] # it has no stubs

    target, samples = TARGETS[arguments[0]]
    with TemporaryDirectory() as corpus:
        for number, sample in enumerate(samples):
            (Path(corpus) / str(number)).write_bytes(sample)
        atheris.instrument_all()
        atheris.Setup([sys.argv[0], *arguments[1:], corpus], target)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

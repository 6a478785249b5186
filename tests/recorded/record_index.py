"""
Digests of the rows that an index has of the recorded events: `python -m tests.recorded.record_index`, after `SCHEMA` was raised.

An index of another schema is built anew; one of the same schema is read as it is. So rows may change with the schema only.
"""

import json
from collections import defaultdict
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.recorded.record import SAMPLES
from tests.recorded.record_states import SAMPLES as STATE_SAMPLES
from tests.recorded.record_threads import SAMPLES as THREAD_SAMPLES
from tests.support.naive_index import dump, live, opened
from tests.support.salts import salts

from chatledger.domain.chat.events import ChatCreated, MessagesAppended, Recorded
from chatledger.domain.log.codec import Envelope, decode_event, encode_events
from chatledger.domain.log.parts import event_hash
from chatledger.domain.values import Message
from chatledger.projections.generations import SCHEMA
from chatledger.projections.index import Index

DIGESTS = Path(__file__).parent / "index.json"
_MESSAGES = 200
"""More than wait for a segment of the search index."""


def recorded_events(counts: dict[str, int] | None) -> tuple[list[Recorded], dict[str, int]]:
    """The events of the sample files, of each as many as are said or all, and those of a chat with more messages."""
    events: list[Recorded] = []
    taken: dict[str, int] = {}
    for file in (SAMPLES, THREAD_SAMPLES, STATE_SAMPLES):
        samples: list[dict[str, Any]] = json.loads(file.read_text())
        taken[file.name] = len(samples) if counts is None else counts[file.name]
        for sample in samples[: taken[file.name]]:
            state = bytes.fromhex(sample["state"])
            event = decode_event(sample["topic"], state)
            events.append(Recorded(len(events) + 1, event, event_hash(state)))
    messages = tuple(
        Message(
            id=f"long-{number}",
            parent_id=f"long-{number - 1}" if number else None,
            name="assistant" if number % 2 else "user",
            data={"parts": [{"type": "text", "text": f"word{number % 7} walked twice twice {number}"}]},
            created_at=number,
        )
        for number in range(_MESSAGES)
    )
    for one in encode_events(
        [ChatCreated("ada", None, None, "b1"), MessagesAppended(messages, 0, None, messages[-1].id)],
        stream_id="long",
        version=0,
        previous_hash=b"",
        occurred_at=1_700_000_000_000,
        event_ids=["long-1", "long-2"],
        salts=salts(),
        envelope=Envelope(),
    ):
        events.append(Recorded(len(events) + 1, one.event, one.hash))
    return events, taken


def digests_of(events: list[Recorded]) -> dict[str, str]:
    """The digest of the rows of each table as they are after each commit."""
    found = defaultdict[str, Any](lambda: blake2b(digest_size=16))
    with TemporaryDirectory() as folder, opened(Path(folder)) as index:
        commit: list[Recorded] = []
        for event in events:
            commit.append(event)
            if not event.event.rest:
                index.apply(commit)
                commit = []
                _add_rows(index, found)
    return {name: digest.hexdigest() for name, digest in sorted(found.items())}


def _add_rows(index: Index, found: dict[str, Any]) -> None:
    generation = live(index)
    kind = type(generation.tables.rows)
    with generation.reading() as txn:
        for name, table in vars(generation.tables).items():
            if isinstance(table, kind) and name != "meta":
                found[name].update(repr(dump(txn, table)).encode())


def main() -> None:
    """Record what this version writes, under its schema."""
    events, counts = recorded_events(None)
    rows = {"schema": SCHEMA.decode(), "events": counts, "tables": digests_of(events)}
    if DIGESTS.exists():
        before = json.loads(DIGESTS.read_text())
        counted, _ = recorded_events(before["events"])
        if before["schema"] == rows["schema"] and before["tables"] != digests_of(counted):
            msg = "rows have changed: raise SCHEMA in projections/generations.py first"
            raise SystemExit(msg)
    DIGESTS.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""
Filling an empty stream so that every message gets the sequence that it had.

A stream numbers by itself, and erased messages left gaps. So placeholders without content, on a subject beside the events, are
written where nothing is to stand, and purged all at once in the end.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from eventsourcing.persistence import Notification, OperationalError, StoredEvent, Tracking

from .append import MAX_BATCH, OutgoingMessage
from .client import JetStreamClient
from .recorders import StreamRecorder
from .records import FOREIGN_TOPIC, Records
from .stream import PurgeReply

PLACEHOLDER: Final = "chatledger.filler"
_KEPT: Final = "chatledger.foreign"
"""Placeholders that stay, where the log had messages of others."""
_PARTIAL: Final = "chatledger_partial"
_BATCH_BYTES: Final = 4 * 1024 * 1024


class _StreamSettings(msgspec.Struct):
    config: dict[str, Any]


def restore_with_gaps(
    client: JetStreamClient,
    recorder: StreamRecorder,
    pages: Iterable[Sequence[Notification]],
    *,
    after: int,
    source: str,
) -> None:
    """
    Write records, whose positions ascend, and placeholders between them, in atomic batches, into a stream that ends at position `after`.

    The stream is no log until `finish_restore`, and has the name of the source until then.

    Raises:
        OperationalError: Somebody else writes to the stream.
    """
    stream = recorder.stream
    # Before the first message, on the server: a kill from here on leaves a stream that nobody opens as a log.
    _mark_partial(client, stream, source)
    for batch, last in _batches(_messages(pages, recorder.records, after)):
        filled = recorder.insert(batch)
        # Positions are the stream's count. One message of somebody else, and all that follows would stand one too far.
        if filled != last:
            msg = f"position {last} of the stream was to be filled, and {filled} was: somebody else writes to it"
            raise OperationalError(msg)
    # Before the mark goes: none opens with placeholders.
    _purge_placeholders(client, stream, recorder.records)


def finish_restore(client: JetStreamClient, stream: str) -> None:
    """Let a stream be opened as a log."""
    _mark_partial(client, stream, None)


def _purge_placeholders(client: JetStreamClient, stream: str, records: Records) -> None:
    request = {"filter": records.tracking_subject(PLACEHOLDER)}
    client.api(f"STREAM.PURGE.{stream}", request, PurgeReply, client.deadline())


def source_of_partial(client: JetStreamClient, stream: str) -> str | None:
    """Return the name of the source from which a stream is being restored, or was until that was interrupted; None for a whole one."""
    source: str | None = _config(client, stream).get("metadata", {}).get(_PARTIAL)
    return source


def _mark_partial(client: JetStreamClient, stream: str, source: str | None) -> None:
    """Mark a stream as being restored from a source, or as complete, in its metadata on the server."""
    config = _config(client, stream)
    # The rest stays, above all the id of the log.
    metadata = {name: value for name, value in config.get("metadata", {}).items() if name != _PARTIAL}
    if source is not None:
        metadata[_PARTIAL] = source
    client.api(f"STREAM.UPDATE.{stream}", {**config, "metadata": metadata}, _StreamSettings, client.deadline())
    client.sync_stream(stream)


def _config(client: JetStreamClient, stream: str) -> dict[str, Any]:
    return (client.api(f"STREAM.INFO.{stream}", None, _StreamSettings, client.deadline())).config


def _messages(
    pages: Iterable[Sequence[Notification]], records: Records, position: int
) -> Iterator[tuple[int, OutgoingMessage]]:
    """Yield the messages behind a position, with placeholders where nothing is to stand."""
    for page in pages:
        for record in page:
            while position < record.id - 1:
                position += 1
                yield position, records.tracking_message(Tracking(PLACEHOLDER, position))
            position = record.id
            if record.topic == FOREIGN_TOPIC:
                yield position, records.tracking_message(Tracking(_KEPT, position))
                continue
            stored = StoredEvent(record.originator_id, record.originator_version, record.topic, record.state)
            yield position, records.messages([stored], [f"restored-{position}"])[0]


def _batches(messages: Iterator[tuple[int, OutgoingMessage]]) -> Iterator[tuple[list[OutgoingMessage], int]]:
    batch: list[OutgoingMessage] = []
    size = last = 0
    for position, message in messages:
        # In batches, each of which the server syncs once: some 24,000 messages a second, where single ones wait for a sync each.
        if batch and (len(batch) == MAX_BATCH or size + len(message.payload) > _BATCH_BYTES):
            yield batch, last
            batch, size = [], 0
        batch.append(message)
        size += len(message.payload)
        last = position
    if batch:
        yield batch, last

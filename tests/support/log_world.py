"""Chats that are written to a log by itself, without a ledger above it."""

import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from chatledger import Encryption
from chatledger.domain.chat.events import Body, ChatCreated, ChatDeleted, ChatUpdated, MessagesAppended
from chatledger.domain.log.codec import NO_HASH, EncodedEvent, Envelope, encode_events
from chatledger.domain.values import Message
from chatledger.infra.log.envelope import draw_salts
from chatledger.infra.store.opening.locations import log_at
from chatledger.infra.store.opening.options import LogOnly
from chatledger.testing import EventLog

KEY = Encryption.new_key("k1")


class LoggedChat:
    """A chat on a log, and its events as they were encoded, by position."""

    def __init__(self, log: EventLog, name: str = "chat") -> None:
        self.id, self._log = name, log
        self.events: dict[int, EncodedEvent] = {}
        self._version, self._position, self._hash = 0, 0, NO_HASH
        self._write(ChatCreated("ada", None, None, str(uuid.uuid4())))

    def append(self, *texts: str) -> int:
        """Write an event with these messages; its position. Slots are 3, 5, ..."""
        messages = (
            Message(id=str(uuid.uuid4()), chat_id=self.id, name="user", data=text, created_at=0) for text in texts
        )
        return self._write(MessagesAppended(tuple(messages)))

    def end(self) -> int:
        """Write an event that says nothing."""
        return self._write(ChatUpdated({"title": ""}))

    def delete(self) -> None:
        """Delete it, as a ledger does: the tombstone, and then what it stands for."""
        tombstone = self._write(ChatDeleted(min(self.events), len(self.events), 0, 0, 0))
        with self._log.erasing():
            self._log.erase(self.id, first_position=min(self.events), before=tombstone)

    def _write(self, *bodies: Body) -> int:
        commit = encode_events(
            bodies,
            stream_id=self.id,
            version=self._version,
            previous_hash=self._hash,
            occurred_at=1,
            event_ids=[str(uuid.uuid4()) for _ in bodies],
            salts=draw_salts(),
            envelope=Envelope(),
        )
        (position,) = self._log.append(self.id, commit, expected_position=self._position)
        self._version, self._position, self._hash = self._version + 1, position, commit[-1].hash
        self.events[position] = commit[-1]
        return position


def open_log(location: str, *, is_encrypted: bool = False, **options: Any) -> AbstractContextManager[EventLog]:
    """Open a log without a ledger above it, by itself, as another process would."""
    create = True if location.startswith("nats") else None
    encryption = Encryption(KEY) if is_encrypted else None
    return log_at(LogOnly(location, create=create, encryption=encryption, **options))


def hashes(log: EventLog) -> Sequence[bytes]:
    """The hashes of all events of a log, in order."""
    return [recorded.hash for recorded in log.read(0)]

"""A few values by key, in a stream of their own that keeps the newest message of each subject."""

import secrets
from typing import Any

import msgspec
from eventsourcing.persistence import IntegrityError, InterfaceError

from .append import Message, SlotEmptyError, SlotTakenError, append
from .client import Deadline, JetStreamClient, ask_api
from .connection import Connection
from .errors import NOT_FOUND, ApiError, StreamAbsentError
from .reading import MESSAGE_ID, LogMessage, Pages, last_on_subject
from .stream import StreamState
from .subjects import token


class _Config(msgspec.Struct):
    subjects: list[str] = []
    max_msgs_per_subject: int = -1
    max_age: int = 0
    allow_direct: bool = False
    storage: str = ""


class _Info(msgspec.Struct):
    config: _Config
    state: StreamState


class _Purged(msgspec.Struct):
    success: bool = False


class Bucket:
    """
    Values by key. The stream is made when the first value is put.

    Args:
        client: The connection, which may serve others too.
        stream: The name of the stream.
        replicas: Of a stream that is created.
    """

    def __init__(self, client: JetStreamClient, stream: str, *, replicas: int) -> None:
        self._client, self._stream, self._replicas = client, stream, replicas
        self._is_there = False

    def make(self) -> None:
        """Make the stream now, for logins that may not."""
        self._client.call(self._ensure, self._client.deadline())

    def get(self, key: str) -> tuple[int, bytes] | None:
        """The revision and the value of a key, None when it has none. From the leader: never stale."""
        try:
            found = self._client.call(
                last_on_subject, self._client, self._stream, self._subject(key), self._client.deadline()
            )
        except StreamAbsentError:
            return None
        return None if found is None else (found.position, found.payload)

    def put(self, key: str, value: bytes, *, expected: int) -> int:
        """
        Set the value of a key whose revision is `expected`, 0 when it has none; the new revision.

        Raises:
            IntegrityError: The key has another revision; nothing was changed.
            InterfaceError: Something else has the name of the stream.
            OutcomeUnknownError: No answer; the value may be set.
        """
        return self._client.call(self._put, self._subject(key), value, expected)

    def items(self) -> list[tuple[int, bytes]]:
        """All revisions and values, oldest first."""
        try:
            return [(message.position, message.payload) for message in self._client.call(self._read)]
        except StreamAbsentError:
            return []

    def delete(self, key: str) -> None:
        """Forget a key; nothing happens when it has no value."""
        try:
            self._client.call(self._delete, self._subject(key))
        except StreamAbsentError:
            return

    def _subject(self, key: str) -> str:
        return f"{self._stream}.b.{token(key)}"

    async def _put(self, subject: str, value: bytes, expected: int) -> int:
        deadline = self._client.deadline()
        await self._ensure(deadline)
        message = Message(subject, value, {MESSAGE_ID: secrets.token_hex(16)}, expected)
        try:
            return (await append(self._client, self._stream, [message], deadline, replicas=self._replicas)).last
        except (SlotTakenError, SlotEmptyError) as error:
            msg = f"{subject} has another revision than {expected}: {error}"
            raise IntegrityError(msg) from error

    async def _ensure(self, deadline: Deadline) -> None:
        # Nobody answers what is sent to an absent stream, so it has to be there before.
        if not self._is_there:
            await self._client.retry(self._make, deadline, doing=f"creating the stream {self._stream}")
            self._is_there = True

    async def _make(self, connection: Connection, deadline: Deadline) -> None:
        try:
            info = await ask_api(connection, f"STREAM.INFO.{self._stream}", b"", _Info, deadline)
        except ApiError as error:
            if error.fault.err_code != NOT_FOUND:
                raise
            # The same for everybody, so that two who create it at the same time both succeed.
            request = msgspec.json.encode(self._new_config())
            info = await ask_api(connection, f"STREAM.CREATE.{self._stream}", request, _Info, deadline)
        self._check(info.config)

    def _check(self, config: _Config) -> None:
        is_ours = config.subjects == self._new_config()["subjects"] and config.max_msgs_per_subject == 1
        if not (is_ours and config.allow_direct and config.max_age == 0 and config.storage == "file"):
            msg = f"the stream {self._stream!r} does not keep the last message of each of its subjects for ever"
            raise InterfaceError(msg)

    def _new_config(self) -> dict[str, Any]:
        return {
            "name": self._stream,
            "subjects": [f"{self._stream}.b.>"],
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "num_replicas": self._replicas,
            "max_msgs_per_subject": 1,
            "allow_direct": True,
        }

    async def _read(self) -> list[LogMessage]:
        info = await self._client.api(f"STREAM.INFO.{self._stream}", None, _Info, self._client.deadline())
        self._check(info.config)
        pages = Pages(self._client, self._stream, self._client.deadline(), after=0, until=info.state.last)
        found: list[LogMessage] = []
        while not pages.is_complete:
            found += await pages.read()
        return found

    async def _delete(self, subject: str) -> None:
        request = {"filter": subject}
        await self._client.api(f"STREAM.PURGE.{self._stream}", request, _Purged, self._client.deadline())

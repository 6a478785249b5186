"""Strands: short logs by name, one subject each, in a stream beside a log. Made when the first entry is written."""

import asyncio
import secrets
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
from eventsourcing.persistence import IntegrityError, InterfaceError

from .append import Message, SlotEmptyError, SlotTakenError, append
from .client import Deadline, JetStreamClient, ask_api
from .connection import Connection
from .erase import WINDOW, erase_at
from .errors import NOT_FOUND, ApiError, StreamAbsentError
from .reading import MESSAGE_ID, LogMessage, Pages, last_on_subject

_PAGE: Final = 8


class _Config(msgspec.Struct):
    subjects: list[str] = []
    retention: str = ""
    storage: str = ""
    discard: str = ""
    max_age: int = 0
    max_msgs: int = -1
    max_bytes: int = -1
    max_msgs_per_subject: int = -1
    allow_direct: bool = False


class _State(msgspec.Struct):
    subjects: dict[str, int] = {}


class _Info(msgspec.Struct):
    config: _Config
    state: _State
    total: int = 0


class Strand(NamedTuple):
    """An entry of a strand and where it is."""

    position: int
    payload: bytes


class Strands:
    """
    Entries by name, in a stream of their own.

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

    def last(self, name: str) -> Strand | None:
        """The last entry of a strand. From the leader: never stale."""
        try:
            found = self._client.call(
                last_on_subject, self._client, self._stream, self._subject(name), self._client.deadline()
            )
        except StreamAbsentError:
            return None
        return None if found is None else Strand(found.position, found.payload)

    def add(self, name: str, payload: bytes, *, expected: int) -> int:
        """
        Add an entry behind the one at `expected`, 0 for none; its position.

        Raises:
            IntegrityError: The last entry is another one; nothing was written.
            InterfaceError: Something else has the name of the stream.
            OutcomeUnknownError: No answer; the entry may be stored.
        """
        return self._client.call(self._add, self._subject(name), payload, expected)

    async def _add(self, subject: str, payload: bytes, expected: int) -> int:
        deadline = self._client.deadline()
        await self._ensure(deadline)
        message = Message(subject, payload, {MESSAGE_ID: secrets.token_hex(16)}, expected)
        try:
            return (await append(self._client, self._stream, [message], deadline, replicas=self._replicas)).last
        except (SlotTakenError, SlotEmptyError) as error:
            msg = f"{subject} does not end at {expected}: {error}"
            raise IntegrityError(msg) from error

    def read(self, name: str, *, after: int, until: int) -> Iterator[Strand]:
        """The entries above one position up to another one, in order, page by page."""
        pages = Pages(
            self._client,
            self._stream,
            self._client.deadline(),
            after=after,
            subject=self._subject(name),
            until=until,
        )
        while not pages.is_complete:
            for message in self._page(pages):
                if message.position > until:
                    return
                yield Strand(message.position, message.payload)
                if message.position == until:
                    return

    def _page(self, pages: Pages) -> list[LogMessage]:
        pages.renew(self._client.deadline())
        try:
            return self._client.call(pages.read, _PAGE)
        except StreamAbsentError:
            pages.is_complete = True
            return []

    def erase(self, name: str, *, until: int) -> None:
        """Overwrite and delete the entries up to a position; the one at `until` last."""
        positions = [entry.position for entry in self.read(name, after=0, until=until)]
        for start in range(0, len(positions), WINDOW):
            window = [position for position in positions[start : start + WINDOW] if position != until]
            self._client.call(self._delete, window)
        self._client.call(self._delete, [until])

    def remove(self, name: str, position: int) -> None:
        """Overwrite and delete one entry."""
        del name
        self._client.call(self._delete, [position])

    async def _delete(self, positions: list[int]) -> None:
        try:
            await asyncio.gather(*(erase_at(self._client, self._stream, position) for position in positions))
        except StreamAbsentError:
            return

    def names(self) -> list[str]:
        """The names that have entries."""
        try:
            return self._client.call(self._names)
        except StreamAbsentError:
            return []

    async def _names(self) -> list[str]:
        prefix = self._subject("")
        found: list[str] = []
        while True:
            request = {"subjects_filter": prefix + ">", "offset": len(found)}
            info = await self._client.api(f"STREAM.INFO.{self._stream}", request, _Info, self._client.deadline())
            found += [subject.removeprefix(prefix) for subject in info.state.subjects]
            if not info.state.subjects or len(found) >= info.total:
                return found

    def _subject(self, name: str) -> str:
        return f"{self._stream}.b.{name}"

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
        ours = self._new_config()
        is_whole = max(config.max_age, config.max_msgs, config.max_bytes, config.max_msgs_per_subject) <= 0
        kept = (config.subjects, config.retention, config.storage, config.discard, config.allow_direct)
        if not is_whole or kept != tuple(
            ours[name] for name in ("subjects", "retention", "storage", "discard", "allow_direct")
        ):
            msg = f"the stream {self._stream!r} does not keep all messages of its subjects for ever"
            raise InterfaceError(msg)

    def _new_config(self) -> dict[str, Any]:
        return {
            "name": self._stream,
            "subjects": [f"{self._stream}.b.>"],
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "num_replicas": self._replicas,
            "allow_direct": True,
        }

"""A few values by key, in a stream of their own that keeps the newest message of each subject."""

from typing import ClassVar

import msgspec

from .beside import Info, StreamBeside
from .errors import StreamAbsentError
from .reading import LogMessage, Pages
from .subjects import token


class _Purged(msgspec.Struct):
    success: bool = False


class Bucket(StreamBeside):
    """Values by key. The stream is made when the first value is put."""

    kept: ClassVar[int] = 1

    def get(self, key: str) -> tuple[int, bytes] | None:
        """The revision and the value of a key, None when it has none. From the leader: never stale."""
        found = self._last(self._key_subject(key))
        return None if found is None else (found.position, found.payload)

    def put(self, key: str, value: bytes, *, expected: int) -> int:
        """
        Set the value of a key whose revision is `expected`, 0 when it has none; the new revision.

        Raises:
            IntegrityError: The key has another revision; nothing was changed.
            InterfaceError: Something else has the name of the stream.
            OutcomeUnknownError: No answer; the value may be set.
        """
        return self._client.call(self._append, self._key_subject(key), value, expected)

    def items(self) -> list[tuple[int, bytes]]:
        """All revisions and values, oldest first."""
        try:
            return [(message.position, message.payload) for message in self._client.call(self._read)]
        except StreamAbsentError:
            return []

    def delete(self, key: str) -> None:
        """Forget a key; nothing happens when it has no value."""
        try:
            self._client.call(self._delete, self._key_subject(key))
        except StreamAbsentError:
            return

    def _key_subject(self, key: str) -> str:
        return self._subject(token(key))

    async def _read(self) -> list[LogMessage]:
        info = await self._client.api(f"STREAM.INFO.{self._stream}", None, Info, self._client.deadline())
        self._check(info.config)
        pages = Pages(self._client, self._stream, self._client.deadline(), after=0, until=info.state.last)
        found: list[LogMessage] = []
        while not pages.is_complete:
            found += await pages.read()
        return found

    async def _delete(self, subject: str) -> None:
        request = {"filter": subject}
        await self._client.api(f"STREAM.PURGE.{self._stream}", request, _Purged, self._client.deadline())

"""ObjectStore: short logs by name, one subject each, in a stream beside a log. Made when the first entry is written."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from .erase import WINDOW, erase_all
from .errors import StreamAbsentError
from .key_value import AuxiliaryStream
from .reading import LogMessage, Pages

_PAGE: Final = 8


class _State(msgspec.Struct):
    subjects: dict[str, int] = {}


class _Names(msgspec.Struct):
    state: _State
    total: int = 0


class ObjectEntry(NamedTuple):
    """An entry of an object and its position in the stream."""

    position: int
    payload: bytes


class ObjectStore(AuxiliaryStream):
    """Objects by name, each a sequence of entries."""

    def last(self, name: str) -> ObjectEntry | None:
        """Return the last entry of an object, None when it has none. From the leader: never stale."""
        found = self._last(self._subject(name))
        return None if found is None else ObjectEntry(found.position, found.payload)

    def add(self, name: str, payload: bytes, *, expected: int) -> int:
        """
        Append an entry after the one at `expected`, 0 for none, and return its position.

        Raises:
            IntegrityError: The last entry is another one; nothing was written.
            InterfaceError: Something else has the name of the stream.
            OutcomeUnknownError: No answer; the entry may be stored.
        """
        return self._append(self._subject(name), payload, expected)

    def read(self, name: str, *, after: int, until: int) -> Iterator[ObjectEntry]:
        """Return the entries above `after` up to `until`, in order, read page by page."""
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
                yield ObjectEntry(message.position, message.payload)
                if message.position == until:
                    return

    def _page(self, pages: Pages) -> list[LogMessage]:
        pages.renew(self._client.deadline())
        try:
            return pages.read(_PAGE)
        except StreamAbsentError:
            pages.is_complete = True
            return []

    def erase(self, name: str, *, until: int) -> None:
        """Overwrite and delete the entries up to a position; the one at `until` last."""
        positions = [entry.position for entry in self.read(name, after=0, until=until)]
        with self._client.erasing():
            for start in range(0, len(positions), WINDOW):
                window = [position for position in positions[start : start + WINDOW] if position != until]
                self._delete(window)
            self._delete([until])

    def remove(self, name: str, position: int) -> None:
        """Overwrite and delete one entry."""
        del name
        self._delete([position])

    def _delete(self, positions: list[int]) -> None:
        try:
            erase_all(self._client, self._stream, positions)
        except StreamAbsentError:
            return

    def names(self) -> list[str]:
        """Return the names that have entries."""
        try:
            return self._names()
        except StreamAbsentError:
            return []

    def _names(self) -> list[str]:
        prefix = self._subject("")
        found: list[str] = []
        while True:
            request = {"subjects_filter": prefix + ">", "offset": len(found)}
            info = self._client.api(f"STREAM.INFO.{self._stream}", request, _Names, self._client.deadline())
            found += [subject.removeprefix(prefix) for subject in info.state.subjects]
            if not info.state.subjects or len(found) >= info.total:
                return found

"""Events of which content was taken away: a stream beside that of the log, with the record that stands in for each."""

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from typing import Any, Final

from eventsourcing.persistence import InterfaceError

from .append import OutgoingMessage
from .auxiliary import AuxiliaryStream
from .client import JetStreamClient
from .erase import WINDOW, erase_all
from .errors import NotPermittedError, StreamAbsentError
from .reading import LogMessage, StreamPages, last_on_each
from .records import Records
from .stream import LOG_ID, StreamConfig, list_subjects, stream_info

REDACTED: Final = "-redacted"
"""The suffix of the name of the stream with the records of events of which content was taken away."""


def rewritten_place(log: str, subject: str) -> tuple[int, str] | None:
    """Return the position on a log that a subject here is about, and what follows the prefix in that there; None for others' subjects."""
    position, _, suffix = subject.removeprefix(f"{log}{REDACTED}.r.").partition(".")
    return (int(position), suffix) if position.isdecimal() else None


class RewrittenRecords(AuxiliaryStream):
    """
    Records in the place of messages that were deleted from a log. The last one on a subject counts:

        <log>-redacted.r.<position>.<what follows the prefix in the subject on the log>

    So the position is the one on the log, where nothing else is given it, and the server filters by stream and share.

    The list of positions is kept. Whoever finds a hole on the log asks first whether the list has changed: what was rewritten is
    here before it is gone there, so a hole that was seen before the list was made, and is not in it, was erased.

    `client` and `replicas`: as for `AuxiliaryStream`. `log_id`: its random id. A stream of another log is refused, since
    its records would fill holes of this one.
    """

    def __init__(self, client: JetStreamClient, log: str, *, log_id: str, replicas: int, records: Records) -> None:
        super().__init__(client, log + REDACTED, replicas=replicas)
        self._log, self._log_id, self._records = log, log_id, records
        self._lock = threading.Lock()
        self._refusal: NotPermittedError | None = None
        self._listed: tuple[str, int] = ("", 0)
        """When the stream was created whose positions these are, and its last sequence."""
        self._places: dict[int, str] = {}
        self._positions: list[int] = []
        self._of_subject: dict[str, list[int]] = {}

    def refresh(self) -> None:
        """Make the list anew if the stream has changed since. Raises `InterfaceError` when it is that of another log."""
        if self._refusal is not None:
            return
        with self._lock:
            try:
                info = stream_info(self._client, self._stream)
            except StreamAbsentError:
                self._list("", 0, ())
                return
            except NotPermittedError as error:
                # The login is of before there were redactions. Where there are some after all, events are missing for it.
                self._refusal = error
                return
            self._check(info.config)
            if self._listed != (info.created, info.state.last):
                self._list(info.created, info.state.last, list_subjects(self._client, self._stream, self._subject(">")))

    def _list(self, created: str, last: int, subjects: Sequence[str]) -> None:
        self._listed = created, last
        self._places = dict(filter(None, map(self._place, subjects)))
        self._positions = sorted(self._places)
        self._of_subject = {}
        for position in self._positions:
            self._of_subject.setdefault(self._places[position], []).append(position)

    def positions(self, after: int, until: int, subject: str | None) -> list[int]:
        """Return the listed positions above one and up to another one, of a subject on the log, which may have wildcards."""
        suffix = None if subject is None else subject.removeprefix(self._records.prefix)
        with self._lock:
            listed = self._positions
            if suffix is not None and "*" not in suffix:
                listed = self._of_subject.get(suffix, [])
            within = listed[bisect_right(listed, after) : bisect_right(listed, until)]
            if suffix is None or "*" not in suffix:
                return within
            wanted = suffix.split(".")
            return [position for position in within if _matches(self._places[position].split("."), wanted)]

    def read(self, positions: Sequence[int]) -> list[LogMessage]:
        """Return the messages in the place of these, as on the log, without those that were erased meanwhile."""
        messages: list[LogMessage] = []
        for start in range(0, len(positions), WINDOW):
            some = positions[start : start + WINDOW]
            # From the leader, one by one: a server that is behind would say that there is none.
            subjects = [self._subject(f"{position}.>") for position in some]
            for position, newest in zip(some, last_on_each(self._client, self._stream, subjects), strict=True):
                message = newest or self.last(position)
                if message is None:
                    self._forget(position)
                else:
                    messages.append(self.as_logged(message))
        return messages

    def last(self, position: int) -> LogMessage | None:
        """Return the message that stands in for that at a position, as it is stored."""
        return self._last(self._subject(f"{position}.>"))

    def as_logged(self, message: LogMessage) -> LogMessage:
        """Return a stored message as it would stand on the log."""
        place = self._place(message.subject)
        assert place is not None, "it was asked for by its position"
        position, suffix = place
        return LogMessage(position, self._records.prefix + suffix, message.headers, message.payload)

    def put(self, position: int, message: OutgoingMessage, *, expected: int) -> None:
        """
        Let a message stand in for that at a position, behind the one at sequence `expected`, 0 for none. It is on the disk then.

        Raises:
            IntegrityError: Another one is the last.
        """
        suffix = message.subject.removeprefix(self._records.prefix)
        sequence = self._append(
            self._subject(f"{position}.{suffix}"), message.payload, expected, headers=message.headers
        )
        # Or a power cut could take it, and leave the deletion of what it stands in for.
        self._client.sync_messages(self._stream)
        with self._lock:
            created, last = self._listed
            if sequence == last + 1 and created:
                self._listed = created, sequence
                if position not in self._places:
                    self._places[position] = suffix
                    insort(self._positions, position)
                    insort(self._of_subject.setdefault(suffix, []), position)

    def erase_older(self, position: int) -> None:
        """Overwrite and delete what stood in for a message before, up to the last one."""
        self._erase(self._sequences(position)[:-1])

    def erase(self, position: int) -> None:
        """Overwrite and delete all that stood in for a message."""
        self._erase(self._sequences(position))
        self._forget(position)

    def erase_subject(self, subject: str, *, first_position: int, before: int) -> None:
        """Overwrite and delete what stands in for messages of a subject on the log between two positions."""
        self.refresh()
        # Again, until there is none: one that was being written when they were listed may stand behind another one.
        while doomed := self.positions(first_position - 1, before - 1, subject):
            for position in doomed:
                self.erase(position)
            self.refresh()
        if self._refusal is not None:
            raise self._refusal

    def _sequences(self, position: int) -> list[int]:
        newest = self.last(position)
        if newest is None:
            return []
        client = self._client
        pages = StreamPages(
            client, self._stream, client.deadline(), after=0, subject=newest.subject, until=newest.position
        )
        sequences: list[int] = []
        while not pages.is_complete:
            sequences += [message.position for message in pages.read()]
        return sequences

    def _erase(self, sequences: Sequence[int]) -> None:
        with self._client.erasing():
            erase_all(self._client, self._stream, sequences)

    def _forget(self, position: int) -> None:
        with self._lock:
            suffix = self._places.pop(position, None)
            if suffix is not None:
                for listed in (self._positions, self._of_subject[suffix]):
                    del listed[bisect_left(listed, position)]

    def _place(self, subject: str) -> tuple[int, str] | None:
        return rewritten_place(self._log, subject)

    def _subject(self, name: str) -> str:
        return f"{self._stream}.r.{name}"

    def _check(self, config: StreamConfig) -> None:
        super()._check(config)
        if config.metadata.get(LOG_ID) != self._log_id:
            msg = (
                f"the stream {self._stream!r} has redacted events of another log, which was here before: delete it, unless you want "
                "that log back"
            )
            raise InterfaceError(msg)

    def _new_config(self) -> dict[str, Any]:
        return {**super()._new_config(), "metadata": {LOG_ID: self._log_id}}


def _matches(tokens: Sequence[str], wanted: Sequence[str]) -> bool:
    return len(tokens) == len(wanted) and all(want in {"*", token} for token, want in zip(tokens, wanted, strict=True))

"""
Quarantine: damaged files, and chats that lost events for good, set aside by a repair.

    quarantine/<time>/note.json      what and why
    quarantine/<time>/index/...      a damaged index, where that alone was damaged

A damaged log is kept with its whole directory, beside the repaired one; the note says where.

These notice that events were lost, each with its own evidence:

- before an embedded server starts, `infra/log/nats_server/preflight.py`: the checksums and seals of its block files;
- at every open, `refuse_if_regressed` in `infra/log/witness.py`: the last position that the witness or the index has seen;
- at every open and rebuild, `check_end` in `projections/projector.py`: positions without an event that no tombstone explains;
- at every event, `evolve` and `check_follows` in `domain/chat/state.py`: its version and the hash of the event before it;
- at every read for a user, `CheckedReading` in `infra/store/reading.py`: what stood at each position of the index;
- `Ledger.verify`, backups and `chatledger doctor`: all of these, over the whole log.
"""

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec import structs

from chatledger.domain.errors import (
    DECODE_ERRORS,
    CorruptStateError,
    NotFoundError,
    QuarantinedError,
    UnsupportedFormatError,
)
from chatledger.domain.wire import Value
from chatledger.projections.lmdb.environment import make_folder
from chatledger.projections.log.kinds import kind_of
from chatledger.projections.snapshot import Refuse

from ..log.envelope import clock_ms
from ..log.nats_server.directory import write_private

FOLDER: Final = "quarantine"
_NOTE: Final = "note.json"
_FORMAT: Final = 1


def stamp_now() -> str:
    """Return the present time to the second, for names: `20260131T235959Z`."""
    return f"{datetime.fromtimestamp(clock_ms() // 1000, UTC):%Y%m%dT%H%M%SZ}"


class QuarantinedStream(Value, frozen=True):
    """
    A chat, a thread of agents or a state of a graph that lost events.

    Args:
        id: The id of the chat; of others that of their stream on the log.
        kept: How many of its events are left: the first ones.
        seen: How many it had at least.
        given_up_at: When somebody accepted what is left, in ms; None as long as it is refused.
        restored_at: When a later repair brought back what was lost, in ms.
        kept_after: Of how many events behind the damage the content was kept.
    """

    id: str
    kept: int
    seen: int
    given_up_at: int | None = None
    restored_at: int | None = None
    kept_after: int = 0

    @property
    def is_refused(self) -> bool:
        """Whether it is neither given up nor restored."""
        return self.given_up_at is None and self.restored_at is None


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """
    The quarantine note of one repair.

    Args:
        made_at: When, in ms.
        why: In words.
        kept_as: Where the damaged files are now.
        log_id: The identity of the log before the repair, which backups of it have.
        streams: What lost events.
    """

    format: int = _FORMAT
    made_at: int
    why: str
    kept_as: str
    log_id: str = ""
    streams: tuple[QuarantinedStream, ...] = ()


class Quarantine:
    """The quarantine of a data directory."""

    def __init__(self, directory: Path) -> None:
        self.folder = directory / FOLDER

    def notes(self) -> dict[Path, Note]:
        """
        Return the notes, by folder, the oldest first.

        Raises:
            CorruptStateError: A note cannot be read, so nobody knows what is to be refused.
            UnsupportedFormatError: A newer chatledger wrote it.
        """
        return {path.parent: _read(path) for path in sorted(self.folder.glob(f"*/{_NOTE}"))}

    def add(self, stamp: str, note: Note) -> Path:
        """Note what is set aside; the folder in which it may lie, too."""
        folder = self.folder / stamp
        make_folder(folder)
        write_private(folder / _NOTE, msgspec.json.format(msgspec.json.encode(note)))
        return folder

    def copy_to(self, directory: Path) -> None:
        """Let another directory have the same notes."""
        for folder, note in self.notes().items():
            Quarantine(directory).add(folder.name, note)

    def refused(self) -> dict[str, tuple[Path, QuarantinedStream]]:
        """Return the streams that are neither given up nor restored, each with the folder of its note."""
        return {
            stream.id: (folder, stream)
            for folder, note in self.notes().items()
            for stream in note.streams
            if stream.is_refused
        }

    def lost(self) -> dict[str, QuarantinedStream]:
        """Return the streams that lost events and were not restored, given up or not."""
        return {
            stream.id: stream for note in self.notes().values() for stream in note.streams if stream.restored_at is None
        }

    def refusal(self) -> Refuse | None:
        """Return a function that raises `QuarantinedError` for these streams; None where there are none."""
        refused = self.refused()
        if not refused:
            return None
        words = {name: describe_quarantined(folder, stream) for name, (folder, stream) in refused.items()}
        return QuarantineRefusal(words, tuple(stream for _, stream in refused.values()))

    def give_up(self, stream: str, *, now: int) -> QuarantinedStream:
        """
        Accept what is left of a chat or a thread.

        Raises:
            NotFoundError: It is not in quarantine.
        """
        refused = self.refused().get(stream)
        if refused is None:
            msg = f"{stream!r} is not in quarantine; 'chatledger doctor' names what is"
            raise NotFoundError(msg)
        self._change(stream, given_up_at=now)
        return refused[1]

    def release(self, versions: Mapping[str, int], *, now: int) -> list[str]:
        """Serve again what has as many events as it had; `versions` says how many each stream has. Returns what that is."""
        whole = [name for name, (_, stream) in self.refused().items() if versions.get(name, 0) >= stream.seen]
        for name in whole:
            self._change(name, restored_at=now)
        return whole

    def _change(self, name: str, **changes: int) -> None:
        for folder, note in self.notes().items():
            streams = tuple(
                structs.replace(stream, **changes) if stream.id == name and stream.is_refused else stream
                for stream in note.streams
            )
            if streams != note.streams:
                self.add(folder.name, structs.replace(note, streams=streams))

    def take_in(self, files: Path, stamp: str, note: Note) -> Path:
        """Move damaged files into it; where they are then. Killed before the end, they are where they were, or there."""
        target = self.folder / stamp / files.name
        folder = self.add(stamp, structs.replace(note, kept_as=str(target)))
        return Path(shutil.move(files, folder))


class QuarantineRefusal:
    """Refuses streams, with what is to be said of each."""

    def __init__(self, words: Mapping[str, str], streams: tuple[QuarantinedStream, ...]) -> None:
        self._words, self.streams = words, streams

    def __call__(self, stream: str) -> None:
        """Raises `QuarantinedError` if it is one of them."""
        words = self._words.get(stream)
        if words is not None:
            raise QuarantinedError(words, chat_id=stream)


def describe_quarantined(folder: Path, stream: QuarantinedStream) -> str:
    """Return the message about a stream that is refused."""
    after = f", with the content of {stream.kept_after:,} behind the damage" if stream.kept_after else ""
    return (
        f"{kind_of(stream.id).describe(stream.id)} lost events: {stream.kept:,} of at least {stream.seen:,} are left{after}, see {folder}. Nothing of it is shown or added "
        f"until they are restored ('chatledger doctor --repair --backup FOLDER') or given up ('chatledger doctor --give-up {stream.id}')"
    )


def _read(path: Path) -> Note:
    try:
        note = msgspec.json.decode(path.read_bytes(), type=Note)
    except (OSError, *DECODE_ERRORS) as error:
        msg = f"{path} cannot be read, which says what lost events: {error}. Restore it, or remove its folder to serve all that is left"
        raise CorruptStateError(msg) from error
    if note.format > _FORMAT:
        msg = f"{path} has format {note.format}, this version reads {_FORMAT}; upgrade chatledger"
        raise UnsupportedFormatError(msg)
    return note

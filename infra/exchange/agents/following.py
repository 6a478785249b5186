"""
Following files of transcripts: what is new in a file goes into the chat of its session, with the place up to which it was read.

Place and messages are one commit, so each line is kept exactly once, whatever ends the process. A line counts when its line break is
there. A file that was not only added to is compared with what is kept: what both begin with stays, what follows is a new branch.
Nothing that is kept is removed; messages that the file has no more are stale.
"""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from chatledger.domain.chat.lines import (
    BOOKKEEPING,
    Placing,
    TranscriptLine,
    bytes_of,
    gather,
    title_in,
    value_of,
    values_in,
)
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.forms.items import What
from chatledger.domain.forms.plain import object_at, parsed
from chatledger.domain.forms.reading import items_of
from chatledger.domain.values import Chat, Message

from ...ledger.history import Commit, History, MessageHistory
from ...ledger.ledger import Ledger
from .agent import Agent, Rows, SessionFile

PLACE: Final = "place"
"""The key in the metadata of a chat of the place up to which its file was read."""
_PIECE_BYTES: Final = 1024 * 1024
"""So much of a file is one commit."""
_MOST_UNSAID_BYTES: Final = 4 * 1024 * 1024
_MAX_LINE_BYTES: Final = 64 * 1024 * 1024
_TAIL_BYTES: Final = 64
_BESIDE: Final = "chatledger_file"
"""The key of the name of a file, in a value that keeps its text beside the lines."""
_FIRST: Final = ("parent", "forked_from", "forked_at")
"""Keys that only the first line which has them tells: a fork may copy those of what it was forked from."""


class FilePlace(msgspec.Struct, frozen=True):
    """
    The place up to which a file was read.

    Args:
        path: The file.
        size: Its size in bytes then, packed if it is packed; 0 where it was not read to its end.
        mtime: When it was changed, in ns since the epoch; 0 likewise.
        offset: Number of bytes that were read.
        lines: Number of lines in them.
        tail: Number of the last of these bytes that the digest is of.
        digest: Tells whether the file still has them.
    """

    path: str
    size: int
    mtime: int
    offset: int = 0
    lines: int = 0
    tail: int = 0
    digest: str = ""

    def after(self, lines: int, content: bytes) -> "FilePlace":
        """Return the place after further lines."""
        tail = content[-_TAIL_BYTES:]
        at, count = self.offset + len(content), self.lines + lines
        return FilePlace(self.path, self.size, self.mtime, at, count, len(tail), _digest(tail))


class PlaceKept(msgspec.Struct):
    """Metadata of a chat that keeps a file, as far as they say up to where."""

    place: FilePlace


class Kept(NamedTuple):
    """
    What came of looking at a file.

    Args:
        is_new: Whether its chat was made.
        lines: Number of lines that were new.
        is_waiting: Whether lines at its end say nothing, and wait for the turn that they travel with.
        problems: Lines that are none, with their numbers: what a client wrote while it was killed.
        place: The place up to which the file is read now; None where that is not known.
    """

    is_new: bool = False
    lines: int = 0
    is_waiting: bool = False
    problems: Sequence[str] = ()
    place: FilePlace | None = None


def place_of(chat: Chat) -> FilePlace | None:
    """Return the place up to which the file of a chat was read."""
    stored = object_at(chat.metadata, PLACE)
    return msgspec.convert(dict(stored), FilePlace) if stored else None


def stamp_of(path: Path) -> tuple[int, int]:
    """
    Return the size of a file and the time of its last change in ns; of a database, with those of its log of writes.

    Raises:
        OSError: There is no such file.
    """
    stat = os.stat(path)  # noqa: PTH116 - of tens of thousands of files each minute
    size, changed = stat.st_size, stat.st_mtime_ns
    if str(path).endswith(".db"):
        with contextlib.suppress(OSError):
            stat = path.with_name(f"{path.name}-wal").stat()
            size, changed = size + stat.st_size, max(changed, stat.st_mtime_ns)
    return size, changed


def place_now(file: SessionFile, stamp: tuple[int, int]) -> FilePlace:
    """Return the place of a file that was not read, which has its stamp, or that of its session."""
    return FilePlace(str(file.path), *(stamp if file.changed is None else (0, file.changed)))


def is_seen(before: FilePlace, now: FilePlace) -> bool:
    """Whether a file is as it was when it was read to its end."""
    return (before.path, before.size, before.mtime) == (now.path, now.size, now.mtime)


class _Stale(NamedTuple):
    """Messages that a file has no more, and the one before them."""

    after: str | None = None
    ids: AbstractSet[str] = frozenset()


class FileKeeping(NamedTuple):
    """
    What follows files of one agent into a ledger.

    Args:
        ledger: The ledger.
        agent: Whose files they are.
        user: The owner of chats that are made.
        redact: Takes out of the text of a line what is not to be kept.
    """

    ledger: Ledger
    agent: Agent
    user: str
    redact: Callable[[str], str] | None = None

    def keep(self, file: SessionFile, before: FilePlace | None, *, at_end: bool) -> Kept:
        """
        Keep what is new in a file.

        Args:
            file: The file.
            before: The place up to which it was read; None where it was not.
            at_end: Whether lines at the end that say nothing are kept now; else they wait for the next turn.

        Raises:
            OSError: The file cannot be read.
            InvalidValueError: A line is too large, or another file has the session, and they differ.
        """
        now = place_now(file, stamp_of(file.path))
        if before is not None and is_seen(before, now):
            return Kept(place=before)
        if self.agent.rows is not None:
            return self._keep_rows(self.agent.rows, file, (before, now), at_end=at_end)
        with opened(file.path) as stream:
            at, stale = before or now, _Stale()
            if before is not None and not _fits(stream, before):
                at, stale = self._compared(file, stream)
                is_copy = before.path != now.path and Path(before.path).exists()
                if is_copy and stale.ids and stream.read(1):
                    msg = f"{now.path} and {before.path} are of one session, and differ; only the latter is kept"
                    raise InvalidValueError(msg)
                stale = _Stale() if is_copy else stale
            stream.seek(at.offset)
            return self._read(file, stream, (before, at, now), stale, at_end=at_end)

    def _compared(self, file: SessionFile, stream: IO[bytes]) -> tuple[FilePlace, _Stale]:
        """The place up to which a file begins with what is kept of it, and what else is kept."""
        stored = MessageHistory(self.ledger, file.chat_id).read(kept_messages) or []
        at, after = FilePlace("", 0, 0), None
        stream.seek(0)
        for number, message in enumerate(stored):
            stored_values = _own_values(message)
            raw = [stream.readline() for _ in stored_values]
            values = [self._value(line[:-1]) for line in raw if line.endswith(b"\n")]
            if [*map(bytes_of, values)] != [*map(bytes_of, stored_values)]:
                stream.seek(at.offset)
                return at, _Stale(after, {later.id for later in stored[number:]})
            after = message.id
            at = at.after(len(raw), b"".join(raw))
        return at, _Stale()

    def _value(self, line: bytes) -> Any:
        """The value that keeps a line, without what is not to be kept."""
        if self.redact is not None:
            line = self.redact(line.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        return value_of(line)

    def _read(
        self,
        file: SessionFile,
        stream: IO[bytes],
        places: tuple[FilePlace | None, FilePlace, FilePlace],
        stale: _Stale,
        *,
        at_end: bool,
    ) -> Kept:
        """Read from a place to the end, one commit for each piece. The places: as stored, where reading begins, and of the file now."""
        stored, at, now = places
        first, is_new = at.lines, stored is None
        waiting: list[bytes] = []
        problems: list[str] = []
        for raw, is_last in _pieces(stream, file.path):
            pending = [*waiting, *raw]
            lines = [self.agent.line_of(self._value(line), f"#{at.lines + n}") for n, line in enumerate(pending, 1)]
            problems += [
                f"{file.path}:{at.lines + n}: no JSON; kept as text"
                for n, line in enumerate(lines[len(waiting) :], 1 + len(waiting))
                if isinstance(line.value, str) and line.value.strip() and not parsed(line.value)[1]
            ]
            if self.agent.settled is not None:
                lines = self.agent.settled(lines, partial(self._is_kept, file.chat_id), is_ended=is_last and at_end)
            messages, waiting = gather(lines), []
            if messages and not messages[-1][-1].name and not (is_last and at_end):
                unsaid = pending[-len(messages[-1]) :]
                if sum(map(len, unsaid)) < _MOST_UNSAID_BYTES:
                    waiting = unsaid
                    del messages[-1], pending[-len(unsaid) :]
            content = b"".join(line + b"\n" for line in pending)
            done = at.after(len(pending), content) if content else at
            is_read = is_last and not waiting
            size, mtime = (now.size, now.mtime) if is_read else (0, 0)
            done = msgspec.structs.replace(done, path=now.path, size=size, mtime=mtime)
            # A copy of what is kept is not followed; a file that was moved or touched is.
            is_own = stored is not None and (stored.path == now.path or not Path(stored.path).exists())
            messages = [self._with_files(file, message) for message in messages]
            if messages or stale.ids or (is_own and is_read and done != stored):
                if not self._commit(file, stored, done, messages, stale):
                    break
                stored, stale = done, _Stale()
            at = done
        return Kept(is_new and stored is not None, at.lines - first, bool(waiting), problems, stored)

    def _keep_rows(
        self, read: Rows, file: SessionFile, places: tuple[FilePlace | None, FilePlace], *, at_end: bool
    ) -> Kept:
        """Keep rows that are new or changed. One that says what it said travels with the next turn; a kept end that changed is replaced."""
        before, now = places
        rows, is_whole = read(file, at_end=at_end)
        stored, chain = self.history(file.chat_id)
        versions = {line.id: line for message in stored for line in self.agent.lines_in(message)}
        turns = [message for message in chain if message.name != BOOKKEEPING]
        head = self.agent.lines_in(turns[-1])[-1].id if turns else None
        lines: list[TranscriptLine] = []
        above: str | None = None
        for number, row in enumerate(rows, 1):
            line = self.agent.line_of(self._value(row), f"#{number}")
            version = versions.get(line.id)
            if version is None:
                lines.append(line if above == head else line._replace(parent=above))
                head = line.id if line.name else head
            elif bytes_of(version.value) != bytes_of(line.value):
                is_replaced = line.id == head and self._whats(line) != self._whats(version)
                lines.append(line._replace(instead=line.id) if is_replaced else line._replace(name="", title=None))
            above = line.id if line.name else above
        messages = gather(lines)
        is_waiting = bool(messages) and not messages[-1][-1].name and not at_end
        if is_waiting:
            del messages[-1]
        place = now if is_whole and not is_waiting else FilePlace(now.path, 0, 0)
        if not messages and (place == before or place is not now):
            return Kept(place=before, is_waiting=not is_whole or is_waiting)
        if not self._commit(file, before, place, messages, _Stale()):
            return Kept()
        return Kept(before is None, sum(map(len, messages)), not is_whole or is_waiting, (), place)

    def history(self, chat_id: str) -> tuple[list[Message], list[Message]]:
        """Return the messages that a chat keeps of its session, and those of its active branch."""
        history = MessageHistory(self.ledger, chat_id)
        return history.read(lambda history: (kept_messages(history), history.chain())) or ([], [])

    def _whats(self, line: TranscriptLine) -> list[What]:
        return [item.what for item in items_of(self.agent.form, line.value)]

    def _is_kept(self, chat_id: str, line_id: str) -> bool:
        return self.ledger.get_message(f"{chat_id}:{line_id}") is not None

    def _with_files(self, file: SessionFile, lines: list[TranscriptLine]) -> list[TranscriptLine]:
        """Lines with what stands beside the transcript and is deleted with it, each before the line that names it."""
        whole = list[TranscriptLine]()
        for line in lines:
            path = self.agent.beside(line.value)
            # A transcript may name any file: only those of its own session are read.
            if path is not None and (rest := file.path.with_suffix("") / "tool-results" / Path(path).name).is_file():
                text = rest.read_text(encoding="utf-8", errors="replace")
                text = text if self.redact is None else self.redact(text)
                whole.append(
                    line._replace(value={_BESIDE: Path(path).name, "text": text}, id=f"{line.id}:file", name="")
                )
            whole.append(line)
        return whole

    def _commit(
        self,
        file: SessionFile,
        stored: FilePlace | None,
        done: FilePlace,
        messages: Sequence[Sequence[TranscriptLine]],
        stale: _Stale,
    ) -> bool | None:
        """Write messages and the place after them; nothing where somebody else, who reads the file too, was faster."""
        lines = [line for message in messages for line in message]
        described: dict[str, Any] = {"agent": self.agent.name, **file.metadata}
        described |= {"redacted": True} if self.redact is not None else {}
        for line in lines:
            told = self.agent.described(line.value)
            described |= {key: text for key, text in told.items() if key not in _FIRST or key not in described}
        described[PLACE] = msgspec.to_builtins(done)

        def append(commit: Commit) -> bool:
            profile = commit.state.profile
            metadata = object_at(None if profile is None else profile.metadata)
            if metadata.get(PLACE) != (None if stored is None else msgspec.to_builtins(stored)):
                return False
            title = file.title or title_in(lines, has_title=profile is not None and profile.title is not None)
            began = next((line.created_at for line in lines if line.created_at is not None), None)
            is_new = commit.begin(title=title, metadata=described, created_at=began)
            if stale.ids:
                commit.create_branch(stale.after)
            repeated = Placing(commit, self.agent.form, self.agent.lines_in).append(messages, stale=stale.ids)
            commit.annotate(stale.ids - repeated, stale=True)
            commit.annotate(repeated, stale=False)
            if not is_new:
                first = {key: metadata[key] for key in _FIRST if key in metadata}
                commit.describe(metadata=described | first, title=UNSET if title is None else title)
            return True

        return MessageHistory(self.ledger, file.chat_id, owner=self.user).commit(append)


def kept_messages(history: History) -> list[Message]:
    """Return the messages of a chat that its file has, in the order of their lines."""
    return [
        message
        for message in history.state.all_messages()
        if message.copied_from is None and not (message.annotation is not None and message.annotation.stale)
    ]


def _own_values(message: Message) -> list[Any]:
    """The values of the lines of a message, without files that stood beside."""
    return [value for value in values_in(message.data) if _BESIDE not in object_at(value)]


def exported(ledger: Ledger, chat: Chat, agent: Agent) -> bytes:
    """Return the lines that a chat keeps of the file of its session, byte for byte; of a database, what the agent itself exports."""
    stored, chain = FileKeeping(ledger, agent, "").history(chat.id)
    if agent.exported is not None:
        newest = {line.id: line.value for message in stored for line in agent.lines_in(message)}
        own = {line.id for message in chain for line in agent.lines_in(message)}
        return agent.exported(chat.metadata or {}, [value for line_id, value in newest.items() if line_id in own])
    return b"".join(bytes_of(value) + b"\n" for message in stored for value in _own_values(message))


@contextlib.contextmanager
def opened(path: Path) -> Generator[IO[bytes]]:
    """
    Yield a transcript that is open for reading, also where it is packed.

    Raises:
        OSError: It cannot be read, or is damaged.
    """
    if path.suffix != ".zst":
        with path.open("rb") as stream:
            yield stream
        return
    library: Any = import_module("compression.zstd" if sys.version_info >= (3, 14) else "zstandard")
    try:
        with io.BufferedReader(library.open(path, "rb")) as packed:
            yield packed
    except (library.ZstdError, EOFError) as error:
        msg = f"it is damaged: {error}"
        raise OSError(msg) from error


def _fits(stream: IO[bytes], place: FilePlace) -> bool:
    """Whether a file still has what was read last before a place."""
    stream.seek(place.offset - place.tail)
    return _digest(stream.read(place.tail)) == place.digest


def _digest(tail: bytes) -> str:
    return blake2b(tail, digest_size=8).hexdigest()


def _pieces(stream: IO[bytes], path: Path) -> Iterator[tuple[list[bytes], bool]]:
    """The whole lines of a file without their breaks, in pieces, and whether a piece is the last; a line that has no end yet waits."""
    rest = b""
    while True:
        content = stream.read(_PIECE_BYTES)
        whole, line_break, begun = content.rpartition(b"\n")
        lines = (rest + whole).split(b"\n") if line_break else []
        rest = begun if line_break else rest + begun
        if len(rest) > _MAX_LINE_BYTES:
            msg = f"{path} has a line of more than {_MAX_LINE_BYTES:,} bytes, which is too large to be kept"
            raise InvalidValueError(msg)
        is_last = len(content) < _PIECE_BYTES
        if lines or is_last:
            yield lines, is_last
        if is_last:
            return

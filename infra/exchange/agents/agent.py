"""A coding agent: where it keeps its transcripts, how their lines are read, and how a conversation is written for it."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from chatledger.domain.chat.lines import TranscriptLine
from chatledger.domain.forms.items import Dropped
from chatledger.domain.forms.reading import text_of
from chatledger.domain.values import Message

_MAX_TITLE: Final = 100


class SessionFile(NamedTuple):
    """
    A file of an agent that holds a transcript.

    Args:
        path: The file.
        chat_id: The id of the chat that keeps it.
        metadata: What its place says of it, for the metadata of the chat: `session`, and `parent` of a subagent.
        changed: When the session was changed, in ns since the epoch, where the file has several.
        title: The title that its agent gave it beside its lines.
    """

    path: Path
    chat_id: str
    metadata: Mapping[str, Any]
    changed: int | None = None
    title: str | None = None


class WrittenSession(NamedTuple):
    """
    A conversation as a file that an agent goes on from.

    Args:
        content: The file.
        dropped: What the conversation says and the file does not.
        name: The name of the file; one with folders belongs below the first of the agent's roots, which takes no other.
        command: The arguments of the command that goes on from it; `{file}` stands for its path.
        prepare: Those of a command that is run before it, if there is one.
    """

    content: bytes
    dropped: Sequence[Dropped]
    name: str
    command: Sequence[str]
    prepare: Sequence[str] = ()


class NewSession(NamedTuple):
    """A session to be written: its new id, the folder that it works in, when it is written, and where the agent keeps its own."""

    id: str
    cwd: str
    at: datetime
    root: Path


class Settle(Protocol):
    """The signature of `Agent.settled`."""

    def __call__(
        self, lines: Sequence[TranscriptLine], is_kept: Callable[[str], bool], *, is_ended: bool
    ) -> list[TranscriptLine]:
        """Return as many lines."""
        ...


class Rows(Protocol):
    """The signature of `Agent.rows`."""

    def __call__(self, file: SessionFile, *, at_end: bool) -> tuple[list[bytes], bool]:
        """Return lines, oldest first; raise `OSError` where the database cannot be read."""
        ...


class Agent(NamedTuple):
    """
    A coding agent.

    Args:
        name: What it is called, such as `codex`.
        form: The form of its messages.
        roots: The folders in which it keeps transcripts, or its database, by the environment and the user's home; they may be absent.
        sessions: The transcripts below such a folder, or in a database.
        line_of: Reads a line: its value, and an id for it where it has none.
        lines_in: Reads the lines of a message that a chat keeps.
        described: Metadata of the chat that a line tells.
        written: A conversation for it, oldest message first.
        beside: The path of a file that has the rest of a line, such as an output that was too long for it.
        settled: Lines as they stand after all of them, where a later line may change an earlier one. It is told which ids are kept
            already, and whether the file ends here; a line that may change says nothing before that.
        rows: The messages of a session in a database, as lines, and whether they are all: without `at_end`, those up to the first that
            is incomplete.
        exported: The file for a session of a database, by the metadata of its chat and the newest versions of its messages.
    """

    name: str
    form: str
    roots: Callable[[Mapping[str, str], Path], list[Path]]
    sessions: Callable[[Path], Iterator[SessionFile]]
    line_of: Callable[[Any, str], TranscriptLine]
    lines_in: Callable[[Message], list[TranscriptLine]]
    described: Callable[[Any], dict[str, str]]
    written: Callable[[Sequence[Message], NewSession], WrittenSession]
    beside: Callable[[Any], str | None] = lambda _: None
    settled: Settle | None = None
    rows: Rows | None = None
    exported: Callable[[Mapping[str, Any], Sequence[Any]], bytes] | None = None


def names_in(folder: str | Path) -> tuple[list[str], set[str]]:
    """Return the names in a folder, sorted, and those of folders among them; none where it cannot be read."""
    names, folders = list[str](), set[str]()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            names.append(entry.name)
            if entry.is_dir():
                folders.add(entry.name)
    return sorted(names), folders


def time_of(text: str | None) -> int | None:
    """Return a time of a line in ms since the epoch; None where it is none."""
    try:
        return None if text is None else int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


def time_text(at_ms: float) -> str:
    """Return a time in ms since the epoch as JavaScript writes it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def title_of(text: str | None) -> str | None:
    """Return a text as the title of a chat: one line, cut; None where nothing is left."""
    if text is None:
        return None
    readable = text.encode(errors="ignore").decode()
    return " ".join(readable.replace("\0", "").split())[:_MAX_TITLE] or None


def prompt_title(form: str, value: Any) -> str | None:
    """Return the title that a prompt makes."""
    return title_of(text_of(form, [value]))

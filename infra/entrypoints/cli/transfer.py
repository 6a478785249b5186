"""`import` and `export`: whole conversations in and out."""

import contextlib
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import IO, Final

import click
import msgspec
from rich.text import Text

from chatledger.domain.chat.interchange import ImportedChat, ImportResult, Problem
from chatledger.domain.draw.outline import flat
from chatledger.domain.errors import (
    AccessDeniedError,
    AlreadyExistsError,
    ChainIntegrityError,
    ChatledgerError,
    ConflictError,
    InvalidValueError,
    LogRegressedError,
    NotFoundError,
    UnsupportedFormatError,
    WrongChatError,
)
from chatledger.domain.limits import MAX_UNPACKED_BYTES

from ...exchange.jsonl import write_chats
from ...exchange.langgraph_sqlite import FORMAT as LANGGRAPH
from ...exchange.langgraph_sqlite import import_saver_file, is_saver_file
from ...exchange.readers import FORMATS, read_chats
from ...ledger.ledger import Ledger
from .lookup import require_chat
from .options import Settings, WholeNumber, ledger_at, location_option
from .output import console, count, print_error, print_text, pulse

_MIB: Final = 1024 * 1024
_NOBODY: Final = {"", *FORMATS}
"""The owners that readers give to chats of files that name none."""
_ABOUT_ONE_CHAT: Final = (
    AccessDeniedError,
    AlreadyExistsError,
    ChainIntegrityError,
    ConflictError,
    InvalidValueError,
    NotFoundError,
    WrongChatError,
)


_ALSO: Final[tuple[tuple[str, str, str | None, str], ...]] = (
    ("heads_moved", "branch", "branches", "moved on"),
    ("checkpoints_set", "checkpoint", None, "set"),
    ("runs_added", "run", None, "recorded"),
    ("messages_annotated", "message", None, "annotated"),
)
"""The counts of an `ImportResult` that a summary names when there is something to count."""


class _Import:
    """An import: its options, and the counts so far."""

    def __init__(self, file_format: str | None, user_id: str | None, *, strict: bool, max_unpacked_bytes: int) -> None:
        self._format, self._user_id, self._strict = file_format, user_id, strict
        self._max_unpacked_bytes = max_unpacked_bytes
        self.counts = Counter[str]()

    @property
    def chats(self) -> int:
        """The number of chats that were imported, or were there before."""
        return self.counts["new"] + self.counts["changed"] + self.counts["unchanged"]

    def is_readable(self, path: Path) -> bool:
        """Return whether a file is there and of a known format, before a ledger is made for nothing."""
        with self._leaving_out(InvalidValueError):
            if not self._is_of_saver(path):
                self._read(path, lambda _: None)
            return True
        return False

    def take(self, ledger: Ledger, path: Path, say: Callable[[str], None]) -> None:
        """Take in the content of one file. Errors that are about one chat, or the file, stop the rest only if strict."""
        say(f"reading {path.name}")
        if self._is_of_saver(path):
            with self._leaving_out(InvalidValueError):
                found = import_saver_file(ledger, path)
                self.counts.update(threads=found.threads, agent_checkpoints=found.checkpoints, known=found.known)
            return
        chats = self._read(path, self._report, strict=self._strict)
        with self._leaving_out((UnsupportedFormatError, InvalidValueError)):
            for chat in chats:
                with self._leaving_out(_ABOUT_ONE_CHAT, f"chat {chat.id!r} is left out: "):
                    self._count(ledger.import_chat(self._owned(chat)))
                messages = count(self.counts["messages_added"], "new message")
                say(f"importing {path.name}: {count(self.chats, 'chat')}, {messages}")

    def _read(self, path: Path, report: Callable[[Problem], None], *, strict: bool = False) -> Iterator[ImportedChat]:
        limit = self._max_unpacked_bytes
        return read_chats(path, format=self._format, strict=strict, on_problem=report, max_unpacked_bytes=limit)

    def _is_of_saver(self, path: Path) -> bool:
        return self._format == LANGGRAPH or (self._format is None and is_saver_file(path))

    @contextlib.contextmanager
    def _leaving_out(
        self, errors: type[ChatledgerError] | tuple[type[ChatledgerError], ...], what: str = ""
    ) -> Generator[None]:
        """Report errors that are about one chat or file, and go on; if strict, raise them."""
        try:
            yield
        except LogRegressedError:
            raise
        except errors as error:
            if self._strict:
                raise
            self.counts["failures"] += 1
            print_error(f"{what}{error}")

    def _report(self, problem: Problem) -> None:
        self.counts["problems"] += 1
        console(stderr=True).print(Text.assemble(("warning: ", "yellow"), flat(str(problem))), soft_wrap=True)

    def _owned(self, chat: ImportedChat) -> ImportedChat:
        if self._user_id is None or chat.user_id not in _NOBODY:
            return chat
        return msgspec.structs.replace(chat, user_id=self._user_id)

    def _count(self, result: ImportResult) -> None:
        is_unchanged = result == ImportResult(chat_id=result.chat_id)
        self.counts["new" if result.is_new else "unchanged" if is_unchanged else "changed"] += 1
        for name in ("messages_added", "branches_added", *(also[0] for also in _ALSO)):
            self.counts[name] += getattr(result, name)

    def summary(self) -> Iterator[str]:
        """Return the closing message, line by line."""
        found, chats = self.counts, count(self.chats, "chat")
        if found["threads"]:
            read = f"Read {count(found['threads'], 'thread')} of agents"
            yield f"{read}: {count(found['agent_checkpoints'], 'checkpoint')} added, {found['known']:,} here already."
        if self.chats and found["unchanged"] == self.chats:
            yield f"Nothing changed: {chats} read, all here already."
        elif self.chats or not found["threads"]:
            numbers = ", ".join(f"{found[name]:,} {name}" for name in ("new", "changed", "unchanged"))
            yield f"Imported {chats}: {numbers}."
            messages, branches = found["messages_added"], found["branches_added"]
            also = (f", {count(found[name], one, many)} {verb}" for name, one, many, verb in _ALSO if found[name])
            yield f"{count(messages, 'message')}, {count(branches, 'branch', 'branches')} added{''.join(also)}."
        if found["problems"]:
            yield f"{count(found['problems'], 'problem')} in the files, worked around; see the warnings."
        if found["failures"]:
            yield f"{count(found['failures'], 'file or chat', 'files or chats')} left out; see the errors."


@click.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format", "file_format", type=click.Choice((*FORMATS, LANGGRAPH)), help="The format; found out by default."
)
@click.option("--strict", is_flag=True, help="Stop at the first problem.")
@click.option("--user", "user_id", metavar="ID", help="The owner of chats whose file names none.")
@click.option(
    "--max-unpacked",
    "max_unpacked_mib",
    type=WholeNumber(1),
    metavar="MIB",
    default=MAX_UNPACKED_BYTES // _MIB,
    show_default=True,
    help="How large a .gz or .zip may become, in MiB.",
)
@click.option("--create", is_flag=True, help="On a server: make the ledger's stream, if this ledger is new.")
@location_option()
@click.pass_obj
def import_command(
    settings: Settings,
    *,
    files: tuple[Path, ...],
    file_format: str | None,
    strict: bool,
    user_id: str | None,
    max_unpacked_mib: int,
    create: bool,
) -> int:
    """
    Take conversations in from files, with all their branches.

    Reads OpenAssistant files (oasst), ChatGPT exports (chatgpt), SQLite files of Deep Agents (deepagents) and what
    'chatledger export' writes (chatledger), also as .gz; and threads of agents from files of LangGraph's SqliteSaver
    (langgraph). Doing it again changes nothing: what is here stays, what is new
    is added.

    A broken record is reported with its line and left out; a message whose parent is missing becomes a root. With
    --strict the import ends there; chats before it stay.
    """
    run = _Import(file_format, user_id, strict=strict, max_unpacked_bytes=max_unpacked_mib * _MIB)
    readable = [path for path in files if run.is_readable(path)]
    if readable:
        with ledger_at(settings, create=True, create_stream=create) as ledger, pulse("opening the ledger") as say:
            for path in readable:
                run.take(ledger, path, say)
    if not (run.chats or run.counts["threads"]) and run.counts["failures"]:
        return 1
    for line in run.summary():
        print_text(line)
    if run.counts["new"] and sys.stdout.isatty():
        print_text("Look at them with 'chatledger chats' and 'chatledger show CHAT'.", "dim")
    return 1 if run.counts["failures"] else 0


@click.command("export")
@click.argument("chat_ids", metavar="[CHAT]...", nargs=-1)
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Where to; stdout by default.")
@location_option()
@click.pass_obj
def export_command(settings: Settings, *, chat_ids: tuple[str, ...], output: Path | None) -> None:
    """
    Write chats as JSON lines, all when none is named.

    'chatledger import' takes them in as they were, here or elsewhere; only the time of the last change is then its own.
    """
    with ledger_at(settings) as ledger:
        for chat_id in chat_ids:
            require_chat(ledger, chat_id)
        ids = list(dict.fromkeys(chat_ids)) or [chat.id for chat in reversed(ledger.list_chats())]
        chats = map(ledger.export_chat, ids)
        if output is None:
            write_chats(sys.stdout.buffer, chats)
            return
        with _replacing(output) as stream:
            written = write_chats(stream, chats)
    print_text(f"Wrote {count(written, 'chat')} to {output}.")


@contextlib.contextmanager
def _replacing(path: Path) -> Generator[IO[bytes]]:
    """A file that takes the place of `path` when it is whole, and leaves nothing behind otherwise."""
    try:
        if path.exists() and not path.is_file():
            # A device or a pipe, e.g. /dev/stdout; a directory is refused here.
            with path.open("wb") as stream:
                yield stream
            return
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.", delete=False) as stream:
            part = Path(stream.name)
            try:
                yield stream
                stream.flush()
                part.chmod(0o600)
                part.replace(path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
    except BrokenPipeError:
        raise
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror or error}"
        raise ChatledgerError(msg) from error

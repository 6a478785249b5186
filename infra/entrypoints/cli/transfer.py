"""`import` and `export`: whole conversations in and out."""

import contextlib
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
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
from ...exchange.readers import FORMATS, detect_format, read_chats
from ...ledger.ledger import Ledger
from .lookup import require_chat
from .options import Settings, ledger_at, location_option
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


class Tally:
    """The counts of an import so far."""

    def __init__(self) -> None:
        self.new = self.changed = self.unchanged = 0
        self.messages = self.branches = self.heads = self.checkpoints = self.runs = self.annotated = 0
        self.problems = self.failures = 0
        self.threads = self.agent_checkpoints = self.known_checkpoints = 0

    @property
    def chats(self) -> int:
        """The number of chats that were imported, or were there before."""
        return self.new + self.changed + self.unchanged

    def add(self, result: ImportResult) -> None:
        """Count one chat."""
        if result.is_new:
            self.new += 1
        elif result != ImportResult(chat_id=result.chat_id):
            self.changed += 1
        else:
            self.unchanged += 1
        self.messages += result.messages_added
        self.branches += result.branches_added
        self.heads += result.heads_moved
        self.checkpoints += result.checkpoints_set
        self.runs += result.runs_added
        self.annotated += result.messages_annotated

    def summary(self) -> list[str]:
        """Return the closing message of an import."""
        lines: list[str] = []
        if self.threads:
            lines.append(
                f"Read {count(self.threads, 'thread')} of agents: {count(self.agent_checkpoints, 'checkpoint')} added, "
                f"{self.known_checkpoints:,} here already."
            )
        if not self.chats and self.threads:
            pass
        elif self.chats and self.unchanged == self.chats:
            lines.append(f"Nothing changed: {count(self.chats, 'chat')} read, all here already.")
        else:
            lines.append(
                f"Imported {count(self.chats, 'chat')}: {self.new:,} new, {self.changed:,} changed, "
                f"{self.unchanged:,} unchanged."
            )
            added = f"{count(self.messages, 'message')}, {count(self.branches, 'branch', 'branches')} added"
            moved = f", {count(self.heads, 'branch', 'branches')} moved on" if self.heads else ""
            marked = f", {count(self.checkpoints, 'checkpoint')} set" if self.checkpoints else ""
            ran = f", {count(self.runs, 'run')} recorded" if self.runs else ""
            said = f", {count(self.annotated, 'message')} annotated" if self.annotated else ""
            lines.append(added + marked + moved + ran + said + ".")
        if self.problems:
            lines.append(f"{count(self.problems, 'problem')} in the files, worked around; see the warnings.")
        if self.failures:
            lines.append(f"{count(self.failures, 'file or chat', 'files or chats')} left out; see the errors.")
        return lines


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
    type=click.IntRange(1),
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
    tally = Tally()
    limit_bytes = max_unpacked_mib * _MIB
    readable = [
        path for path in files if _is_readable(path, file_format, tally, strict=strict, max_unpacked_bytes=limit_bytes)
    ]
    if readable:
        with ledger_at(settings, create=True, create_stream=create) as ledger, pulse("opening the ledger") as say:
            for path in readable:
                _import_file(
                    ledger, path, file_format, user_id, tally, say, strict=strict, max_unpacked_bytes=limit_bytes
                )
    if not (tally.chats or tally.threads) and tally.failures:
        return 1
    for line in tally.summary():
        print_text(line)
    if tally.new and sys.stdout.isatty():
        print_text("Look at them with 'chatledger chats' and 'chatledger show CHAT'.", "dim")
    return 1 if tally.failures else 0


def _is_readable(path: Path, file_format: str | None, tally: Tally, *, strict: bool, max_unpacked_bytes: int) -> bool:
    """Whether a file is there and of a known format; told before a ledger is made for nothing."""
    try:
        if _is_of_saver(path, file_format):
            return True
        if file_format is None:
            detect_format(path, max_unpacked_bytes=max_unpacked_bytes)
        else:
            read_chats(path, format=file_format, on_problem=lambda _: None, max_unpacked_bytes=max_unpacked_bytes)
    except InvalidValueError as error:
        if strict:
            raise
        tally.failures += 1
        print_error(str(error))
        return False
    return True


def _import_file(
    ledger: Ledger,
    path: Path,
    file_format: str | None,
    user_id: str | None,
    tally: Tally,
    say: Callable[[str], None],
    *,
    strict: bool,
    max_unpacked_bytes: int,
) -> None:
    """Take in what one file has. Errors that are about one chat, or the file, do not stop the rest unless strictly."""

    def report(problem: Problem) -> None:
        tally.problems += 1
        _print_problem(str(problem))

    say(f"reading {path.name}")
    if _is_of_saver(path, file_format):
        _import_threads(ledger, path, tally, strict=strict)
        return
    chats = read_chats(
        path, format=file_format, strict=strict, on_problem=report, max_unpacked_bytes=max_unpacked_bytes
    )
    try:
        for chat in chats:
            _import_chat(ledger, _owned(chat, user_id), tally, strict=strict)
            say(f"importing {path.name}: {count(tally.chats, 'chat')}, {count(tally.messages, 'new message')}")
    except (UnsupportedFormatError, InvalidValueError) as error:
        if strict:
            raise
        tally.failures += 1
        print_error(str(error))


def _is_of_saver(path: Path, file_format: str | None) -> bool:
    return file_format == LANGGRAPH or (file_format is None and is_saver_file(path))


def _import_threads(ledger: Ledger, path: Path, tally: Tally, *, strict: bool) -> None:
    try:
        found = import_saver_file(ledger, path)
    except InvalidValueError as error:
        if strict:
            raise
        tally.failures += 1
        print_error(str(error))
    else:
        tally.threads += found.threads
        tally.agent_checkpoints += found.checkpoints
        tally.known_checkpoints += found.known


def _import_chat(ledger: Ledger, chat: ImportedChat, tally: Tally, *, strict: bool) -> None:
    try:
        tally.add(ledger.import_chat(chat))
    except LogRegressedError:
        raise
    except _ABOUT_ONE_CHAT as error:
        if strict:
            raise
        tally.failures += 1
        print_error(f"chat {chat.id!r} is left out: {error}")


def _owned(chat: ImportedChat, user_id: str | None) -> ImportedChat:
    if user_id is None or chat.user_id not in _NOBODY:
        return chat
    return msgspec.structs.replace(chat, user_id=user_id)


def _print_problem(text: str) -> None:
    console(stderr=True).print(Text.assemble(("warning: ", "yellow"), flat(text)), soft_wrap=True)


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
        if output is None:
            write_chats(sys.stdout.buffer, _exported(ledger, ids))
            return
        with _replacing(output) as stream:
            written = write_chats(stream, _exported(ledger, ids))
    print_text(f"Wrote {count(written, 'chat')} to {output}.")


def _exported(ledger: Ledger, ids: Sequence[str] | Iterable[str]) -> Iterator[ImportedChat]:
    return (ledger.export_chat(chat_id) for chat_id in ids)


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

"""`import` and `export`: whole conversations in and out."""

import contextlib
import getpass
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, Final, get_args

import click
import msgspec
from rich.text import Text

from chatledger.domain.chat.import_versions import OnChange
from chatledger.domain.chat.interchange import ImportedChat, ImportResult, Problem
from chatledger.domain.draw.escaping import escaped
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

from ...exchange.agents.agent import Agent, SessionFile
from ...exchange.agents.every import AGENTS, ALIASES, transcript_in
from ...exchange.agents.following import FileKeeping, place_of
from ...exchange.chat_groups import ChatImport, import_chats
from ...exchange.context_databases import is_context_database, is_database
from ...exchange.conversations import CONVERSATION_FORMATS, write_conversations
from ...exchange.jsonl import ExportCounts, Exported, describe, write_all
from ...exchange.langgraph_savers import FORMAT as LANGGRAPH
from ...exchange.langgraph_savers import import_saver_database, import_saver_file, is_saver_file
from ...exchange.readers import FORMATS, read_all, without_secrets
from ...exchange.tables import TABLES, event_rows, table_rows, write_csv, write_parquet
from ...ledger.ledger import Ledger
from ...ledger.view import LedgerView
from ...operating_system import private, replace
from .lookup import others_of, require_chat, require_chat_then, require_thread
from .options import ID, GlobalOptions, WholeNumber, at_option, ledger_at, place_options
from .output import console, count, print_error, print_note, print_text, pulse

_OWN: Final = "chatledger"
_TABLE_FORMATS: Final = ("csv", "parquet")
_AGENT_FORMATS: Final = (*AGENTS, *ALIASES)
_MESSAGES: Final = "messages"
_MIB: Final = 1024 * 1024
_STDIN: Final = Path("-")
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
    ("versions_added", "new version", None, "of changed messages among them"),
    ("heads_moved", "branch", "branches", "moved on"),
    ("checkpoints_set", "checkpoint", None, "set"),
    ("runs_added", "run", None, "recorded"),
    ("messages_annotated", "message", None, "annotated"),
)
"""The counts of an `ImportResult` that a summary names when there is something to count."""


@dataclass(kw_only=True)
class _FileImport:
    """An import: its options, and the counts so far."""

    file_format: str | None
    user_id: str | None
    on_change: OnChange
    strict: bool
    max_unpacked_bytes: int
    counts: Counter[str] = field(default_factory=Counter[str])
    spooled: dict[Path | str, Path] = field(default_factory=dict[Path | str, Path])
    """The files that hold what came from standard input and other pipes, by the names that were given."""

    @property
    def chats(self) -> int:
        """The number of chats that were imported, or were there before."""
        return self.counts["new"] + self.counts["changed"] + self.counts["unchanged"]

    @property
    def has_more(self) -> bool:
        """Whether threads of agents or states of graphs were read."""
        return bool(self.counts["threads"] or self.counts["states"])

    def is_readable(self, path: Path | str) -> bool:
        """Return whether a file is there and of a known format, before a ledger is made for nothing."""
        if isinstance(path, str):
            return True
        with self._leaving_out(InvalidValueError):
            if not self._is_of_saver(path) and self._transcript(path) is None:
                self._read(path, lambda _: None)
            return True
        return False

    def take(self, ledger: Ledger, path: Path | str, say: Callable[[str], None]) -> None:
        """Take in the content of one file or database. Errors that are about one chat, or one of these, stop the rest only if strict."""
        name = self._shown(str(path)) if isinstance(path, Path) else without_secrets(path)
        say(f"reading {name}")
        with self._leaving_out((UnsupportedFormatError, InvalidValueError)):
            if self._is_of_saver(path):
                taken = (
                    import_saver_database(ledger, path) if isinstance(path, str) else import_saver_file(ledger, path)
                )
                self.counts.update(
                    threads=taken.threads, agent_checkpoints=taken.checkpoints, known_checkpoints=taken.known
                )
                return
            transcript = self._transcript(path)
            if transcript is not None:
                self._keep(ledger, *transcript)
                return
            contents = self._read(path, self._report, strict=self.strict)
            chats = self._chats(ledger, contents)
            outcomes: Iterator[ChatImport]
            if self.strict:  # one by one, as nothing after the first that is refused may be there
                outcomes = (ChatImport(chat, ledger.import_chat(chat, on_change=self.on_change)) for chat in chats)
            else:
                outcomes = import_chats(ledger, chats, on_change=self.on_change)
            for outcome in outcomes:
                with self._leaving_out(_ABOUT_ONE_CHAT, f"{describe(outcome.chat)} is left out: "):
                    result = outcome.get_result()
                    is_unchanged = result == ImportResult(chat_id=result.chat_id)
                    self.counts["new" if result.is_new else "unchanged" if is_unchanged else "changed"] += 1
                    for count_name in ("messages_added", "branches_added", *(also[0] for also in _ALSO)):
                        self.counts[count_name] += getattr(result, count_name)
                messages = count(self.counts["messages_added"], "new message")
                say(f"importing {name}: {count(self.chats, 'chat')}, {messages}")

    def _transcript(self, path: Path | str) -> tuple[Agent, SessionFile] | None:
        if self.file_format is None and isinstance(path, Path) and path.is_file():
            with contextlib.suppress(OSError):
                return transcript_in(path)
        return None

    def _keep(self, ledger: Ledger, agent: Agent, file: SessionFile) -> None:
        """Keep the transcript of a coding agent, byte for byte, as 'chatledger keep' does."""
        before = ledger.get_chat(file.chat_id)
        place = None if before is None else place_of(before)
        outcome = FileKeeping(ledger, agent, self.user_id or getpass.getuser()).keep(file, place, at_end=True)
        for problem in outcome.problems:
            print_note(self._shown(problem))
        after = ledger.get_chat(file.chat_id)
        self.counts["new" if outcome.is_new else "changed" if outcome.lines else "unchanged"] += 1
        counts = [0 if chat is None else chat.message_count for chat in (before, after)]
        branches = [0 if chat is None else chat.branch_count for chat in (before, after)]
        self.counts.update(messages_added=counts[1] - counts[0], branches_added=branches[1] - branches[0])
        self.counts["problems"] += len(outcome.problems)

    def _chats(self, ledger: Ledger, contents: Iterable[Exported]) -> Iterator[ImportedChat]:
        """Yield the chats of a file with their owners; what else is in it is taken in on the way."""
        for content in contents:
            if isinstance(content, ImportedChat):
                is_nobodys = self.user_id is not None and content.user_id in _NOBODY
                yield msgspec.structs.replace(content, user_id=self.user_id) if is_nobodys else content
                continue
            with self._leaving_out(_ABOUT_ONE_CHAT, f"{describe(content)} is left out: "):
                added = ledger.import_value(content).versions_added
                there = sum(version.fields is not None for version in content.versions) - added
                if content.family == "thread":
                    self.counts.update(threads=1, agent_checkpoints=added, known_checkpoints=there)
                else:
                    self.counts.update(states=1, versions=added, known_versions=there)

    def _shown(self, text: str) -> str:
        """A text in which pipes have their names, not those of the files that hold what came from them."""
        for pipe, file in self.spooled.items():
            text = text.replace(str(file), "standard input" if pipe == _STDIN else str(pipe))
        return text

    def _read(self, path: Path | str, report: Callable[[Problem], None], *, strict: bool = False) -> Iterator[Exported]:
        limit = self.max_unpacked_bytes
        return read_all(path, format=self.file_format, strict=strict, on_problem=report, max_unpacked_bytes=limit)

    def _is_of_saver(self, path: Path | str) -> bool:
        if self.file_format is not None:
            return self.file_format == LANGGRAPH
        return is_saver_file(path) if isinstance(path, Path) else not is_context_database(path)

    @contextlib.contextmanager
    def _leaving_out(
        self, errors: type[ChatledgerError] | tuple[type[ChatledgerError], ...], what: str = ""
    ) -> Generator[None]:
        """Report errors that are about one chat or file, and go on; if strict, raise them."""
        try:
            yield
        except LogRegressedError:  # it is a `ChainIntegrityError`, and about the whole log
            raise
        except errors as error:
            if self.strict:
                raise
            self.counts["failures"] += 1
            print_error(f"{what}{self._shown(str(error))}")

    def _report(self, problem: Problem) -> None:
        self.counts["problems"] += 1
        self.counts["incomplete"] += problem.is_incomplete
        console(stderr=True).print(
            Text.assemble(("warning: ", "yellow"), escaped(self._shown(str(problem)))), soft_wrap=True
        )

    def summary(self) -> Iterator[str]:
        """Return the closing message, line by line."""
        counts, chats = self.counts, count(self.chats, "chat")
        if counts["threads"]:
            read = f"Read {count(counts['threads'], 'thread')} of agents"
            yield f"{read}: {count(counts['agent_checkpoints'], 'checkpoint')} added, {counts['known_checkpoints']:,} here already."
        if counts["states"]:
            read = f"Read {count(counts['states'], 'state')} of graphs"
            yield f"{read}: {count(counts['versions'], 'version')} added, {counts['known_versions']:,} here already."
        if self.chats and counts["unchanged"] == self.chats:
            yield f"Nothing changed: {chats} read, all here already."
        elif self.chats or not self.has_more:
            numbers = ", ".join(f"{counts[name]:,} {name}" for name in ("new", "changed", "unchanged"))
            yield f"Imported {chats}: {numbers}."
            messages, branches = counts["messages_added"], counts["branches_added"]
            also = (
                f", {count(counts[name], singular, plural)} {verb}"
                for name, singular, plural, verb in _ALSO
                if counts[name]
            )
            yield f"{count(messages, 'message')}, {count(branches, 'branch', 'branches')} added{''.join(also)}."
        if counts["problems"]:
            yield f"{count(counts['problems'], 'problem')} in the files, worked around; see the warnings."
        if counts["incomplete"]:
            yield "The export is not complete: what the warnings name is missing. Make it again, and import that too."
        if counts["failures"]:
            yield f"{count(counts['failures'], 'file or chat', 'files or chats')} left out; see the errors."


class _Source(click.Path):
    """A file, or the location of a database as text."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Implement `click.ParamType.convert`; a location is no path, which would lose a slash."""
        return value if is_database(value) else super().convert(value, param, ctx)


@click.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_Source())
@click.option(
    "--format", "file_format", type=click.Choice((*FORMATS, LANGGRAPH)), help="The format; found out by default."
)
@click.option("--strict", is_flag=True, help="Stop at the first problem.")
@click.option("--user", "user_id", type=ID, help="The owner of chats whose file names none.")
@click.option(
    "--on-change",
    type=click.Choice(get_args(OnChange)),
    default="version",
    show_default=True,
    help="A message that was changed in the file since: a new version of it, as it is here, or leave out the chat.",
)
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
@place_options
def import_command(
    settings: GlobalOptions,
    *,
    files: tuple[Path | str, ...],
    file_format: str | None,
    strict: bool,
    user_id: str | None,
    on_change: OnChange,
    max_unpacked_mib: int,
    create: bool,
) -> int:
    """
    Take conversations in from files or pipes, with all their branches; '-' is standard input.

    Reads data exports of ChatGPT (chatgpt), Claude (claude) and DeepSeek (deepseek), exports of Open WebUI (openwebui) and
    LibreChat (librechat), prompts of Google AI Studio (aistudio), lists of messages of OpenAI's, Anthropic's and Gemini's
    APIs and files for tuning (messages), pairs of a chosen and a rejected answer (dpo), ShareGPT files (sharegpt), traces of OpenTelemetry (otlp),
    OpenAssistant files (oasst), SQLite files of Deep Agents (deepagents) and what 'chatledger export' writes (chatledger:
    with threads of agents and states of graphs), also as .gz; and threads of agents from files of LangGraph's SqliteSaver
    (langgraph). A transcript of Claude Code, Codex, Gemini CLI or pi is kept byte for byte; 'chatledger keep' takes all
    that are here. A database is named as postgresql://host/database: that of LangGraph's PostgresSaver, or of a store of Deep
    Agents, with ?schema=NAME where it has one. Doing it again changes nothing: what is here stays, what is new is added.

    A broken record is reported with its line and left out; a message whose parent is missing becomes a root. With
    --strict the import ends there; chats before it stay.
    """
    limit = max_unpacked_mib * _MIB
    run = _FileImport(
        file_format=file_format, user_id=user_id, on_change=on_change, strict=strict, max_unpacked_bytes=limit
    )
    with _spooled(files) as run.spooled:
        paths = dict.fromkeys(run.spooled.get(file, file) for file in files)
        readable = [path for path in paths if run.is_readable(path)]
        if readable:
            with ledger_at(settings, create=True, create_stream=create) as ledger, pulse("opening the ledger") as say:
                for path in readable:
                    run.take(ledger, path, say)
    has_nothing = not (run.chats or run.has_more)
    is_failure = bool(run.counts["failures"] or run.counts["incomplete"] or (has_nothing and run.counts["problems"]))
    # The errors have said it.
    if has_nothing and run.counts["failures"]:
        return 1
    for line in run.summary():
        print_text(line)
    if run.counts["new"] and sys.stdout.isatty():
        print_text("Look at them with 'chatledger chats' and 'chatledger show CHAT'.", "dim")
    return 1 if is_failure else 0


@contextlib.contextmanager
def _spooled(files: tuple[Path | str, ...]) -> Generator[dict[Path | str, Path]]:
    """Standard input and other pipes as temporary files: the first bytes tell the format, and are read again."""
    # `<(...)` of a shell is a fifo, and a pipe cannot be read twice.
    pipes = [file for file in dict.fromkeys(files) if isinstance(file, Path) and (file == _STDIN or file.is_fifo())]
    if not pipes:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="chatledger-") as folder:
        spooled: dict[Path | str, Path] = {pipe: Path(folder) / f"pipe-{number}" for number, pipe in enumerate(pipes)}
        for pipe, path in spooled.items():
            try:
                with contextlib.ExitStack() as stack:
                    stream = stack.enter_context(open(path, "wb", opener=private))
                    content = sys.stdin.buffer if pipe == _STDIN else stack.enter_context(Path(pipe).open("rb"))
                    shutil.copyfileobj(content, stream)
            except OSError as error:
                name = "standard input" if pipe == _STDIN else pipe
                msg = f"{name} cannot be copied to {folder}: {error.strerror or error}; TMPDIR names another folder"
                raise ChatledgerError(msg) from error
        yield spooled


@click.command("export")
@click.argument("chat_ids", metavar="[CHAT]...", type=ID, nargs=-1)
@click.option("--thread", "thread_ids", type=ID, multiple=True, help="A thread of agents; can be repeated.")
@click.option("--state", "state_ids", type=ID, multiple=True, help="A state of a graph; can be repeated.")
@click.option("--user", "user_id", type=ID, help="All that this user owns, instead; as --as-user ID sees it.")
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Where to; stdout by default.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice((_OWN, *_TABLE_FORMATS, *CONVERSATION_FORMATS, *_AGENT_FORMATS)),
    default=_OWN,
    show_default=True,
    help="JSON lines that can be imported, a table, conversations for training and reading, or a file of a coding agent.",
)
@click.option("--table", type=click.Choice([*TABLES]), help="Of which table, for parquet and csv; messages by default.")
@click.option("--all-branches", is_flag=True, help="A conversation for each branch, not only the active one.")
@at_option
@place_options
def export_command(
    settings: GlobalOptions,
    *,
    chat_ids: tuple[str, ...],
    thread_ids: tuple[str, ...],
    state_ids: tuple[str, ...],
    user_id: str | None,
    output: Path | None,
    file_format: str,
    table: str | None,
    all_branches: bool,
    at: int | datetime | None,
) -> None:
    """
    Write chats, threads of agents and states of graphs as JSON lines; everything when none is named.

    'chatledger import' takes them in as they were, here or elsewhere: 'chatledger export | ssh HOST chatledger import -'.
    What is not in it: the events themselves, which only a backup has. With --at, chats only: a thread or a state has its
    earlier versions in it.

    For analysis: --format csv or parquet, of messages, chats, branches, runs, labels (annotations), threads or events. For
    training: openai, anthropic (messages) and sharegpt, which 'chatledger import' reads too; for people: markdown. With the
    name of a coding agent, the session CHAT of the ledger of 'chatledger keep': byte for byte where it is of that agent.
    """
    refusals = {
        "--table goes with --format csv or parquet, --all-branches with openai, anthropic, sharegpt and markdown": (
            (table is not None and file_format not in _TABLE_FORMATS)
            or (all_branches and file_format not in CONVERSATION_FORMATS)
        ),
        f"--format {file_format} writes one session; name it, and nothing else": file_format in _AGENT_FORMATS
        and (len(chat_ids) != 1 or bool(thread_ids or state_ids or user_id is not None or at is not None)),
        "a terminal cannot show parquet; name a file with -o": (
            file_format == "parquet" and output is None and sys.stdout.isatty()
        ),
        "--at goes back to earlier chats only; a thread or a state is written with its earlier versions, so leave it out": (
            at is not None and bool(thread_ids or state_ids)
        ),
        "--user writes all that a user owns now; leave out what else is named, and --at": (
            user_id is not None and bool(chat_ids or thread_ids or state_ids or at is not None)
        ),
    }
    for reason in (reason for reason, applies in refusals.items() if applies):
        click.get_current_context().fail(reason)
    if file_format in _AGENT_FORMATS:
        from .keep import write_session

        content = write_session(settings, chat_ids[0], file_format)
        with contextlib.nullcontext(sys.stdout.buffer) if output is None else _replacing(output) as stream:
            stream.write(content)
        return
    with ledger_at(settings) as ledger, contextlib.ExitStack() as stack:
        view = None if at is None else stack.enter_context(ledger.as_of(at))
        contents = _contents(ledger, view, chat_ids, thread_ids, state_ids, user_id)
        rows = table_rows(contents, table or _MESSAGES) if table != "events" else _events(ledger, chat_ids, user_id, at)
        write = partial(_write, file_format, table or _MESSAGES, contents, rows, all_branches=all_branches)
        _deliver(write, output)
        if at is not None and not (chat_ids or table == "events") and (others := others_of(ledger)):
            print_note(f"Left out, as --at writes chats only: {others}.")


def _contents(
    ledger: Ledger,
    view: LedgerView | None,
    chat_ids: tuple[str, ...],
    thread_ids: tuple[str, ...],
    state_ids: tuple[str, ...],
    user_id: str | None,
) -> Iterator[Exported]:
    """The chats, threads and states that are exported. What is named is looked up before anything is written: an error leaves no part of an export."""
    if user_id is not None:
        return ledger.export_user(user_id)
    if view is not None:
        named = [require_chat_then(ledger, view, chat_id) for chat_id in dict.fromkeys(chat_ids)]
        return (view.export_chat(chat.id) for chat in named or reversed(view.list_chats()))
    if not (chat_ids or thread_ids or state_ids):
        return ledger.export_all()
    for chat_id in chat_ids:
        require_chat(ledger, chat_id)
    others: list[Exported] = [
        *(ledger.export_thread(require_thread(ledger, thread_id).thread_id) for thread_id in dict.fromkeys(thread_ids)),
        *map(ledger.export_state, dict.fromkeys(state_ids)),
    ]
    return chain(map(ledger.export_chat, dict.fromkeys(chat_ids)), others)


def _deliver(write: Callable[[IO[bytes]], str], output: Path | None) -> None:
    """Write to a file or to stdout, and say how much; `write` returns that in words."""
    if output is None:
        written = write(sys.stdout.buffer)
        sys.stdout.flush()
        # On stderr, as what is on stdout is for a program to read.
        console(stderr=True).print(f"Wrote {written}.")
    else:
        with _replacing(output) as stream:
            written = write(stream)
        print_text(f"Wrote {written} to {output}.")


def _events(
    ledger: Ledger, chat_ids: tuple[str, ...], user_id: str | None, at: int | datetime | None
) -> Iterator[dict[str, Any]]:
    """The rows of the history of these chats, of a user's, or of all."""
    end: dict[str, Any] = {"until" if isinstance(at, datetime) else "up_to": at}
    if not chat_ids:
        return event_rows(ledger.history(user_id=user_id, **end))
    return event_rows(chain.from_iterable(ledger.history(chat_id, **end) for chat_id in dict.fromkeys(chat_ids)))


def _write(
    file_format: str,
    table: str,
    contents: Iterator[Exported],
    rows: Iterator[dict[str, Any]],
    stream: IO[bytes],
    *,
    all_branches: bool,
) -> str:
    """Write in a format, and return what was written in words; of contents and rows, which are made of these, one is used."""
    if file_format == _OWN:
        return _numbers(write_all(stream, contents))
    if file_format in _TABLE_FORMATS:
        return count((write_csv if file_format == "csv" else write_parquet)(stream, rows, table), "row")
    chats = (content for content in contents if isinstance(content, ImportedChat))
    return count(write_conversations(stream, chats, file_format, all_branches=all_branches), "conversation")


def _numbers(counts: ExportCounts) -> str:
    more = (count(number, what) for number, what in ((counts.threads, "thread"), (counts.states, "state")) if number)
    return ", ".join((count(counts.chats, "chat"), *more))


@contextlib.contextmanager
def _replacing(path: Path) -> Generator[IO[bytes]]:
    """A file that takes the place of `path` when it is whole, and leaves nothing behind otherwise."""
    try:
        if path.exists() and not path.is_file():
            # A device or a pipe, e.g. /dev/stdout; a directory is refused here.
            with path.open("wb") as stream:
                yield stream
            return
        # In the folder of the file, as a rename does not cross file systems; and closed before it, which Windows asks for.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
        try:
            with os.fdopen(handle, "wb") as draft:
                yield draft
            replace(Path(name), path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except BrokenPipeError:
        raise
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror or error}"
        raise ChatledgerError(msg) from error

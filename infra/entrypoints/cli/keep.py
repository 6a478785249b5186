"""`keep`, `sessions` and `resume`: transcripts of coding agents, kept in a ledger of their own and handed back."""

import contextlib
import getpass
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Generator, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click

from chatledger.domain.chat.lines import bytes_of, value_of, values_in
from chatledger.domain.errors import ConfigurationError, InvalidValueError, NotFoundError
from chatledger.domain.forms.plain import text_at
from chatledger.domain.values import Chat, Message

from ...exchange.agents.agent import Agent, NewSession, SessionFile, WrittenSession
from ...exchange.agents.every import AGENTS, ALIASES, agent_named, since_summary, whole_chain
from ...exchange.agents.following import exported, place_now, place_of, stamp_of
from ...exchange.agents.keeping import AgentFiles, Keeper, Round
from ...exchange.agents.redaction import kinds_in, without_keys
from ...ledger.drafts import new_id
from ...ledger.environment import KEY_ENV, is_on_nats, keys_given, login_for, require_ledger
from ...ledger.expiry import time_of_text
from ...ledger.history import MessageHistory
from ...ledger.ledger import Ledger
from ...ledger.open import open as open_ledger
from ...operating_system import lock_file, replace, write_private
from .keep_service import UNIT, install, service_of, uninstall
from .lookup import is_of_folder
from .options import KEEP_ENV, GlobalOptions, kept_location, ledger_options, parsed, require_server
from .output import column, count, print_error, print_json, print_json_list, print_lines, print_note, print_text, table

_DAY_S: Final = 86_400
_CLAUDE_DAYS, _SOON_DAYS = 30, 5
_PEEKED_LINES: Final = 64
_since: Final = parsed(time_of_text, "is not a time, e.g. 2026-02-07T17:29:24Z, yesterday, tuesday or 7d")
_agents: Final = click.Choice([*AGENTS, *ALIASES])


@contextlib.contextmanager
def _kept_ledger(settings: GlobalOptions, *, create: bool = False) -> Generator[Ledger]:
    """The ledger of transcripts, open; as a user sees it where one is named."""
    location = kept_location(settings)
    if not create:
        require_ledger(location, hint="; 'chatledger keep' makes one of the transcripts of coding agents")
    if is_on_nats(location):
        require_server(location)
    is_folder = "://" not in location and not location.startswith("memory:")
    # What is lost with the machine's power is read again: its source is still there.
    with open_ledger(
        location,
        durability="fast" if is_folder else "always",
        encryption=keys_given(),
        login=login_for(location),
    ) as ledger:
        yield ledger if settings.user_id is None else ledger.for_user(settings.user_id)


@click.command("keep")
@click.option("--agent", "names", type=_agents, multiple=True, help="Only of this agent; can be repeated.")
@click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="A copy of a home, such as a backup, in place of yours.",
)
@click.option(
    "--exclude",
    "excluded",
    multiple=True,
    metavar="GLOB",
    help="Leave out sessions of folders such as '/src/secret*'; can be repeated.",
)
@click.option(
    "--since",
    callback=_since,
    metavar="TIME",
    help="Only files changed at this time or later (ISO 8601, yesterday, tuesday, 7d).",
)
@click.option(
    "--redact",
    is_flag=True,
    help="Take keys and tokens out before anything is written; such a session is not byte for byte.",
)
@click.option(
    "--secrets",
    is_flag=True,
    help="Keep nothing, and list where keys and tokens are in what is kept: kind, session and message, never what they are.",
)
@click.option("--watch", is_flag=True, help="Go on, and keep what comes, until Ctrl-C.")
@click.option(
    "--install",
    "service",
    flag_value="install",
    help="Have systemd or launchd run --watch from login on, with these options.",
)
@click.option("--uninstall", "service", flag_value="uninstall", help="End that, and remove what --install wrote.")
@click.option(
    "--dry-run", is_flag=True, help="With --install or --uninstall: only say what would be written or removed."
)
@ledger_options
def keep_command(
    settings: GlobalOptions,
    *,
    names: tuple[str, ...],
    root: Path | None,
    excluded: tuple[str, ...],
    since: datetime | None,
    redact: bool,
    secrets: bool,
    watch: bool,
    service: str | None,
    dry_run: bool,
) -> int:
    """
    Keep the transcripts of coding agents: all that are here, byte for byte, each line once.

    Their own files are only read. They go into a ledger of their own, at CHATLEDGER_KEEP or in your data folder; 'sessions',
    'resume' and 'search --kept' look there. What an agent deletes stays. A file that cannot be read is named, and the exit
    code is 1.
    """
    if dry_run and service is None:
        msg = "--dry-run goes with --install or --uninstall"
        raise click.UsageError(msg)
    if service is not None:
        arguments = [part for name in names for part in ("--agent", name)]
        arguments += [part for pattern in excluded for part in ("--exclude", pattern)]
        arguments += [] if root is None else ["--root", str(root.absolute())]
        arguments += [] if since is None else ["--since", since.isoformat()]
        _change_service(settings, service, arguments + ["--redact"] * redact, is_dry=dry_run)
        return 0
    if secrets:
        _list_secrets(settings, [agent_named(name).name for name in names])
        return 0
    agents = [agent_named(name) for name in names] or list(AGENTS.values())
    home = root or Path.home()
    environ: Mapping[str, str] = os.environ if root is None else {}
    sources = [AgentFiles(agent, agent.roots(environ, home)) for agent in agents]

    def takes(file: SessionFile) -> bool:
        if since is not None and place_now(file, stamp_of(file.path)).mtime < since.timestamp() * 1e9:
            return False
        return not excluded or not any(fnmatch(_cwd_in(file, agents), pattern) for pattern in excluded)

    keeper = Keeper(
        sources,
        lambda: _kept_ledger(settings, create=True),
        user=settings.user_id or getpass.getuser(),
        redact=without_keys if redact else None,
        takes=takes,
    )
    if watch:
        with _only_watcher(kept_location(settings)):
            keeper.watch(_tell_grown)
        return 0
    outcome = keeper.once()
    _tell(settings, outcome, sources)
    return 1 if outcome.failures else 0


def _change_service(settings: GlobalOptions, change: str, arguments: list[str], *, is_dry: bool) -> None:
    user = [] if settings.user_id is None else ["--as-user", settings.user_id]
    location = kept_location(settings)
    environ = {**os.environ, KEEP_ENV: location if "://" in location else str(Path(location).absolute())}
    if change == "install" and environ.get(KEY_ENV):
        # It would keep what is said in clear, or not open the ledger.
        msg = (
            f"{KEY_ENV} is set, and a service that is installed does not get it, as its file would hold the key; nothing was "
            f"written. Give it to the service, as by 'systemctl --user edit --force {UNIT}', and install with {KEY_ENV} unset"
        )
        raise ConfigurationError(msg)
    service = service_of(["keep", "--watch", *arguments, *user], environ)
    (install if change == "install" else uninstall)(service, is_dry=is_dry)


def _list_secrets(settings: GlobalOptions, names: Collection[str]) -> None:
    """Print a row for each kind of key in each message of the agents' sessions; of all agents where none is named."""
    rows: list[dict[str, Any]] = []
    with _kept_ledger(settings) as ledger:
        for chat in ledger.list_chats():
            told = chat.metadata or {}
            if place_of(chat) is None or (names and told.get("agent") not in names):
                continue
            # Also what was taken back, or what a file has no more.
            stored = MessageHistory(ledger, chat.id).read(lambda history: list(history.state.all_messages())) or []
            for message in stored:
                text = "\n".join(bytes_of(value).decode(errors="replace") for value in values_in(message.data))
                row = {"session": told.get("session", ""), "message": message.id}
                rows += [{"kind": kind, "count": number, **row} for kind, number in Counter(kinds_in(text)).items()]
    if settings.as_json:
        print_json_list(rows)
    elif rows:
        names_of_columns = ("kind", "count", "session", "message")
        print_lines(table([column(key, [str(row[key]) for row in rows]) for key in names_of_columns]), is_cut=True)
    else:
        print_text("No keys or tokens are in what is kept.")


def _tell(settings: GlobalOptions, outcome: Round, sources: list[AgentFiles]) -> None:
    for problem in outcome.problems:
        print_note(problem)
    for failure in outcome.failures:
        print_error(failure)
    if settings.as_json:
        by_agent = {source.agent.name: _counts(outcome, source.agent) for source in sources}
        print_json({"agents": by_agent, "problems": outcome.problems, "failures": outcome.failures})
    else:
        for source in sources:
            counts = _counts(outcome, source.agent)
            new = ", ".join(f"{counts[what]:,} {what}" for what in ("new", "grown") if counts[what])
            if counts["sessions"]:
                print_text(f"{source.agent.name}  {count(counts['sessions'], 'session')}, {new or 'nothing new'}")
        if not outcome.counts:
            print_text(
                "No transcripts of coding agents are here; --root takes a home, the folder that has .claude or .codex."
            )
        _tell_deletions(outcome)


def _counts(outcome: Round, agent: Agent) -> dict[str, int]:
    return {what: outcome.counts[agent.name, what] for what in ("sessions", "new", "grown", "lines")}


def _cwd_in(file: SessionFile, agents: list[Agent]) -> str:
    """The folder that a session worked in, as its place or its first lines say."""
    if cwd := text_at(file.metadata, "cwd"):
        return cwd
    with contextlib.suppress(OSError), file.path.open("rb") as stream:
        for line in islice(stream, _PEEKED_LINES):
            for agent in agents:
                cwd = agent.described(value_of(line.rstrip(b"\n"))).get("cwd")
                if cwd:
                    return cwd
    return ""


def _tell_grown(outcome: Round) -> None:
    for message in (*outcome.problems, *outcome.failures):
        print_note(message)
    lines: Counter[str] = Counter()
    for (name, what), number in outcome.counts.items():
        lines[name] += number if what == "lines" else 0
    for name, number in lines.items():
        if number:
            print_text(f"{name}  {count(number, 'line')}")
    sys.stdout.flush()


def _tell_deletions(outcome: Round) -> None:
    """Say how many sessions Claude Code is about to delete."""
    oldest = (time.time() - (_CLAUDE_DAYS - _SOON_DAYS) * _DAY_S) * 1e9
    if old := sum(changed < oldest for changed in outcome.changed["claude-code"]):
        print_text(f"{count(old, 'session')} would be deleted by Claude Code within {_SOON_DAYS} days", "dim")


@contextlib.contextmanager
def _only_watcher(location: str) -> Generator[None]:
    """A lock beside the ledger, until Ctrl-C: two that watch would read everything twice, though neither would keep a line twice."""
    # A shell that starts it in the background has Ctrl-C ignored, and whatever runs services ends them by SIGTERM.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    file = Path(f"{location}.watch") if "://" not in location else Path(os.devnull)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+", encoding="utf-8") as stream:
        try:
            lock_file(stream.fileno())
        except BlockingIOError:
            stream.seek(0)
            msg = f"process {stream.read().strip()} is watching for {location} already; end that one, or leave it to it"
            raise ConfigurationError(msg) from None
        stream.truncate(0)
        stream.write(str(os.getpid()))
        stream.flush()
        with contextlib.suppress(KeyboardInterrupt):
            yield


@click.command("sessions")
@click.argument("text", metavar="[TEXT]...", nargs=-1)
@click.option("--here", is_flag=True, help="Only of this folder, and those below it.")
@click.option("--agent", "name", type=_agents, help="Only of this agent.")
@click.option(
    "--since", callback=_since, metavar="TIME", help="Only those whose file was kept or changed at this time or later."
)
@click.option("--all", "are_all", is_flag=True, help="Also those of subagents.")
@ledger_options
def sessions_command(
    settings: GlobalOptions,
    *,
    text: tuple[str, ...],
    here: bool,
    name: str | None,
    since: datetime | None,
    are_all: bool,
) -> None:
    """
    List the sessions of coding agents that are kept, those that went on last first.

    TEXT is looked for in titles, folders and branches. 'gone' is said of a session whose file its agent has no more.
    """
    needle = " ".join(text).casefold()
    agent = None if name is None else agent_named(name).name
    with _kept_ledger(settings) as ledger:
        chats = ledger.list_chats(metadata=None if agent is None else {"agent": agent})
    rows = [
        _row(chat)
        for chat in chats
        if place_of(chat) is not None and (are_all or "parent" not in (chat.metadata or {}))
        if since is None or chat.updated_at >= since.timestamp() * 1000
        if not here or is_of_folder(chat)
    ]
    rows = [row for row in rows if needle in f"{row['title']} {row['cwd']} {row['git_branch']}".casefold()]
    if settings.as_json:
        print_json_list(rows)
    elif rows:
        names = ("session", "agent", "age", "messages", "title", "cwd", "git_branch", "file")
        print_lines(table([column(key, [str(row[key]) for row in rows]) for key in names]), is_cut=True)
    else:
        print_text("No session matches." if chats else "No sessions yet: 'chatledger keep' takes them in.")


def _row(chat: Chat) -> dict[str, Any]:
    told, place = chat.metadata or {}, place_of(chat)
    texts = {key: str(told.get(key, "")) for key in ("session", "agent", "cwd", "git_branch")}
    is_gone = place is not None and not Path(place.path).exists()
    age = max(time.time() - chat.updated_at / 1000, 0)
    days = f"{age / _DAY_S:.0f}d" if age >= _DAY_S else f"{age / 3600:.0f}h" if age >= 3600 else f"{age / 60:.0f}m"
    return {
        **texts,
        "chat": chat.id,
        "title": chat.title or "",
        "age": days,
        "messages": chat.message_count,
        "file": "gone" if is_gone else "",
    }


def session_named(ledger: Ledger, name: str) -> Chat:
    """
    Return the chat of a session: by the chat's id, or by the session's, which may be cut to what is unique.

    Raises:
        NotFoundError: There is none, or more than one.
    """
    chat = ledger.get_chat(name)
    if chat is not None:
        return chat
    sessions = (chat for chat in ledger.list_chats() if "session" in (chat.metadata or {}))
    chats = [chat for chat in sessions if str((chat.metadata or {})["session"]).startswith(name)]
    main = [chat for chat in chats if "parent" not in (chat.metadata or {})] or chats
    if len({(chat.metadata or {})["session"] for chat in main}) == 1:
        # Gemini CLI begins a file for each process that goes on with a session, and leaves some without a turn.
        main = [max(main, key=lambda chat: chat.message_count)]
    if len(main) == 1:
        return main[0]
    msg = f"no session {name!r} is kept; 'chatledger sessions' lists them"
    if main:
        msg = f"{count(len(main), 'session')} begin with {name!r}: {', '.join(chat.id for chat in main[:3])}; write more of it"
    raise NotFoundError(msg)


@click.command("resume")
@click.argument("name", metavar="ID")
@click.option("--in", "target", type=_agents, help="The agent that is to go on; the one it comes from by default.")
@click.option("--at", "message_id", metavar="MESSAGE", help="Only up to this message.")
@click.option(
    "--cwd",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder to work in; that of the session by default.",
)
@click.option("--run", is_flag=True, help="Run the command that goes on, instead of printing it.")
@click.option("--dry-run", is_flag=True, help="Only say what would be left out.")
@ledger_options
def resume_command(
    settings: GlobalOptions,
    *,
    name: str,
    target: str | None,
    message_id: str | None,
    cwd: Path | None,
    run: bool,
    dry_run: bool,
) -> int:
    """
    Hand a session to a coding agent, which goes on with it: its own, or another one.

    It goes on from the active branch, from its last summary on. What the other agent cannot take is counted before anything is
    written. Only for Codex a new file is made among its own; the others take one from anywhere.
    """
    with _kept_ledger(settings) as ledger:
        chat = session_named(ledger, name)
        told = chat.metadata or {}
        if target is None and "agent" not in told:
            msg = f"chat {chat.id!r} comes from no coding agent: say which is to go on, with --in"
            raise InvalidValueError(msg)
        agent = agent_named(target or str(told["agent"]))
        chain = whole_chain(ledger, chat)
    if message_id is not None:
        places = [number for number, message in enumerate(chain) if message.id.endswith(message_id)]
        if len(places) != 1:
            msg = f"{count(len(places), 'message')} of {chat.id!r} end with {message_id!r}; name one by its id"
            raise NotFoundError(msg)
        chain = chain[: places[0] + 1]
    messages = since_summary(chain)
    root = agent.roots(os.environ, Path.home())[0]
    folder = str(cwd.resolve()) if cwd is not None else str(told.get("cwd") or Path.cwd())
    written = agent.written(messages, NewSession(_new_session_id(), folder, datetime.now(UTC), root))
    kinds = Counter(dropped.what for dropped in written.dropped)
    lost = [count(number, "thought" if what == "reasoning" else what) for what, number in kinds.items()]
    lost += ["everything before the last summary"] if len(messages) < len(_said(chain)) else []
    left_out = f"; left out: {', '.join(lost)}" if lost else ""
    if dry_run:
        settings.answer(
            {"agent": agent.name, "dropped": dict(kinds)}, f"would write a new {agent.name} session{left_out}"
        )
        return 0
    path = _put(written, root)
    prepare, command = (
        [argument.replace("{file}", str(path)) for argument in arguments]
        for arguments in (written.prepare, written.command)
    )
    commands = [prepare, command] if prepare else [command]
    value = {"agent": agent.name, "file": str(path), "command": command, "dropped": dict(kinds)}
    value |= {"prepare": prepare} if prepare else {}
    settings.answer(value, f"wrote a new {agent.name} session{left_out}", " && ".join(map(shlex.join, commands)))
    codes = (subprocess.run(argv, cwd=folder, check=False).returncode for argv in commands if run)  # noqa: S603 - as --run asks
    return next((code for code in codes if code), 0)


def _put(written: WrittenSession, root: Path) -> Path:
    """Write a session where its agent takes it from, and return its path."""
    import platformdirs

    is_own = "/" in written.name  # Codex takes a file from its own folder only
    path = (root if is_own else platformdirs.user_cache_path("chatledger") / "resume") / written.name
    part = path.with_name(f".{path.name}.part")  # no client sees half of it
    write_private(part, written.content.decode())
    replace(part, path)
    return path


def _said(chain: list[Message]) -> list[Message]:
    return [message for message in chain if message.text]


def _new_session_id() -> str:
    """A UUID of version 7, as Codex orders its threads by."""
    drawn = new_id().replace("-", "")
    number = f"{int(time.time() * 1000):012x}7{drawn[:3]}8{drawn[3:18]}"
    return "-".join((number[:8], number[8:12], number[12:16], number[16:20], number[20:]))


def write_session(settings: GlobalOptions, name: str, target: str) -> bytes:
    """
    Return a session as a file of an agent: of its own byte for byte, of another one as that goes on from it.

    Raises:
        NotFoundError: There is no such session.
    """
    agent = agent_named(target)
    with _kept_ledger(settings) as ledger:
        chat = session_named(ledger, name)
        told = chat.metadata or {}
        if told.get("agent") == agent.name:
            return exported(ledger, chat, agent)
        chain = whole_chain(ledger, chat)
    root = agent.roots(os.environ, Path.home())[0]
    return agent.written(
        chain, NewSession(_new_session_id(), str(told.get("cwd", "")), datetime.now(UTC), root)
    ).content

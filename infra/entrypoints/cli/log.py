"""`log`, `replay` and `rebuild`: the history, and what follows from it."""

import contextlib
import re
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final, Literal

import click
from rich.text import Text

from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.draw.escaping import escaped
from chatledger.domain.draw.event_words import EventWords
from chatledger.domain.errors import NotFoundError
from chatledger.domain.values import make_graph
from chatledger.domain.wire import iso

from ...ledger.expiry import time_of_text
from ...ledger.feed import TOPICS, FeedInfo
from ...ledger.ledger import Ledger
from ...ledger.log import CHATS, Recorded, kind_of
from .chats import chat_heading
from .drawing import best_style, print_tree
from .lookup import unknown_chat
from .options import (
    ID,
    GlobalOptions,
    WholeNumber,
    chat_argument,
    json_option,
    ledger_at,
    ledger_options,
    limit_option,
    listing_options,
    parsed,
    place_options,
    until_option,
)
from .output import (
    count,
    fields_of,
    format_time,
    print_csv,
    print_json,
    print_lines,
    print_note,
    print_text,
    print_values,
    progress_bar,
)
from .show import chat_object

_STYLES: Final = {
    "chat_created": "bold green",
    "chat_updated": "green",
    "chat_deleted": "bold red",
    "message_appended": "cyan",
    "branch_created": "yellow",
    "branch_activated": "yellow",
    "branch_renamed": "yellow",
    "branch_deleted": "red",
    "head_moved": "yellow",
    "checkpoint_set": "magenta",
    "checkpoint_deleted": "magenta",
    "member_set": "green",
    "member_removed": "red",
    "link_created": "green",
    "link_revoked": "red",
    "message_annotated": "blue",
    "content_redacted": "bold red",
    "run_recorded": "blue",
    "run_changed": "blue",
    "regeneration_begun": "blue",
    "regeneration_approved": "blue",
    "version_content_put": "cyan",
    "version_put": "cyan",
    "version_writes_put": "cyan",
    "versions_kept": "cyan",
    "versions_removed": "red",
    "versions_copied": "green",
    "versions_deleted": "bold red",
    "versions_expiry_set": "cyan",
}


def event_line(recorded: Recorded, words: EventWords, *, with_chat: bool = True) -> Text:
    """Position, time, actor, kind, what happened, what it belongs to and was caused by, and the chat."""
    line = Text(f"{recorded.position:>6}  ", style="bold")
    line.append(f"{format_time(recorded.occurred_at)}  ", style="not bold dim")
    line.append(f"{escaped(recorded.actor or '-'):<6}  ", style="not bold")
    line.append(f"{recorded.type:<16}  ", style=f"not bold {_STYLES.get(recorded.type, '')}")
    line.append(escaped(words.describe(recorded)), style="not bold")
    event = recorded.event
    for what, link in (("correlation", event.correlation_id), ("causation", event.causation_id)):
        if link is not None:
            line.append(f"  {what} {escaped(link)}", style="not bold dim")
    if with_chat:
        line.append(f"  [{escaped(recorded.chat_id)}]", style="not bold dim")
    return line


@click.command("log")
@click.argument("chat_id", metavar="[CHAT]", type=ID, required=False)
@click.option("--user", "user_id", type=ID, help="Only events of this owner's chats.")
@click.option(
    "--topic",
    "topics",
    metavar="TYPE",
    multiple=True,
    help="Only events of this type, e.g. chat_deleted. May be repeated.",
)
@click.option("--actor", metavar="NAME", help="Only what was done in this name.")
@click.option(
    "--after", type=WholeNumber(min=0), metavar="POSITION", help="Only events after this position on the log."
)
@click.option(
    "--since",
    callback=parsed(time_of_text, "is no time, e.g. 2026-02-07T17:29:24Z, yesterday, tuesday or 7d"),
    metavar="TIME",
    help="Only events at or after this time (ISO 8601, yesterday, tuesday, 7d; UTC unless it has an offset).",
)
@until_option
@limit_option("events, the first ones")
@listing_options
def log_command(
    settings: GlobalOptions,
    *,
    chat_id: str | None,
    user_id: str | None,
    topics: tuple[str, ...],
    actor: str | None,
    after: int | None,
    since: datetime | None,
    until: int | datetime | None,
    limit: int | None,
) -> None:
    """
    Print the history of one chat, or of all.

    Each event has its position on the log, time (UTC), actor, and what it did; and what it belongs to and was caused by, where
    that was said. With --json, one object a line, with the hash chain.
    """
    with ledger_at(settings) as ledger:
        if chat_id is not None:
            # A deleted chat has its tombstone, and is not unknown.
            require_history(ledger, chat_id)
        events = ledger.history(
            chat_id,
            after=after or 0,
            up_to=None if isinstance(until, datetime) else until,
            until=until if isinstance(until, datetime) else None,
            since=since,
            user_id=user_id,
            topics=topics or None,
            actor=actor,
        )
        words = EventWords()
        if settings.as_csv:
            rows = (fields_of(recorded) | {"what": words.describe(recorded)} for recorded in islice(events, limit))
            print_csv(_CSV_COLUMNS, rows)
            return
        is_silent = True
        for recorded in islice(events, limit):
            is_silent = False
            if settings.as_json:
                print_json(fields_of(recorded))
            else:
                print_lines([event_line(recorded, words, with_chat=chat_id is None)])
        if is_silent and not settings.as_json:
            print_note("no event matches" if ledger.position else "there are no events yet")


_CSV_COLUMNS = (
    "position",
    "occurred_at",
    "actor",
    "type",
    "chat_id",
    "version",
    "what",
    "correlation_id",
    "causation_id",
)


def require_history(ledger: Ledger, chat_id: str) -> None:
    """Raises `NotFoundError` when the log has nothing about a chat, not even that it was deleted."""
    if next(ledger.history(chat_id), None) is None:
        raise unknown_chat(ledger, chat_id)


@click.command("replay")
@chat_argument
@until_option
@json_option
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw with ASCII characters.")
@place_options
def replay_command(settings: GlobalOptions, *, chat_id: str, until: int | datetime | None, ascii_only: bool) -> None:
    """
    Fold a chat from the log, event by event.

    Each step is printed, and last the chat: as it is now, or was at an earlier moment. The index is not asked; hashes and versions are checked on the way. With --json, one object for each step, and last
    the chat as 'show --json' prints it.
    """
    with ledger_at(settings) as ledger:
        # A thread or a state has a stream with events too, but no chat follows from them.
        if kind_of(chat_id) is not CHATS:
            raise unknown_chat(ledger, chat_id)
        require_history(ledger, chat_id)
        chat = ReplayedChat(chat_id)
        steps, words = 0, EventWords()
        for recorded in _history(ledger, chat_id, until):
            chat.apply(recorded)
            steps += 1
            record = chat.record
            if settings.as_json:
                step = {
                    "position": recorded.position,
                    "version": recorded.version,
                    "type": recorded.type,
                    "occurred_at": iso(recorded.occurred_at),
                    "actor": recorded.actor,
                    "messages": 0 if record is None else record.message_count,
                    "branches": 0 if record is None else record.branch_count,
                    "checkpoints": 0 if record is None else record.checkpoint_count,
                    "active_branch": None if record is None else record.active_branch,
                }
                print_json(step)
                continue
            outcome = "deleted"
            if record is not None:
                branches = count(record.branch_count, "branch", "branches")
                outcome = f"{count(record.message_count, 'message')}, {branches}"
            line = event_line(recorded, words, with_chat=False)
            print_lines([line.append(f"  → {outcome}", style="dim")])
        if not steps:
            msg = f"chat {chat_id!r} has no events up to {until}"
            raise NotFoundError(msg)
    state = chat.chat
    if settings.as_json:
        print_json(chat_object(state, chat.messages, chat.branches, chat.checkpoints))
        return
    print_text()
    if state is None:
        print_text(f"After {count(steps, 'event')} the chat is deleted.", "bold")
        return
    print_text(f"After {count(steps, 'event')}:", "bold")
    print_lines([*chat_heading(state, checkpoints=len(chat.checkpoints)), Text()])
    graph = make_graph(chat_id, chat.messages, chat.branches, chat.checkpoints)
    print_tree(graph, style=best_style(ascii_only=ascii_only))


def _history(ledger: Ledger, chat_id: str, until: int | datetime | None) -> Iterator[Recorded]:
    """Yield the events up to a moment: up to the first later one, as the clocks of two writers may disagree."""
    if not isinstance(until, datetime):
        yield from ledger.history(chat_id, up_to=until)
        return
    last_ms = (until - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)
    for recorded in ledger.history(chat_id):
        if recorded.occurred_at > last_ms:
            return
        yield recorded


@click.command("rebuild")
@click.option("--only", type=click.Choice(["search"]), help="Only this part of the index.")
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="How many processes build the whole index; one a processor, at most 8, by default. Small ledgers take one.",
)
@ledger_options
def rebuild_command(settings: GlobalOptions, *, only: Literal["search"] | None, processes: int | None) -> None:
    """
    Build the index anew from the log.

    Nothing is lost by it: the index holds only what follows from the log. Until the new one is ready the old one serves.
    With --only search, the search index is built anew from the messages in the index; until it is ready searches are coarser.
    """
    part = "the index" if only is None else f"the {only} index"
    with ledger_at(settings, is_whole=True) as ledger:
        began = time.monotonic()
        with progress_bar(f"rebuilding {part}") as progress:
            ledger.rebuild(only=only, progress=progress, processes=processes)
        took_s = time.monotonic() - began
        position = ledger.position
    source = "log" if only is None else "messages"
    settings.answer(
        {"position": position, "seconds": round(took_s, 3)},
        f"Rebuilt {part} from the {source} in {took_s:.1f} s, up to position {position:,}.",
    )


def _share(value: str) -> tuple[int, int]:
    numbers = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", value)
    if numbers is None:
        raise ValueError
    return int(numbers[1]), int(numbers[2])


@click.command("watch")
@click.option("--chat", "chat_id", metavar="CHAT", type=ID, help="Only events of this chat.")
@click.option("--user", "user_id", type=ID, help="Only events of this owner's chats.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    type=click.Choice(sorted(TOPICS)),
    help="Only events of this type, e.g. message_appended; may be repeated.",
)
@click.option("--name", metavar="NAME", help="Go on after what was printed under this name before.")
@click.option(
    "--share",
    metavar="I/N",
    callback=parsed(_share, "is no share; 0/3, 1/3 and 2/3 are the three of three"),
    help="Only chats of share I of N: 0/3, 1/3 or 2/3 of three.",
)
@click.option(
    "--after",
    type=WholeNumber(min=0),
    metavar="POSITION",
    help="Begin after this position on the log: 0 for all there ever were. By default from now on; a new name from 0.",
)
@limit_option("events, then end")
@ledger_options
def watch_command(
    settings: GlobalOptions,
    *,
    chat_id: str | None,
    user_id: str | None,
    topics: tuple[str, ...],
    name: str | None,
    share: tuple[int, int] | None,
    after: int | None,
    limit: int | None,
) -> None:
    """
    Print changes as they happen, until Ctrl-C.

    By whatever process they are made. With --json, one object a line. To go on later, use --name, or give --after the last
    position printed.
    """
    # Ctrl-C reaches every process of the foreground group, the embedded server among them; the log stays sound.
    with contextlib.suppress(KeyboardInterrupt), ledger_at(settings) as ledger:
        feed = ledger.feed(after, name=name, share=share, chat_id=chat_id, user_id=user_id, topics=topics or None)
        if sys.stderr.isatty():
            print_note(f"watching {ledger.location}, Ctrl-C ends it")
        with feed:
            printed: Recorded | None = None
            words = EventWords()
            # The usual end.
            with contextlib.suppress(KeyboardInterrupt):
                for recorded in islice(feed, limit):
                    with _uninterrupted():
                        if settings.as_json:
                            print_json(fields_of(recorded))
                        else:
                            print_lines([event_line(recorded, words, with_chat=chat_id is None)])
                        sys.stdout.flush()  # what was acknowledged is never printed again, so it has to be out before
                        printed = recorded
            if printed is not None:
                feed.ack(printed.position)


@contextlib.contextmanager
def _uninterrupted() -> Generator[None]:
    """Let Ctrl-C wait until the end, so that what is printed and what is known to be printed are the same."""
    if threading.current_thread() is not threading.main_thread():  # Python lets no other thread handle signals
        yield
        return
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts:
        raise KeyboardInterrupt


@click.command("feeds")
@click.option("--forget", "forgotten", metavar="NAME", help="Forget this name: it begins anew.")
@listing_options
def feeds_command(settings: GlobalOptions, *, forgotten: str | None) -> None:
    """
    List the named feeds, with what they have handled and how far the log is ahead.

    A name read in shares has a line for each.
    """
    with ledger_at(settings) as ledger:
        if forgotten is not None and not ledger.forget_feed(forgotten):
            msg = f"there is no feed {forgotten!r}; 'chatledger feeds' lists them"
            raise NotFoundError(msg)
        infos = ledger.feeds()
    if settings.for_programs:
        print_values(infos, FeedInfo, as_csv=settings.as_csv)
    elif forgotten is not None:
        print_text(f"Forgot the feed {forgotten}.")
    elif infos:
        print_lines(map(_line, infos), is_cut=True)
    else:
        print_note("no feed has a name yet; 'chatledger watch --name NAME' makes one")


def _line(info: FeedInfo) -> Text:
    share = "" if info.share is None else f" {info.share[0]}/{info.share[1]}"
    lag = f"{count(info.lag, 'position')} behind" if info.lag else "up to date"
    return Text.assemble(
        (escaped(f"{info.name}{share}"), "bold"),
        f"  at {info.position:,}, {lag}  ",
        (format_time(info.saved_at), "dim"),
    )

"""`log` and `watch`: what happened, and what happens."""

import contextlib
import sys
from collections.abc import Iterable
from datetime import datetime
from itertools import islice

import click

from chatledger.domain.events import Recorded

from ..ledger import Ledger
from .events import event_line
from .lookup import unknown_chat
from .options import (
    Settings,
    after_option,
    json_option,
    ledger_at,
    limit_option,
    location_option,
    until_option,
)
from .output import print_json, print_lines, print_note


@click.command("log")
@click.argument("chat_id", metavar="[CHAT]", required=False)
@after_option
@until_option
@limit_option("events, the first ones")
@json_option
@location_option()
@click.pass_obj
def log_command(
    settings: Settings,
    *,
    chat_id: str | None,
    after: int | None,
    until: int | datetime | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """
    Print the history of one chat, or of all.

    Each event has its position on the log, time (UTC), actor, and what it did. With --json, one object a line, with the hash chain.
    """
    with ledger_at(settings) as ledger:
        if chat_id is not None:
            require_history(ledger, chat_id)
        events = ledger.history(chat_id, after=after or 0, until=until)
        _print_events(islice(events, limit), as_json=as_json, with_chat=chat_id is None)


@click.command("watch")
@click.option("--chat", "chat_id", metavar="CHAT", help="Only events of this chat.")
@click.option("--user", "user_id", metavar="ID", help="Only events of this owner's chats.")
@click.option(
    "--after",
    type=click.IntRange(min=0),
    metavar="POSITION",
    help="Begin after this position on the log: 0 for all there ever were. From now on by default.",
)
@limit_option("events, then end")
@json_option
@location_option()
@click.pass_obj
def watch_command(
    settings: Settings,
    *,
    chat_id: str | None,
    user_id: str | None,
    after: int | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """
    Print changes as they happen, until Ctrl-C.

    By whatever process they are made. With --json, one object a line. To go on later, give --after the last position printed.
    """
    with contextlib.suppress(KeyboardInterrupt), ledger_at(settings, create=True) as ledger:
        events = ledger.feed(after, chat_id=chat_id, user_id=user_id)
        if sys.stderr.isatty():
            print_note(f"watching {ledger.location}, Ctrl-C ends it")
        _print_events(islice(events, limit), as_json=as_json, with_chat=chat_id is None, flush=True)


def require_history(ledger: Ledger, chat_id: str) -> None:
    """Raises `NotFoundError` when the log has nothing about a chat, not even that it was deleted."""
    if next(ledger.history(chat_id), None) is None:
        raise unknown_chat(ledger, chat_id)


def _print_events(events: Iterable[Recorded], *, as_json: bool, with_chat: bool, flush: bool = False) -> None:
    for recorded in events:
        if as_json:
            print_json(recorded.to_dict())
        else:
            print_lines([event_line(recorded, with_chat=with_chat)])
        if flush:
            sys.stdout.flush()

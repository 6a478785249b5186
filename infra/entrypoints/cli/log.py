"""`log`: what happened."""

from collections.abc import Iterable
from datetime import datetime
from itertools import islice

import click

from chatledger.domain.chat.events import Recorded

from ...ledger.ledger import Ledger
from .events import event_line
from .lookup import unknown_chat
from .options import (
    Settings,
    after_option,
    json_option,
    ledger_at,
    limit_option,
    location_option,
    since_option,
    until_option,
)
from .output import print_json, print_lines


@click.command("log")
@click.argument("chat_id", metavar="[CHAT]", required=False)
@click.option("--user", "user_id", metavar="ID", help="Only events of this owner's chats.")
@click.option(
    "--topic",
    "topics",
    metavar="TYPE",
    multiple=True,
    help="Only events of this type, e.g. chat_deleted. May be repeated.",
)
@click.option("--actor", metavar="NAME", help="Only what was done in this name.")
@after_option
@since_option
@until_option
@limit_option("events, the first ones")
@json_option
@location_option()
@click.pass_obj
def log_command(
    settings: Settings,
    *,
    chat_id: str | None,
    user_id: str | None,
    topics: tuple[str, ...],
    actor: str | None,
    after: int | None,
    since: datetime | None,
    until: int | datetime | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """
    Print the history of one chat, or of all.

    Each event has its position on the log, time (UTC), actor, and what it did; and what it belongs to and was caused by, where
    that was said. With --json, one object a line, with the hash chain.
    """
    with ledger_at(settings) as ledger:
        if chat_id is not None:
            require_history(ledger, chat_id)
        events = ledger.history(
            chat_id,
            after=after or 0,
            until=until,
            since=since,
            user_id=user_id,
            topics=topics or None,
            actor=actor,
        )
        _print_events(islice(events, limit), as_json=as_json, with_chat=chat_id is None)


def require_history(ledger: Ledger, chat_id: str) -> None:
    """Raises `NotFoundError` when the log has nothing about a chat, not even that it was deleted."""
    if next(ledger.history(chat_id), None) is None:
        raise unknown_chat(ledger, chat_id)


def _print_events(events: Iterable[Recorded], *, as_json: bool, with_chat: bool) -> None:
    for recorded in events:
        if as_json:
            print_json(recorded.to_dict())
        else:
            print_lines([event_line(recorded, with_chat=with_chat)])

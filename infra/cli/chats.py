"""`chats`: which conversations there are."""

import re
from itertools import islice
from typing import Any

import click
import msgspec
from rich.table import Table
from rich.text import Text

from chatledger.domain.errors import ChatNotFoundError
from chatledger.domain.values import Chat

from ..drawing import flat
from .lookup import unknown_chat
from .options import Settings, json_option, ledger_at, limit_option, location_option
from .output import console, count, fields_of, format_minute, print_json_list, print_text

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class MetadataEntry(click.ParamType):
    """`KEY=VALUE`."""

    name = "entry"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str | float]:
        """The value is a text, unless it reads as a JSON number, true or false; a text in quotes always is one."""
        key, equals, text = str(value).partition("=")
        if not key or not equals:
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        if _NUMBER.fullmatch(text) or text in {"true", "false"} or (len(text) > 1 and text[0] == text[-1] == '"'):
            try:
                return key, msgspec.json.decode(text, type=str | bool | int | float)
            except msgspec.DecodeError:
                return key, text
        return key, text


@click.command("chats")
@click.option("--user", "user_id", metavar="ID", help="Only chats of this owner.")
@click.option(
    "--meta",
    type=MetadataEntry(),
    metavar="KEY=VALUE",
    help="Only chats with this entry in their metadata. Numbers, true and false are such, unless quoted: 'year=\"2026\"'.",
)
@limit_option("chats")
@click.option("--after", metavar="CHAT", help="Only those listed after this chat: the last one of the page before.")
@json_option
@location_option()
@click.pass_obj
def chats_command(
    settings: Settings,
    *,
    user_id: str | None,
    meta: tuple[str, str | float] | None,
    limit: int | None,
    after: str | None,
    as_json: bool,
) -> None:
    """
    List the chats, those changed last first.

    With --json, an array with one chat a line.
    """
    with ledger_at(settings) as ledger:
        # One more than asked for tells whether there is another page.
        page = None if limit is None else limit + 1
        try:
            found = ledger.list_chats(user_id=user_id, metadata=meta, limit=page, after=after)
        except ChatNotFoundError:
            raise unknown_chat(ledger, str(after)) from None
        has_chats = bool(found) or bool(ledger.list_chats(limit=1))
    shown = list(islice(found, limit))
    if as_json:
        print_json_list(map(fields_of, shown))
    elif not found:
        print_text("No chat matches." if has_chats else "No chats yet: 'chatledger import FILE' takes some in.")
    else:
        console().print(chat_table(shown))
        if limit is not None and shown and len(found) > limit:
            print_text(f"More with --after {shown[-1].id}", "dim")


def chat_table(chats: list[Chat]) -> Table:
    """Chats as a table, ids whole."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("chat", no_wrap=True, style="cyan")
    table.add_column("title", no_wrap=True, overflow="ellipsis", ratio=1 if console().file.isatty() else None)
    table.add_column("owner", no_wrap=True, overflow="ellipsis", max_width=20 if console().file.isatty() else None)
    table.add_column("messages", justify="right", no_wrap=True)
    table.add_column("branches", justify="right", no_wrap=True)
    table.add_column("changed (UTC)", no_wrap=True, style="dim")
    for chat in chats:
        table.add_row(
            Text(flat(chat.id)),
            Text(flat(chat.title or "")),
            Text(flat(chat.user_id)),
            f"{chat.message_count:,}",
            f"{chat.branch_count:,}",
            format_minute(chat.updated_at),
        )
    return table


def chat_heading(chat: Chat, *, checkpoints: int) -> list[Text]:
    """What a chat is, on two lines."""
    numbers = (
        count(chat.message_count, "message"),
        count(chat.branch_count, "branch", "branches"),
        count(checkpoints, "checkpoint"),
    )
    facts = [f"chat {chat.id}", *([f"owner {chat.user_id}"] if chat.user_id else []), *numbers]
    return [Text(flat(chat.title or chat.id), style="bold"), Text(flat(" · ".join(facts)), style="dim")]

"""`edit` and `delete`: changing what there is about a chat, and removing chats and threads."""

import contextlib
import sys
from datetime import datetime
from typing import Any, Final

import click
import msgspec

from chatledger.domain.draw.outline import escaped
from chatledger.domain.values import Chat

from ...ledger.ledger import Ledger
from ...ledger.threads import Threads
from .lookup import others_of, require_chat, require_thread
from .options import GlobalOptions, aware_time, chat_argument, ledger_at, ledger_options, parsed
from .output import count, fields_of, print_json, print_text

_NEVER: Final = "never"
_DATA: Final = '{["'
_actor_option = click.option(
    "--actor", metavar="NAME", help="In whose name: the history says it, and 'log --actor NAME' finds it."
)


def _entry(value: str) -> tuple[str, Any]:
    """`KEY=JSON`. What is no JSON is text, if it does not look as if it was to be JSON."""
    key, is_pair, text = value.partition("=")
    if not key or not is_pair:
        raise ValueError
    try:
        return key, msgspec.json.decode(text)
    except msgspec.DecodeError:
        if text[:1] in _DATA and text:
            raise ValueError from None
        return key, text


def _entries(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    callback = parsed(_entry, 'is not KEY=JSON, e.g. stars=5, lang=de or \'tags=["a", "b"]\'')
    return dict(filter(None, (callback(ctx, parameter, value) for value in values)))


def _ending(value: str) -> tuple[datetime | None]:
    """The moment, or None for never: in a tuple, as None alone is the value of an option that was not given."""
    return (None if value == _NEVER else aware_time(value),)


def _in_name_of(ledger: Ledger, actor: str | None) -> contextlib.AbstractContextManager[object]:
    return contextlib.nullcontext() if actor is None else ledger.context(actor=actor)


@click.command("edit")
@chat_argument
@click.option("--title", metavar="TEXT", help="The new title; '' removes it.")
@click.option(
    "--metadata",
    "entries",
    metavar="KEY=JSON",
    multiple=True,
    callback=_entries,
    help="Set this entry of the metadata; the others stay. May be repeated. Text needs no quotes.",
)
@click.option("--remove", "removed", metavar="KEY", multiple=True, help="Remove this entry. May be repeated.")
@click.option(
    "--expires",
    "ending",
    metavar="TIME|never",
    callback=parsed(_ending, "is neither a time, e.g. 2026-02-07T17:29:24Z, nor 'never'"),
    help="When the chat ends and 'sweep' deletes it (ISO 8601, UTC unless it has an offset).",
)
@_actor_option
@ledger_options
def edit_command(
    settings: GlobalOptions,
    *,
    chat_id: str,
    title: str | None,
    entries: dict[str, Any],
    removed: tuple[str, ...],
    ending: tuple[datetime | None] | None,
    actor: str | None,
    as_json: bool,
) -> None:
    """
    Change the title, the metadata or the end of CHAT, in one event.

    What is not named stays. Messages never change, and neither does the owner: a chat is its owner's for ever; with
    'export' and 'import --user', or fork_chat in Python, another user gets a copy. With --json, the chat afterwards.
    """
    if title is None and ending is None and not entries and not removed:
        msg = "say what to change: --title, --metadata, --remove or --expires"
        raise click.UsageError(msg, click.get_current_context())
    changes: dict[str, Any] = {} if title is None else {"title": title or None}
    if ending is not None:
        changes["expires_at"] = ending[0]

    # Made of the chat as it is at the commit, so that what others set meanwhile stays.
    def update(chat: Chat) -> dict[str, Any]:
        rest = {key: value for key, value in (chat.metadata or {}).items() if key not in removed}
        return changes | ({"metadata": (rest | entries) or None} if entries or removed else {})

    with ledger_at(settings) as ledger, _in_name_of(ledger, actor):
        before = require_chat(ledger, chat_id)
        after = ledger.update_chat(chat_id, updater=update)
    if as_json:
        print_json(fields_of(after))
        return
    names = ("title", "metadata", "expires_at")
    changed = [name.removesuffix("_at") for name in names if getattr(before, name) != getattr(after, name)]
    print_text(
        f"Changed {chat_id}: {', '.join(changed)}." if changed else f"Nothing changed: {chat_id} was so already."
    )


@click.command("delete")
@click.argument("chat_ids", metavar="[CHAT]...", nargs=-1)
@click.option(
    "--thread", "thread_ids", metavar="ID", multiple=True, help="Delete this thread of agents. May be repeated."
)
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@_actor_option
@ledger_options
def delete_command(
    settings: GlobalOptions,
    *,
    chat_ids: tuple[str, ...],
    thread_ids: tuple[str, ...],
    is_sure: bool,
    actor: str | None,
    as_json: bool,
) -> int:
    """
    Delete chats with everything in them, or threads of agents, and erase their content from the log and the index.

    A tombstone stays in the history: when, by whom, and how much. With a chat go the agents' threads and states of graphs
    that are its own. On a terminal it asks first; elsewhere it does nothing without --yes.
    """
    if not chat_ids and not thread_ids:
        msg = "name the chats, or threads with --thread"
        raise click.UsageError(msg, click.get_current_context())
    if not is_sure and not sys.stdin.isatty():
        msg = "delete asks before it deletes, and there is no terminal to ask at; give --yes if you are sure"
        raise click.UsageError(msg, click.get_current_context())
    with ledger_at(settings) as ledger, _in_name_of(ledger, actor):
        chats = [require_chat(ledger, chat_id) for chat_id in dict.fromkeys(chat_ids)]
        threads = [require_thread(ledger, thread_id) for thread_id in dict.fromkeys(thread_ids)]
        if not is_sure:
            lines: list[str] = []
            for chat in chats:
                title = f' "{chat.title}"' if chat.title else ""
                owner = f", owner {chat.user_id}" if chat.user_id else ""
                lines.append(f"chat {chat.id}{title}{owner}, {count(chat.message_count, 'message')}")
            lines += [f"thread {info.thread_id}, {count(info.checkpoint_count, 'checkpoint')}" for info in threads]
            for line in lines:
                click.echo(escaped(line), err=True)
            if not click.confirm("Delete and erase this? It cannot be undone", err=True):
                click.echo("Nothing was deleted.", err=True)
                return 1
        before = others_of(ledger)
        deleted = [chat.id for chat in chats if ledger.delete_chat(chat.id)]
        after = others_of(ledger)  # counted before the threads that were named go, as only what went along is told
        for info in threads:
            Threads(ledger).delete(info.thread_id)
        ledger.wait_erased()  # a command has no later at which it could say that something is left
    if as_json:
        print_json({"chats": deleted, "threads": [info.thread_id for info in threads]})
        return 0
    for chat_id in deleted:
        print_text(f"Deleted chat {chat_id}.")
    went = before.threads - after.threads, before.states - after.states
    if any(number > 0 for number in went):
        print_text(f"With it went {count(went[0], 'thread')} of agents and {count(went[1], 'state')} of graphs.")
    for info in threads:
        print_text(f"Deleted thread {info.thread_id}.")
    return 0

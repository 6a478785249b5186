"""`edit`, `delete`, `sweep` and `erasures`: changing what there is about a chat, and the end of chats and threads."""

import contextlib
import sys
from datetime import datetime
from typing import Any, Final

import click
import msgspec

from chatledger.domain.draw.outline import escaped
from chatledger.domain.values import Chat, Swept

from ...ledger.ledger import Ledger
from ...ledger.threads import Threads
from .lookup import others_of, require_chat, require_thread
from .options import GlobalOptions, aware_time, chat_argument, ledger_at, ledger_options, limit_option, parsed
from .output import count, fields_of, format_time, print_json, print_text

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
) -> None:
    """
    Change the title, the metadata or the end of CHAT, in one event.

    What is not named stays. Messages never change, and neither does the owner: a chat is its owner's for ever; with
    'export' and 'import --user', or fork_chat in Python, another user gets a copy. With --json, the chat afterwards.
    """
    if title is None and ending is None and not entries and not removed:
        click.get_current_context().fail("say what to change: --title, --metadata, --remove or --expires")
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
    names = ("title", "metadata", "expires_at")
    changed = [name.removesuffix("_at") for name in names if getattr(before, name) != getattr(after, name)]
    what = f"Changed {chat_id}: {', '.join(changed)}." if changed else f"Nothing changed: {chat_id} was so already."
    settings.answer(fields_of(after), what)


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
) -> int:
    """
    Delete chats with everything in them, or threads of agents, and erase their content from the log and the index.

    A tombstone stays in the history: when, by whom, and how much. With a chat go the agents' threads and states of graphs
    that are its own. On a terminal it asks first; elsewhere it does nothing without --yes.
    """
    if not chat_ids and not thread_ids:
        click.get_current_context().fail("name the chats, or threads with --thread")
    if not is_sure and not sys.stdin.isatty():
        why = "delete asks before it deletes, and there is no terminal to ask at; give --yes if you are sure"
        click.get_current_context().fail(why)
    with ledger_at(settings) as ledger, _in_name_of(ledger, actor):
        chats = [require_chat(ledger, chat_id) for chat_id in dict.fromkeys(chat_ids)]
        threads = [require_thread(ledger, thread_id) for thread_id in dict.fromkeys(thread_ids)]
        if not is_sure:
            for chat in chats:
                title = f' "{chat.title}"' if chat.title else ""
                owner = f", owner {chat.user_id}" if chat.user_id else ""
                what = f"chat {chat.id}{title}{owner}, {count(chat.message_count, 'message')}"
                click.echo(escaped(what), err=True)
            for info in threads:
                what = f"thread {info.thread_id}, {count(info.checkpoint_count, 'checkpoint')}"
                click.echo(escaped(what), err=True)
            if not click.confirm("Delete and erase this? It cannot be undone", err=True):
                click.echo("Nothing was deleted.", err=True)
                return 1
        before = others_of(ledger)
        deleted = [chat.id for chat in chats if ledger.delete_chat(chat.id)]
        after = others_of(ledger)  # counted before the threads that were named go, as only what went along is told
        for info in threads:
            Threads(ledger).delete(info.thread_id)
        ledger.wait_erased()  # a command has no later at which it could say that something is left
    lines = [f"Deleted chat {chat_id}." for chat_id in deleted]
    went = before.threads - after.threads, before.states - after.states
    if any(number > 0 for number in went):
        lines.append(f"With it went {count(went[0], 'thread')} of agents and {count(went[1], 'state')} of graphs.")
    lines += [f"Deleted thread {info.thread_id}." for info in threads]
    settings.answer({"chats": deleted, "threads": [info.thread_id for info in threads]}, *lines)
    return 0


@click.command("sweep")
@click.option("--dry-run", is_flag=True, help="Only say which chats are due.")
@limit_option("chats")
@ledger_options
def sweep_command(settings: GlobalOptions, *, dry_run: bool, limit: int | None) -> None:
    """
    Delete the chats that have ended: those whose 'expires_at' is past. Threads, states of graphs and items that expired go too.

    Their content is erased as by a deletion; the history says who did it: chatledger:sweeper. For a timer, such as cron.
    """
    with ledger_at(settings) as ledger:
        swept = Swept(chats=ledger.due_chats(limit=limit)) if dry_run else ledger.sweep(limit=limit)
        if not dry_run:
            ledger.wait_erased()
    if settings.as_json:
        print_json({"due": swept.chats} if dry_run else {"deleted": swept.chats, "versioned": swept.versioned})
        return
    for chat_id in swept.chats:
        print_text(chat_id)
    number = count(len(swept.chats), "chat")
    more = f", {swept.versioned:,} threads, states and items" if swept.versioned else ""
    print_text(f"{number} due." if dry_run else f"Deleted {number}{more}.", "dim")


@click.command("erasures")
@click.option("--pending", "is_pending", is_flag=True, help="Only those whose bytes are still to be erased.")
@click.option("--wait", "is_awaited", is_flag=True, help="First erase what is left to be erased.")
@ledger_options
def erasures_command(settings: GlobalOptions, *, is_pending: bool, is_awaited: bool) -> None:
    """
    Show the receipts of deletions: what was deleted when, and when its bytes were gone from the log and the index.

    Those of the last 30 days, the oldest first. What an interrupted process left is erased by opening the ledger, and so by this.
    """
    with ledger_at(settings) as ledger:
        if is_awaited:
            ledger.wait_erased()
        receipts = ledger.erasures(is_pending=True if is_pending else None)
    if settings.as_json:
        print_json([fields_of(receipt) for receipt in receipts])
        return
    for receipt in receipts:
        erased = "pending" if receipt.erased_at is None else f"erased {format_time(receipt.erased_at)}"
        print_text(
            f"{receipt.kind} {escaped(receipt.id)}  {count(receipt.event_count, 'event')}, "
            f"deleted {format_time(receipt.deleted_at)} at {receipt.position}, {erased}"
        )
    left = sum(receipt.erased_at is None for receipt in receipts)
    print_text(f"{count(len(receipts), 'deletion')}, {left} to be erased.", "dim")

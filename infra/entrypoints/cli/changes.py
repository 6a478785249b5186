"""`edit`, `delete`, `redact`, `sweep` and `erasures`: changing what there is about a chat, and the end of chats and threads."""

import contextlib
import itertools
import sys
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from chatledger.domain.draw.escaping import escaped
from chatledger.domain.proof.erasure_report import ErasureReport
from chatledger.domain.values import Chat

from ...ledger.graph.state_store import StateStore
from ...ledger.ledger import Ledger
from ...ledger.threads import Threads
from .lookup import others_of, require_chat, require_item, require_state, require_thread
from .options import ID, GlobalOptions, chat_argument, ending_of, ledger_at, ledger_options, limit_option, parsed
from .output import count, fields_of, format_time, print_json, print_text
from .proofs import FILE, refuse_to_overwrite, write_new

_DATA: Final = '{["'
actor_option = click.option(
    "--actor", metavar="NAME", help="In whose name: the history says it, and 'log --actor NAME' finds it."
)
"""`--actor`, of verbs that change what is there."""


def _entry(value: str) -> tuple[str, Any]:
    """`KEY=JSON`. What is no JSON is text, if it does not look as if it was to be JSON."""
    key, is_pair, text = value.partition("=")
    if not key or not is_pair:
        raise ValueError
    try:
        return key, msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        if text[:1] in _DATA and text:
            raise ValueError from None
        return key, text


def _entries(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    callback = parsed(_entry, 'is not KEY=JSON, e.g. stars=5, lang=de or \'tags=["a", "b"]\'')
    return dict(filter(None, (callback(ctx, parameter, value) for value in values)))


def _path(value: str) -> list[str | int]:
    """`parts.0.text` as keys and numbers."""
    return [int(step) if step.isdecimal() else step for step in value.split(".")]


def in_name_of(ledger: Ledger, actor: str | None) -> contextlib.AbstractContextManager[object]:
    """The context in which changes are by an actor; None for whoever they are by anyway."""
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
    callback=parsed(ending_of, "is neither a time, e.g. 2026-02-07T17:29:24Z, nor 'never'"),
    help="When the chat ends and 'sweep' deletes it (ISO 8601, UTC unless it has an offset).",
)
@actor_option
@ledger_options
def edit_command(
    settings: GlobalOptions,
    *,
    chat_id: str,
    title: str | None,
    entries: dict[str, Any],
    removed: tuple[str, ...],
    ending: tuple[int | None] | None,
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

    with ledger_at(settings) as ledger, in_name_of(ledger, actor):
        before = require_chat(ledger, chat_id)
        after = ledger.update_chat(chat_id, updater=update)
    names = ("title", "metadata", "expires_at")
    changed = [name.removesuffix("_at") for name in names if getattr(before, name) != getattr(after, name)]
    what = f"Changed {chat_id}: {', '.join(changed)}." if changed else f"Nothing changed: {chat_id} was so already."
    settings.answer(fields_of(after), what)


@click.command("delete")
@click.argument("chats", metavar="[CHAT]...", type=ID, nargs=-1)
@click.option("--thread", "threads", type=ID, multiple=True, help="Delete this thread of agents. May be repeated.")
@click.option("--state", "states", type=ID, multiple=True, help="Delete this state of a graph. May be repeated.")
@click.option("--item", "items", type=ID, multiple=True, help="Delete this item. May be repeated.")
@click.option("--user", "user_id", type=ID, help="Erase this user: all chats, threads, states and items of theirs.")
@click.option(
    "--dry-run", is_flag=True, help="With --user: only say what would be erased, and who names the user elsewhere."
)
@click.option(
    "--pseudonym", metavar="NAME", help="With --user: put this in place of the user's name in chats of others."
)
@click.option(
    "--key", type=FILE, metavar="FILE", help="With --user: sign the report with this Ed25519 private key (PEM)."
)
@click.option("--receipt", type=FILE, metavar="FILE", help="With --user: where the report goes, a new file.")
@click.option("-y", "--yes", "is_sure", is_flag=True, help="Do not ask.")
@actor_option
@ledger_options
def delete_command(
    settings: GlobalOptions,
    *,
    user_id: str | None,
    dry_run: bool,
    pseudonym: str | None,
    key: Path | None,
    receipt: Path | None,
    is_sure: bool,
    actor: str | None,
    **named: tuple[str, ...],
) -> int:
    """
    Delete chats with everything in them, threads of agents, states of graphs, items, or all of a user, and erase their content from the log and the index.

    A tombstone stays in the history: when, by whom, and how much. With a chat go the agents' threads and states of graphs
    that are its own. On a terminal it asks first; elsewhere it does nothing without --yes.
    """
    if user_id is None and (dry_run or pseudonym is not None or key is not None or receipt is not None):
        click.get_current_context().fail("--dry-run, --pseudonym, --key and --receipt go with --user")
    if user_id is not None and any(named.values()):
        click.get_current_context().fail(
            "--user erases all of a user; name chats, threads, states and items in another call"
        )
    if user_id is None and not any(named.values()):
        click.get_current_context().fail(
            "name the chats, threads with --thread, states with --state, items with --item, or a user with --user"
        )
    if receipt is not None:
        refuse_to_overwrite(receipt)
    with ledger_at(settings, is_whole=user_id is not None) as ledger, in_name_of(ledger, actor):
        if user_id is None:
            ids = {kind: [*dict.fromkeys(named[kind])] for kind in ("chats", "threads", "states", "items")}
            return _delete_named(settings, ledger, ids, is_sure=is_sure)
        if not (is_sure or dry_run):
            would = _erased(ledger.erase_user(user_id, dry_run=True))
            if not _confirms(f"{escaped(would)}\nErase this?"):
                return 1
        report = ledger.erase_user(user_id, dry_run=dry_run, pseudonym=pseudonym, key=key)
    if receipt is not None:
        write_new(receipt, report.to_json(), None if settings.as_json else f"The receipt is {receipt}.")
    lines = [_erased(report)]
    if report.held:
        lines.append(f"Held, and not erased: {count(len(report.held), 'thing')}; 'chatledger holds' lists why.")
    lines += [
        f"{mention.kind} in chat {mention.chat_id}: {mention.count:,}{called}"
        for mentions, called in ((report.mentions, ""), (report.pseudonymised, f", now {pseudonym}"))
        for mention in mentions
    ]
    lines += [f"Not reached: {what}." for what in report.unreached]
    settings.answer(fields_of(report), *map(escaped, lines))
    return 0


def _delete_named(settings: GlobalOptions, ledger: Ledger, ids: dict[str, list[str]], *, is_sure: bool) -> int:
    chats = [require_chat(ledger, chat_id) for chat_id in ids["chats"]]
    threads = [require_thread(ledger, thread_id) for thread_id in ids["threads"]]
    states = [require_state(ledger, state_id) for state_id in ids["states"]]
    items = [require_item(ledger, some_id) for some_id in ids["items"]]
    if not is_sure:
        what = [*map(_of_chat, chats)]
        what += [f"thread {info.thread_id}, {count(info.checkpoint_count, 'checkpoint')}" for info in threads]
        what += [f"state {state.id}, {count(state.version, 'version')}" for state in states]
        what += [f"item {some_id}" for some_id in ids["items"]]
        if not _confirms("\n".join([*map(escaped, what), "Delete and erase this?"]), "deleted"):
            return 1
    before = others_of(ledger)
    gone = ids | {"chats": [chat.id for chat in chats if ledger.delete_chat(chat.id)]}
    after = others_of(ledger)  # counted before what was named goes, as only what went along is told
    for info in threads:
        Threads(ledger).delete(info.thread_id)
    for state in states:
        StateStore(ledger).delete(state.id)
    for store, item in items:
        store.delete(item.namespace, item.key)
    ledger.wait_erased()  # a command has no later at which it could say that something is left
    lines = {
        kind: [f"Deleted {kind.removesuffix('s')} {some_id}." for some_id in names] for kind, names in gone.items()
    }
    went = before.threads - after.threads, before.states - after.states
    if any(number > 0 for number in went):
        lines["chats"].append(
            f"With it went {count(went[0], 'thread')} of agents and {count(went[1], 'state')} of graphs."
        )
    settings.answer(gone, *itertools.chain(*lines.values()))
    return 0


def _confirms(question: str, done: str = "erased") -> bool:
    """Ask before something is erased; whether that was confirmed. Fails where there is no terminal to ask at."""
    context = click.get_current_context()
    if not sys.stdin.isatty():
        context.fail(
            f"{context.info_name} asks before it erases, and there is no terminal to ask at; give --yes if you are sure"
        )
    is_sure = click.confirm(f"{question} It cannot be undone", err=True)
    if not is_sure:
        click.echo(f"Nothing was {done}.", err=True)
    return is_sure


def _of_chat(chat: Chat) -> str:
    title = f' "{chat.title}"' if chat.title else ""
    owner = f", owner {chat.user_id}" if chat.user_id else ""
    return f"chat {chat.id}{title}{owner}, {count(chat.message_count, 'message')}"


def _erased(report: ErasureReport) -> str:
    numbers = ", ".join(count(number, kind) for kind, number in report.counts.items()) or "nothing"
    earlier = f" Erased before: {count(len(report.earlier), 'thing')}." if report.earlier else ""
    return f"{'Would erase' if report.is_dry_run else 'Erased'} of user {report.user_id}: {numbers}.{earlier}"


@click.command("sweep")
@click.option("--dry-run", is_flag=True, help="Only say what is due.")
@limit_option("chats")
@ledger_options
def sweep_command(settings: GlobalOptions, *, dry_run: bool, limit: int | None) -> None:
    """
    Delete the chats that have ended: those whose 'expires_at' is past. Threads, states of graphs and items that expired go too, and what
    a rule of 'retention' keeps no longer.

    Their content is erased as by a deletion; the history says who did it: chatledger:sweeper. For a timer, such as cron.
    """
    with ledger_at(settings) as ledger:
        swept = ledger.sweep(limit=limit, dry_run=dry_run)
        if not dry_run:
            ledger.wait_erased()
    if settings.as_json:
        numbers = {"versioned": swept.versioned, "messages": swept.messages, "versions": swept.versions}
        print_json({"due" if dry_run else "deleted": swept.chats, **numbers})
        return
    for chat_id in swept.chats:
        print_text(chat_id)
    number = count(len(swept.chats), "chat")
    more = f", {swept.versioned:,} threads, states and items" if swept.versioned else ""
    more += f", the content of {count(swept.messages, 'message')}" if swept.messages else ""
    more += f", the content of {count(swept.versions, 'version')}" if swept.versions else ""
    print_text(f"{number}{more} due." if dry_run else f"Deleted {number}{more}.", "dim")


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


@click.command("redact")
@click.argument("message_ids", metavar="MESSAGE...", nargs=-1, required=True)
@click.option("--keep", metavar="TEXT", help="Put this text in the place of what is erased.")
@click.option(
    "--part",
    metavar="PATH",
    callback=parsed(_path, "is no path, e.g. parts.0.text"),
    help="Erase only this part of the data: keys and numbers, joined by dots, e.g. parts.0.text.",
)
@click.option("--reason", metavar="TEXT", help="Why. It stays, so it says nothing of what was there.")
@click.option("--no-copies", is_flag=True, help="Leave the copies of the messages in forks as they are.")
@click.option("--versions", is_flag=True, help="Erase the other versions of the messages too, as before an edit.")
@click.option("-y", "--yes", "is_sure", is_flag=True, help="Do not ask.")
@actor_option
@ledger_options
def redact_command(
    settings: GlobalOptions,
    *,
    message_ids: tuple[str, ...],
    keep: str | None,
    part: list[str | int] | None,
    reason: str | None,
    no_copies: bool,
    versions: bool,
    is_sure: bool,
    actor: str | None,
) -> int:
    """
    Erase what messages say for ever: from the log, the index and the searches, and in their copies too.

    Each stays in its place, with its id, time and role, and says that it is redacted. On a terminal it asks first; elsewhere it does
    nothing without --yes.
    """
    if not is_sure and not _confirms(f"Erase what {count(len(message_ids), 'message')} say?"):
        return 1
    with ledger_at(settings) as ledger, in_name_of(ledger, actor):
        redacted = ledger.redact(
            message_ids, keep=keep, part=part, reason=reason, copies=not no_copies, versions=versions
        )
    copies = f", {len(redacted.copies):,} of them copies" if redacted.copies else ""
    lines = [f"Redacted {count(len(redacted.message_ids), 'message')}{copies}."]
    if redacted.held:
        lines.append(f"A legal hold keeps copies in chats {', '.join(map(escaped, redacted.held))}.")
    if redacted.may_quote:
        lines.append(f"States of agents may quote them: runs {', '.join(map(escaped, redacted.may_quote))}.")
    settings.answer(fields_of(redacted), *lines)
    return 0


@click.command("redact-words")
@chat_argument
@click.option("--reason", metavar="TEXT", help="Why. It stays, so it says nothing of what was there.")
@click.option("-y", "--yes", "is_sure", is_flag=True, help="Do not ask.")
@actor_option
@ledger_options
def redact_words_command(
    settings: GlobalOptions, *, chat_id: str, reason: str | None, is_sure: bool, actor: str | None
) -> int:
    """
    Erase what CHAT was called and what was noted on it before: titles, metadata, annotations, names of branches and checkpoints.

    What stands now stays: change it first, or rename or delete the branch. With --json, the number of events that lost words.
    """
    if not is_sure and not _confirms(f"Erase the earlier words of chat {escaped(chat_id)}?"):
        return 1
    with ledger_at(settings) as ledger, in_name_of(ledger, actor):
        require_chat(ledger, chat_id)
        event_count = ledger.redact_words(chat_id, reason=reason)
    settings.answer({"event_count": event_count}, f"Redacted the words of {count(event_count, 'event')}.")
    return 0

"""`hold`, `release`, `holds` and `retention`: what is kept whatever anybody deletes, and how long what is kept otherwise."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from chatledger.domain.draw.escaping import escaped
from chatledger.domain.legal_hold import HoldKind, LegalHold
from chatledger.domain.retention import KINDS, RetentionRule

from .changes import actor_option, in_name_of
from .chats import metadata_entry
from .lookup import require_chat, require_item, require_state, require_thread
from .options import ID, F, GlobalOptions, WholeNumber, ledger_at, ledger_options, listing_options, parsed
from .output import column, count, fields_of, format_time


def _entries(
    ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> list[tuple[str, str | float] | None]:
    callback = parsed(metadata_entry, "is not KEY=VALUE")
    return [callback(ctx, parameter, value) for value in values]


def _target_options(function: F) -> F:
    """The options by which one chat, thread, state, item or user is named."""
    for name, what in (
        ("user", "user: all that is theirs, also what begins later"),
        ("item", "item"),
        ("state", "state of a graph"),
        ("thread", "thread of agents"),
    ):
        function = click.option(f"--{name}", f"{name}_id", type=ID, help=f"This {what}.")(function)
    return click.argument("chat_id", metavar="[CHAT]", type=ID, required=False)(function)


def _target(ids: Mapping[str, str | None]) -> tuple[HoldKind, str]:
    """Return the kind and the id of the one thing that is named."""
    named = [(name.removesuffix("_id"), some_id) for name, some_id in ids.items() if some_id is not None]
    if len(named) != 1:
        click.get_current_context().fail("name a chat, or one thing with --thread, --state, --item or --user")
    return named[0]  # type: ignore[return-value]  # the options are the kinds


@click.command("hold")
@_target_options
@click.option("--reason", metavar="TEXT", help="Why: whoever may read what is held may read this.")
@actor_option
@ledger_options
def hold_command(
    settings: GlobalOptions,
    *,
    reason: str | None,
    actor: str | None,
    **ids: str | None,
) -> None:
    """
    Put a legal hold on CHAT, a thread, a state, an item or a user: nothing of it is deleted, erased, or expires, until 'release'.

    A chat is held with its thread and the states of its conversation. The history says who put it, when and why. Reading and writing
    go on. With --json, the hold.
    """
    kind, some_id = _target(ids)
    with ledger_at(settings, is_whole=True) as ledger, in_name_of(ledger, actor):
        # For their errors, which say what is there instead.
        require = {"chat": require_chat, "thread": require_thread, "state": require_state, "item": require_item}.get(
            kind
        )
        if require is not None:
            require(ledger, some_id)
        hold = ledger.hold(kind, some_id, reason=reason)
    settings.answer(fields_of(hold), f"Held {kind} {escaped(some_id)} since {format_time(hold.held_at)}.")


@click.command("release")
@_target_options
@actor_option
@ledger_options
def release_command(
    settings: GlobalOptions,
    *,
    actor: str | None,
    **ids: str | None,
) -> None:
    """
    Release the legal hold on CHAT, a thread, a state, an item or a user. What another hold covers stays held.

    What was due meanwhile goes with the next sweep. With --json, whether there was one.
    """
    kind, some_id = _target(ids)
    with ledger_at(settings, is_whole=True) as ledger, in_name_of(ledger, actor):
        is_released = ledger.release(kind, some_id)
    done = f"Released {kind} {escaped(some_id)}." if is_released else f"There was no hold on {kind} {escaped(some_id)}."
    settings.answer({"released": is_released}, done)


@click.command("holds")
@listing_options
def holds_command(settings: GlobalOptions) -> None:
    """List the legal holds that are in force, the last put first: what is held, since when, by whom and why."""
    with ledger_at(settings, is_whole=True, is_read=True) as ledger:
        holds = ledger.holds()
    columns = [
        column("held", [hold.kind for hold in holds]),
        column("id", [hold.id for hold in holds], style="cyan"),
        column("since (UTC)", [format_time(hold.held_at) for hold in holds], style="dim"),
        column("by", [hold.held_by or "" for hold in holds]),
        column("reason", [hold.reason or "" for hold in holds]),
    ]
    settings.answer_list(holds, LegalHold, columns, end=f"{count(len(holds), 'hold')}.")


@click.group("retention", subcommand_metavar="set|list|remove [ARGS]...")
def retention_command() -> None:
    """
    Set, list and remove retention rules: how long chats, threads, states and items are kept.

    \b
    For example:
        chatledger retention set default --days 90
        chatledger retention set support --meta class=support --days 30
        chatledger retention set ada --user ada --for-ever
        chatledger retention set memories --kind item --days 365
        chatledger retention set tools --content --role tool --days 7
        chatledger retention set steps --kind thread --versions --keep-last 5 --days 30

    Of the rules that fit a chat the most specific decides. 'sweep' deletes what is over, and 'sweep --dry-run' says what that would be.
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines


@retention_command.command("set")
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), default="chat", help="What the rule is about; chats without it.")
@click.option(
    "--days", "keep_days", type=float, metavar="N", help="How many days that is kept, which may be fractions."
)
@click.option("--for-ever", is_flag=True, help="It is kept for ever, whatever a less specific rule says.")
@click.option(
    "--since",
    type=click.Choice(("updated", "created")),
    default="updated",
    help="From when the days count: the last message or other change, or the creation of a chat.",
)
@click.option("--user", "user_id", type=ID, help="Only what this user owns.")
@click.option(
    "--meta",
    "entries",
    callback=_entries,
    metavar="KEY=VALUE",
    multiple=True,
    help="Only chats with this entry in their metadata. May be repeated.",
)
@click.option(
    "--content", "is_content", is_flag=True, help="Redact the messages, and keep the chat with its structure."
)
@click.option(
    "--versions",
    "is_versions",
    is_flag=True,
    help="Take the content from earlier versions of threads, states or items, so many days after newer ones came.",
)
@click.option(
    "--keep-last",
    type=WholeNumber(1),
    metavar="N",
    default=1,
    help="With --versions: how many stay whatever their age, the newest ones; 1 without it.",
)
@click.option(
    "--role",
    "roles",
    metavar="NAME",
    multiple=True,
    help="With --content: only messages of this role. May be repeated.",
)
@actor_option
@ledger_options
def set_command(
    settings: GlobalOptions,
    *,
    name: str,
    keep_days: float | None,
    for_ever: bool,
    entries: Sequence[tuple[str, str | float]],
    is_content: bool,
    is_versions: bool,
    actor: str | None,
    **terms: Any,
) -> None:
    """Set the rule NAME, or set it anew. With --json, the rule."""
    if (keep_days is None) != for_ever:
        click.get_current_context().fail("say how long that is kept: --days N, or --for-ever")
    if is_content and is_versions:
        click.get_current_context().fail(
            "--content is about messages of chats, --versions about what agents keep: give one of the two"
        )
    with ledger_at(settings, is_whole=True) as ledger, in_name_of(ledger, actor):
        rule = ledger.set_retention(
            name,
            keep_days=keep_days,
            metadata=dict(entries) or None,
            erases="content" if is_content else "versions" if is_versions else "all",
            **terms,
        )
    settings.answer(fields_of(rule), f"Set rule {escaped(name)}: {escaped(_rule_words(rule))}.")


@retention_command.command("list")
@listing_options
def list_command(settings: GlobalOptions) -> None:
    """List the rules, by name."""
    with ledger_at(settings, is_whole=True, is_read=True) as ledger:
        rules = ledger.retention()
    columns = [
        column("rule", [rule.name for rule in rules], style="cyan"),
        column("what", [_rule_words(rule) for rule in rules]),
    ]
    settings.answer_list(rules, RetentionRule, columns, end=f"{count(len(rules), 'rule')}.")


@retention_command.command("remove")
@click.argument("name")
@actor_option
@ledger_options
def remove_command(settings: GlobalOptions, *, name: str, actor: str | None) -> None:
    """Remove the rule NAME; what it said when stays in the history. With --json, whether there was one."""
    with ledger_at(settings, is_whole=True) as ledger, in_name_of(ledger, actor):
        is_removed = ledger.remove_retention(name)
    done = f"Removed rule {escaped(name)}." if is_removed else f"There was no rule {escaped(name)}."
    settings.answer({"removed": is_removed}, done)


def _rule_words(rule: RetentionRule) -> str:
    """A line that says what a rule does."""
    whose = "" if rule.user_id is None else f" of {rule.user_id}"
    which = "".join(f" with {key}={value}" for key, value in (rule.metadata or {}).items())
    if rule.erases == "content":
        what = f"the content of {' and '.join(rule.roles) or 'all'} messages in chats{whose}{which}"
        return f"{what} is kept " + ("for ever" if rule.keep_days is None else f"for {rule.keep_days:g} days")
    if rule.erases == "versions":
        stays = "the newest one" if rule.keep_last == 1 else f"the newest {rule.keep_last:,}"
        until = "for ever" if rule.keep_days is None else f"for {rule.keep_days:g} days after newer ones came"
        return f"earlier versions of {rule.kind}s{whose} are kept {until}; {stays} always"
    since = "their last change" if rule.since == "updated" else "they began"
    how_long = "for ever" if rule.keep_days is None else f"for {rule.keep_days:g} days since {since}"
    return f"{rule.kind}s{whose}{which} are kept {how_long}"

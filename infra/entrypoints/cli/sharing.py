"""`links` and `members`: who may read one chat besides its owner, anybody by a link or users by name."""

import click

from chatledger.domain.chat.members import ROLES
from chatledger.domain.draw.escaping import escaped
from chatledger.domain.values import Link, Member, MemberRole

from .changes import actor_option, in_name_of
from .lookup import require_chat
from .options import ID, GlobalOptions, chat_argument, ledger_at, ledger_options, listing_options
from .output import column, count, fields_of, format_time


@click.group("links", subcommand_metavar="create|list|revoke [ARGS]...")
def links_command() -> None:
    """
    Make, list and revoke links by which anybody reads a chat without signing in, where 'serve' or 'explore' runs.

    \b
    For example:
        chatledger links create trip --days 7
        chatledger links list trip
        chatledger links revoke trip 618d9ed031bf236c
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines


@links_command.command("create")
@chat_argument
@click.option("--branch", metavar="NAME", type=ID, help="Only this branch; all of them without it.")
@click.option("--until", metavar="MESSAGE", help="Only the messages up to this one, whatever is said later.")
@click.option(
    "--days",
    type=float,
    metavar="N",
    help="How many days it holds, which may be fractions; until it is revoked without it.",
)
@actor_option
@ledger_options
def create_command(
    settings: GlobalOptions,
    *,
    chat_id: str,
    branch: str | None,
    until: str | None,
    days: float | None,
    actor: str | None,
) -> None:
    """
    Make a link to CHAT, and print its path, which nobody is told again: put the address of your server before it.

    Whoever has it reads the messages and their files, and nothing else. With --json, the link.
    """
    with ledger_at(settings) as ledger, in_name_of(ledger, actor):
        require_chat(ledger, chat_id)
        ttl_seconds = None if days is None else days * 86400
        link = ledger.create_link(chat_id, branch=branch, until=until, ttl_seconds=ttl_seconds)
    settings.answer(fields_of(link), link.path or "")


@links_command.command("list")
@chat_argument
@listing_options
def list_command(settings: GlobalOptions, *, chat_id: str) -> None:
    """List the links that open CHAT now, the first made first."""
    with ledger_at(settings, is_read=True) as ledger:
        require_chat(ledger, chat_id)
        links = ledger.links(chat_id)
    shown = [f"up to {link.until}" if link.until else link.branch or "all branches" for link in links]
    ends = ["when revoked" if link.expires_at is None else format_time(link.expires_at) for link in links]
    columns = [
        column("link", [link.id for link in links], style="cyan"),
        column("shows", shown),
        column("made (UTC)", [format_time(link.created_at) for link in links], style="dim"),
        column("over (UTC)", ends, style="dim"),
    ]
    settings.answer_list(links, Link, columns, end=f"{count(len(links), 'link')}.")


@links_command.command("revoke")
@chat_argument
@click.argument("link_id", metavar="LINK")
@actor_option
@ledger_options
def revoke_command(settings: GlobalOptions, *, chat_id: str, link_id: str, actor: str | None) -> None:
    """Revoke the LINK of this id to CHAT: it opens nothing any more. With --json, whether there was one."""
    with ledger_at(settings) as ledger, in_name_of(ledger, actor):
        require_chat(ledger, chat_id)
        is_revoked = ledger.revoke_link(chat_id, link_id)
    done = f"Revoked link {escaped(link_id)}." if is_revoked else f"There was no link {escaped(link_id)}."
    settings.answer({"revoked": is_revoked}, done)


@click.group("members", subcommand_metavar="set|list|remove [ARGS]...")
def members_command() -> None:
    """
    Say which users may read a chat, or write to it, besides its owner.

    \b
    For example:
        chatledger members set trip bob reader
        chatledger members list trip
        chatledger members remove trip bob
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines


@members_command.command("set")
@chat_argument
@click.argument("user_id", metavar="USER", type=ID)
@click.argument("role", type=click.Choice(ROLES))
@actor_option
@ledger_options
def set_member_command(
    settings: GlobalOptions, *, chat_id: str, user_id: str, role: MemberRole, actor: str | None
) -> None:
    """Make USER a member of CHAT, or give a member another role: a reader sees all of it, a writer also writes to it. With --json, the member."""
    with ledger_at(settings) as ledger, in_name_of(ledger, actor):
        require_chat(ledger, chat_id)
        member = ledger.set_member(chat_id, user_id, role)
    settings.answer(fields_of(member), f"{escaped(user_id)} is a {role} of chat {escaped(chat_id)}.")


@members_command.command("list")
@chat_argument
@listing_options
def list_members_command(settings: GlobalOptions, *, chat_id: str) -> None:
    """List the members of CHAT without its owner, the earliest added first."""
    with ledger_at(settings, is_read=True) as ledger:
        require_chat(ledger, chat_id)
        members = ledger.members(chat_id)
    columns = [
        column("user", [member.user_id for member in members], style="cyan"),
        column("role", [member.role for member in members]),
        column("added (UTC)", [format_time(member.added_at) for member in members], style="dim"),
    ]
    settings.answer_list(members, Member, columns, end=f"{count(len(members), 'member')}.")


@members_command.command("remove")
@chat_argument
@click.argument("user_id", metavar="USER", type=ID)
@actor_option
@ledger_options
def remove_member_command(settings: GlobalOptions, *, chat_id: str, user_id: str, actor: str | None) -> None:
    """Remove the member USER from CHAT, which is not there for them any more; what they wrote stays. With --json, whether there was one."""
    with ledger_at(settings) as ledger, in_name_of(ledger, actor):
        require_chat(ledger, chat_id)
        is_removed = ledger.remove_member(chat_id, user_id)
    done = f"Removed member {escaped(user_id)}." if is_removed else f"There was no member {escaped(user_id)}."
    settings.answer({"removed": is_removed}, done)

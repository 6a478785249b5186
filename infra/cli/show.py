"""`show`: one conversation, as a tree or as a chain to read."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click
from rich.padding import Padding
from rich.text import Text

from chatledger.domain.imported import ImportedMessage
from chatledger.domain.text import plain_text
from chatledger.domain.values import Branch, Chat, Checkpoint, Message

from ..drawing import flat
from ..ledger import Ledger
from .chats import chat_heading
from .lookup import require_branch, require_chat
from .options import Settings, chat_argument, json_option, ledger_at, limit_option, location_option
from .output import (
    ACTIVE_HEAD,
    CHECKPOINT,
    console,
    count,
    fields_of,
    format_time,
    multiline,
    print_json,
    print_lines,
    print_text,
    role_style,
)
from .tree import best_style, print_tree


@click.command("show")
@chat_argument
@click.option("--graph", "form", flag_value="graph", help="The whole DAG as a tree; this is the default.")
@click.option("--messages", "form", flag_value="messages", help="The chain of a branch, to read from the start.")
@click.option("--branch", "branch_name", metavar="NAME", help="The branch to read, the active one by default.")
@limit_option("messages of the chain, the newest ones; or lines of the tree, the first ones")
@json_option
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw with ASCII characters.")
@location_option()
@click.pass_obj
def show_command(
    settings: Settings,
    *,
    chat_id: str,
    form: str | None,
    branch_name: str | None,
    limit: int | None,
    as_json: bool,
    ascii_only: bool,
) -> None:
    """
    Show a chat, as a tree or as a conversation.

    The tree is the whole DAG with branches and checkpoints; a conversation is the chain of one branch. Long runs without forks are collapsed in the tree. With --json, one object: the chat with all its messages in log
    order, its branches and checkpoints; with --messages or --branch, the chain.
    """
    if form == "graph" and branch_name is not None:
        msg = "--graph shows all branches; leave out --branch, or name it with --messages"
        raise click.UsageError(msg, click.get_current_context())
    with ledger_at(settings) as ledger:
        chat = require_chat(ledger, chat_id)
        if form == "messages" or branch_name is not None:
            branch = require_branch(ledger, chat_id, branch_name) if branch_name else ledger.get_active_branch(chat_id)
            assert branch is not None, "a chat has an active branch"
            _show_chain(ledger, chat, branch, limit=limit, as_json=as_json)
        elif as_json:
            print_json(whole_chat(ledger, chat, limit=limit))
        else:
            heading = chat_heading(chat, checkpoints=len(ledger.list_checkpoints(chat_id)))
            print_lines([heading[0], Text(flat(_times(chat)), style="dim"), Text()])
            print_tree(ledger.graph(chat_id), style=best_style(ascii_only=ascii_only), limit=limit)


def _times(chat: Chat) -> str:
    owner = f"owner {chat.user_id} · " if chat.user_id else ""
    numbers = f"{count(chat.message_count, 'message')} · {count(chat.branch_count, 'branch', 'branches')}"
    return f"{owner}{numbers} · created {format_time(chat.created_at)} · changed {format_time(chat.updated_at)}"


def whole_chat(ledger: Ledger, chat: Chat, *, limit: int | None = None) -> dict[str, Any]:
    """A chat with everything in it, as JSON values."""
    return chat_object(
        chat,
        ledger.export_chat(chat.id).messages[:limit],
        ledger.list_branches(chat.id),
        ledger.list_checkpoints(chat.id),
    )


def chat_object(
    chat: Chat | None,
    messages: Iterable[Message | ImportedMessage],
    branches: Iterable[Branch],
    checkpoints: Iterable[Checkpoint],
) -> dict[str, Any]:
    """The one form in which `show` and `replay` print a whole chat."""
    return {
        "chat": None if chat is None else fields_of(chat),
        "messages": list(map(message_object, messages)),
        "branches": list(map(fields_of, branches)),
        "checkpoints": list(map(fields_of, checkpoints)),
    }


def message_object(message: Message | ImportedMessage) -> dict[str, Any]:
    """A message with all its fields; which chat it belongs to is said around it."""
    return {name: value for name in ImportedMessage.__struct_fields__ for value in (getattr(message, name),)}


def _show_chain(ledger: Ledger, chat: Chat, branch: Branch, *, limit: int | None, as_json: bool) -> None:
    messages = ledger.get_messages(chat.id, branch=branch.name, limit=limit)
    if as_json:
        print_json(
            {
                "chat": fields_of(chat),
                "branch": fields_of(branch),
                "messages": [message_object(message) for message in messages],
            }
        )
        return
    checkpoints = ledger.list_checkpoints(chat.id)
    print_lines(chat_heading(chat, checkpoints=len(checkpoints)))
    place = f"branch {branch.name}{' *' if branch.is_active else ''}, {count(branch.message_count, 'message')}"
    if len(messages) < branch.message_count:
        place += f", the last {len(messages):,} of them"
    print_text(place, ACTIVE_HEAD if branch.is_active else "yellow")
    print_conversation(messages, checkpoints)


def print_conversation(messages: Sequence[Message], checkpoints: Iterable[Checkpoint] = ()) -> None:
    """A chain as one reads it: who, when, and the text below."""
    marks: dict[str, list[str]] = {}
    for checkpoint in checkpoints:
        marks.setdefault(checkpoint.message_id, []).append(checkpoint.name)
    out = console()
    is_tty = out.file.isatty()
    for message in messages:
        print_lines([Text(), _message_head(message, marks.get(message.id, ()))])
        if is_tty:
            out.print(Padding(Text(multiline(_text_of(message))), (0, 0, 0, 2)))
        else:
            print_lines(Text(f"  {line}".rstrip()) for line in _lines_of(message))


def _message_head(message: Message, checkpoints: Iterable[str]) -> Text:
    head = Text(flat(message.name), style=f"bold {role_style(message.name)}")
    author = message.sender_id or message.agent_id
    if author is not None and author != message.name:
        head.append(f" {flat(author)}", style="not bold default")
    head.append(f"  {format_time(message.created_at)}  {flat(message.id)}", style="not bold dim default")
    for name in checkpoints:
        head.append(f"  {{{flat(name)}}}", style=CHECKPOINT)
    return head


def _lines_of(message: Message) -> Iterator[str]:
    return iter(multiline(_text_of(message)).split("\n"))


def _text_of(message: Message) -> str:
    text = plain_text(message.data).strip("\n")
    return text or "(no text)"

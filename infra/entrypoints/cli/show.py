"""`show`: one conversation, as a drawing or as a chain to read."""

import contextlib
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import click
from rich.padding import Padding
from rich.text import Text

from chatledger.domain.chat.interchange import ImportedMessage
from chatledger.domain.draw.diagrams import draw_dot, draw_mermaid
from chatledger.domain.draw.outline import ESCAPES, escaped
from chatledger.domain.draw.tree import Style
from chatledger.domain.values import Branch, Chat, Checkpoint, Graph, Message

from .chats import chat_heading
from .drawing import best_style, print_tree
from .lookup import LedgerOrView, require_branch, require_chat, require_chat_then
from .options import GlobalOptions, at_option, json_option, ledger_at, limit_option, place_options
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
from .threads import show_thread

_TEXTS: Final[dict[str | None, Callable[[Graph], str]]] = {"mermaid": draw_mermaid, "dot": draw_dot}


@click.command("show")
@click.argument("chat_id", metavar="[CHAT]", required=False)
@click.option(
    "--thread", "thread_id", metavar="ID", help="A thread of agents instead: its steps, and what is to run next."
)
@click.option("--graph", "is_graph", is_flag=True, help="The whole DAG; this is the default.")
@click.option(
    "--format",
    "drawing",
    type=click.Choice(["tree", "mermaid", "dot", "json"]),
    help="How to draw the DAG: as a tree, which is the default, as text for Mermaid or Graphviz, or as its data in JSON.",
)
@click.option("--messages", "is_chain", is_flag=True, help="The chain of a branch, to read from the start.")
@click.option("--branch", "branch_name", metavar="NAME", help="The branch to read, the active one by default.")
@limit_option("messages of the chain or steps of a thread, the newest ones; or lines of the tree, the first ones")
@at_option
@json_option
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw the tree with ASCII characters.")
@place_options
def show_command(
    settings: GlobalOptions,
    *,
    chat_id: str | None,
    thread_id: str | None,
    is_graph: bool,
    drawing: str | None,
    is_chain: bool,
    branch_name: str | None,
    limit: int | None,
    at: int | datetime | None,
    ascii_only: bool,
) -> None:
    """
    Show a chat, as a drawing or as a conversation; or a thread of agents.

    The drawing is the whole DAG with branches and checkpoints, as 'git log --graph' draws commits: a chain stays in its column,
    and what was tried beside it stands further to the right. Long runs without forks are collapsed. A conversation is the
    chain of one branch. Of a thread, the steps are printed, the tasks that are to run, and what they wait for. With --json, one object: the chat with all its
    messages in log order, its branches and checkpoints; with --messages or --branch, the chain. With --format json, the DAG only: messages with a preview of their text, branches and checkpoints.
    """
    dag = f"--format {drawing}" if drawing is not None else "--graph" if is_graph else None
    chain = "--messages" if is_chain else "--branch" if branch_name is not None else None
    _check_usage(dag, chain, has_limit=limit is not None, as_json=settings.as_json, ascii_only=ascii_only)
    if thread_id is not None or chat_id is None:
        _check_thread(thread_id, chat_id, others=bool(dag or chain or at is not None or ascii_only))
        with ledger_at(settings, is_read=True) as ledger:
            show_thread(ledger, str(thread_id), limit=limit, as_json=settings.as_json)
        return
    with ledger_at(settings, is_read=True) as ledger, contextlib.ExitStack() as stack:
        reader: LedgerOrView = ledger
        if at is None:
            chat = require_chat(ledger, chat_id)
        else:
            reader = stack.enter_context(ledger.as_of(at))
            chat = require_chat_then(ledger, reader, chat_id)
        if chain:
            branch = (
                require_branch(reader, chat.id, branch_name)
                if branch_name is not None
                else reader.get_active_branch(chat.id)
            )
            assert branch is not None, "a chat has an active branch"
            _show_chain(reader, chat, branch, limit=limit, as_json=settings.as_json)
        elif settings.as_json:
            print_json(whole_chat(reader, chat, limit=limit))
        else:
            _draw(reader, chat, drawing, style=best_style(ascii_only=ascii_only), limit=limit)


def _draw(ledger: LedgerOrView, chat: Chat, drawing: str | None, *, style: Style, limit: int | None) -> None:
    graph = ledger.graph(chat.id)
    if drawing == "json":
        print_json(graph)
    elif drawing in _TEXTS:
        text = _TEXTS[drawing](graph)
        # A program gets every character as it is; a person sees those that would let a text look like another one.
        sys.stdout.write(f"{text.translate(ESCAPES) if sys.stdout.isatty() else text}\n")
    else:
        title = Text(escaped(chat.title or chat.id), style="bold")
        owner = f"owner {chat.user_id} · " if chat.user_id else ""
        numbers = f"{count(chat.message_count, 'message')} · {count(chat.branch_count, 'branch', 'branches')}"
        times = f"created {format_time(chat.created_at)} · changed {format_time(chat.updated_at)}"
        print_lines([title, Text(escaped(f"{owner}{numbers} · {times}"), style="dim"), Text()])
        print_tree(graph, style=style, limit=limit)


def _check_usage(dag: str | None, chain: str | None, *, has_limit: bool, as_json: bool, ascii_only: bool) -> None:
    """Refuse options that do not go together, rather than ignore one of them."""
    is_tree = dag in {None, "--graph", "--format tree"}
    usage = click.get_current_context()
    if dag and chain:
        usage.fail(f"{dag} shows all branches and {chain} shows one; leave out one of them")
    if as_json and dag and dag.startswith("--format"):
        usage.fail(f"--json prints the chat with all its messages; leave out --json or {dag}")
    if has_limit and not is_tree:
        usage.fail(f"--limit counts lines of the tree or messages; leave it out with {dag}")
    if ascii_only and (as_json or chain or not is_tree):
        usage.fail(f"--ascii is for the tree; leave it out with {'--json' if as_json else chain or dag}")


def _check_thread(thread_id: str | None, chat_id: str | None, *, others: bool) -> None:
    usage = click.get_current_context()
    if thread_id is None:
        usage.fail("name a chat, or a thread with --thread")
    if chat_id is not None:
        usage.fail("name either a chat or a thread")
    if others:
        usage.fail("--thread goes with --limit and --json only")


def whole_chat(ledger: LedgerOrView, chat: Chat, *, limit: int | None = None) -> dict[str, Any]:
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
    """Return the fields of a message, but not its chat, which is said around it."""
    fields = fields_of(message)
    return {name: fields[name] for name in ImportedMessage.__struct_fields__}


def _show_chain(ledger: LedgerOrView, chat: Chat, branch: Branch, *, limit: int | None, as_json: bool) -> None:
    messages = ledger.get_messages(chat.id, branch=branch.name, limit=limit)
    if as_json:
        objects = list(map(message_object, messages))
        print_json({"chat": fields_of(chat), "branch": fields_of(branch), "messages": objects})
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
    for message in messages:
        print_lines([Text(), _message_head(message, marks.get(message.id, ()))])
        text = multiline(message.text.strip("\n") or "(no text)")
        if out.file.isatty():
            out.print(Padding(Text(text), (0, 0, 0, 2)))
        else:
            print_lines(Text(f"  {line}".rstrip()) for line in text.split("\n"))


def _message_head(message: Message, checkpoints: Iterable[str]) -> Text:
    head = Text(escaped(message.name), style=f"bold {role_style(message.name)}")
    author = message.sender_id or message.agent_id
    if author is not None and author != message.name:
        head.append(f" {escaped(author)}", style="not bold default")
    head.append(f"  {format_time(message.created_at)}  {escaped(message.id)}", style="not bold dim default")
    for name in checkpoints:
        head.append(f"  {{{escaped(name)}}}", style=CHECKPOINT)
    return head

"""`show`: one conversation, as a drawing or as a chain to read."""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final

import click
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from chatledger.domain.chat.interchange import ImportedMessage
from chatledger.domain.draw.diagrams import draw_dot, draw_mermaid
from chatledger.domain.draw.outline import flat
from chatledger.domain.draw.tree import LEGEND, DrawnLine, Style, draw_lines
from chatledger.domain.values import Branch, Chat, Checkpoint, Graph, Message, plain_text

from .chats import chat_heading
from .lookup import LedgerOrView, require_branch, require_chat, require_chat_then
from .options import Settings, at_option, chat_argument, json_option, ledger_at, limit_option, location_option
from .output import (
    ACTIVE_HEAD,
    CHECKPOINT,
    HEAD,
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

_TEXTS: Final[dict[str | None, Callable[[Graph], str]]] = {"mermaid": draw_mermaid, "dot": draw_dot}


@click.command("show")
@chat_argument
@click.option("--graph", "is_graph", is_flag=True, help="The whole DAG; this is the default.")
@click.option(
    "--format",
    "drawing",
    type=click.Choice(["tree", "mermaid", "dot", "json"]),
    help="How to draw the DAG: as a tree, which is the default, as text for Mermaid or Graphviz, or as its data in JSON.",
)
@click.option("--messages", "is_chain", is_flag=True, help="The chain of a branch, to read from the start.")
@click.option("--branch", "branch_name", metavar="NAME", help="The branch to read, the active one by default.")
@limit_option("messages of the chain, the newest ones; or lines of the tree, the first ones")
@at_option
@json_option
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw the tree with ASCII characters.")
@location_option()
@click.pass_obj
def show_command(
    settings: Settings,
    *,
    chat_id: str,
    is_graph: bool,
    drawing: str | None,
    is_chain: bool,
    branch_name: str | None,
    limit: int | None,
    at: int | datetime | None,
    as_json: bool,
    ascii_only: bool,
) -> None:
    """
    Show a chat, as a drawing or as a conversation.

    The drawing is the whole DAG with branches and checkpoints; a conversation is the chain of one branch. Long runs without forks are collapsed in the drawing. With --json, one object: the chat with all its
    messages in log order, its branches and checkpoints; with --messages or --branch, the chain. With --format json, the DAG only: messages with a preview of their text, branches and checkpoints.
    """
    dag = f"--format {drawing}" if drawing is not None else "--graph" if is_graph else None
    chain = "--messages" if is_chain else "--branch" if branch_name is not None else None
    _check_usage(dag, chain, has_limit=limit is not None, as_json=as_json, ascii_only=ascii_only)
    with ledger_at(settings) as ledger, contextlib.ExitStack() as stack:
        reader: LedgerOrView = ledger
        if at is None:
            chat = require_chat(ledger, chat_id)
        else:
            reader = stack.enter_context(ledger.as_of(at))
            chat = require_chat_then(ledger, reader, chat_id)
        if chain:
            branch = (
                require_branch(reader, chat_id, branch_name)
                if branch_name is not None
                else reader.get_active_branch(chat_id)
            )
            assert branch is not None, "a chat has an active branch"
            _show_chain(reader, chat, branch, limit=limit, as_json=as_json)
        elif as_json:
            print_json(whole_chat(reader, chat, limit=limit))
        elif drawing == "json":
            print_json(reader.graph(chat_id))
        elif drawing in _TEXTS:
            sys.stdout.write(_TEXTS[drawing](reader.graph(chat_id)) + "\n")
        else:
            heading = chat_heading(chat, checkpoints=len(reader.list_checkpoints(chat_id)))
            print_lines([heading[0], Text(flat(_times(chat)), style="dim"), Text()])
            print_tree(reader.graph(chat_id), style=best_style(ascii_only=ascii_only), limit=limit)


def _check_usage(dag: str | None, chain: str | None, *, has_limit: bool, as_json: bool, ascii_only: bool) -> None:
    """Refuse options that do not go together, rather than ignore one of them."""
    is_tree = dag in {None, "--graph", "--format tree"}
    if dag and chain:
        msg = f"{dag} shows all branches and {chain} shows one; leave out one of them"
    elif as_json and dag and dag.startswith("--format"):
        msg = f"--json prints the chat with all its messages; leave out --json or {dag}"
    elif has_limit and not is_tree:
        msg = f"--limit counts lines of the tree or messages; leave it out with {dag}"
    elif ascii_only and (as_json or chain or not is_tree):
        msg = f"--ascii is for the tree; leave it out with {'--json' if as_json else chain or dag}"
    else:
        return
    raise click.UsageError(msg, click.get_current_context())


def _times(chat: Chat) -> str:
    owner = f"owner {chat.user_id} · " if chat.user_id else ""
    numbers = f"{count(chat.message_count, 'message')} · {count(chat.branch_count, 'branch', 'branches')}"
    return f"{owner}{numbers} · created {format_time(chat.created_at)} · changed {format_time(chat.updated_at)}"


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
    """A message with all its fields; which chat it belongs to is said around it."""
    return {name: getattr(message, name) for name in ImportedMessage.__struct_fields__}


def _show_chain(ledger: LedgerOrView, chat: Chat, branch: Branch, *, limit: int | None, as_json: bool) -> None:
    messages = ledger.get_messages(chat.id, branch=branch.name, limit=limit)
    if as_json:
        found = list(map(message_object, messages))
        print_json({"chat": fields_of(chat), "branch": fields_of(branch), "messages": found})
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
        text = multiline(plain_text(message.data).strip("\n") or "(no text)")
        if out.file.isatty():
            out.print(Padding(Text(text), (0, 0, 0, 2)))
        else:
            print_lines(Text(f"  {line}".rstrip()) for line in text.split("\n"))


def _message_head(message: Message, checkpoints: Iterable[str]) -> Text:
    head = Text(flat(message.name), style=f"bold {role_style(message.name)}")
    author = message.sender_id or message.agent_id
    if author is not None and author != message.name:
        head.append(f" {flat(author)}", style="not bold default")
    head.append(f"  {format_time(message.created_at)}  {flat(message.id)}", style="not bold dim default")
    for name in checkpoints:
        head.append(f"  {{{flat(name)}}}", style=CHECKPOINT)
    return head


_LEAST_PREVIEW: Final = 4


def print_tree(graph: Graph, *, style: Style, limit: int | None = None) -> None:
    """Draw a chat, or the first lines of the drawing."""
    print_lines(_drawing(graph, style=style, limit=limit, out=console()), is_cut=True)


def best_style(*, ascii_only: bool) -> Style:
    """ASCII when asked for, or when the output cannot show more."""
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    return "unicode" if is_unicode and not ascii_only else "ascii"


def _drawing(graph: Graph, *, style: Style, limit: int | None, out: Console) -> Iterator[Text]:
    yield Text(f"[chat: {flat(graph.chat_id)}]", style="bold")
    yield Text()
    lines = draw_lines(graph, style=style)
    if not graph.nodes:
        yield Text("(empty)")
        return
    width = out.width if out.file.isatty() else None
    yield from (colour_line(line, width=width) for line in islice(lines, limit))
    rest = sum(1 for _ in lines)
    if rest:
        yield Text(f"... {count(rest, 'more line')}, --limit cut them", style="dim")
    yield Text()
    yield Text(LEGEND, style="dim")


def colour_line(line: DrawnLine, *, width: int | None) -> Text:
    """A line of the tree; the preview gives way when the terminal is narrow."""
    if line.skipped:
        return Text(line.prefix, style="dim").append(str(line).removeprefix(line.prefix), style="italic")
    weight = "" if line.is_active else "dim"
    text = Text.assemble((line.prefix, "dim"), (line.id, weight or "bold"), " ")
    text.append(f"({line.role})", style=role_style(line.role))
    text.append(": ")
    text.append(f'"{_fit(line, width)}"', style=weight)
    for part, style in _markers(line):
        text.append(part, style=style)
    return text


def _fit(line: DrawnLine, width: int | None) -> str:
    if width is None:
        return line.content
    excess = Text(str(line)).cell_len - width
    if excess <= 0:
        return line.content
    shorter = Text(line.content.removesuffix("..."))
    shorter.truncate(max(shorter.cell_len - excess, _LEAST_PREVIEW), overflow="ellipsis")
    return shorter.plain


def _markers(line: DrawnLine) -> Iterable[tuple[str, str]]:
    if line.branches:
        yield " <- [", "dim"
        for number, (name, is_active) in enumerate(line.branches):
            yield (", " if number else ""), "dim"
            yield (f"{name} *", ACTIVE_HEAD) if is_active else (name, HEAD)
        yield "]", "dim"
    if line.checkpoints:
        yield f" {{{', '.join(line.checkpoints)}}}", CHECKPOINT
    if line.note:
        yield f" ({line.note})", "red"

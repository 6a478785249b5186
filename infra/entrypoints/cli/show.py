"""`show`: one conversation, as a drawing or as a chain to read."""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import click
from rich.padding import Padding
from rich.text import Text

from chatledger.domain.chat.interchange import ImportedChat, ImportedMessage
from chatledger.domain.draw.diagrams import draw_dot, draw_mermaid
from chatledger.domain.draw.escaping import ESCAPES, escaped
from chatledger.domain.draw.tree import Style
from chatledger.domain.errors import ChatNotFoundError, NotFoundError
from chatledger.domain.proof.verification import ChatComparison, ChatDifference, compare_chats
from chatledger.domain.values import Branch, Chat, Checkpoint, Graph, Message, preview

from ...ledger.ledger import Ledger
from ..places import Place, find_place
from .chats import chat_heading, hold_line
from .drawing import best_style, print_tree
from .lookup import LedgerOrView, describe_beginning, require_branch, require_chat, require_chat_then
from .options import (
    ID,
    GlobalOptions,
    chat_argument,
    json_option,
    ledger_at,
    ledger_options,
    limit_option,
    place_options,
    point,
    point_in_log,
)
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
from .threads import show_thread, show_thread_at

_TEXTS: Final[dict[str | None, Callable[[Graph], str]]] = {"mermaid": draw_mermaid, "dot": draw_dot}


@click.command("show")
@click.argument("chat_id", metavar="[CHAT]", type=ID, required=False)
@click.option(
    "--thread",
    "thread_id",
    type=ID,
    help="A thread of agents instead: its steps with their nodes and forks, and what waits.",
)
@click.option("--graph", "is_graph", is_flag=True, help="The whole DAG; this is the default.")
@click.option(
    "--format",
    "drawing",
    type=click.Choice(["tree", "mermaid", "dot", "json"]),
    help="How to draw the DAG: as a tree, which is the default, as text for Mermaid or Graphviz, or as its data in JSON.",
)
@click.option("--messages", "is_chain", is_flag=True, help="The chain of a branch, to read from the start.")
@click.option("--branch", "branch_name", metavar="NAME", type=ID, help="The branch to read, the active one by default.")
@limit_option("messages of the chain or steps of a thread, the newest ones; or lines of the tree, the first ones")
@click.option(
    "--at",
    "--as-of",
    "at",
    metavar="POSITION|TIME|STEP",
    help="A chat as it was at this position on the log, or this time (ISO 8601, yesterday, tuesday, 7d; UTC unless it has an offset). "
    "Of a thread the state after this step: its number, or a checkpoint.",
)
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
    at: str | None,
    ascii_only: bool,
) -> None:
    """
    Show a chat, as a drawing or as a conversation; or a thread of agents.

    The drawing is the whole DAG with branches and checkpoints, as 'git log --graph' draws commits: a chain stays in its column,
    and what was tried beside it stands further to the right. Long runs without forks are collapsed. A conversation is the
    chain of one branch. Of a thread, the steps are drawn, with the nodes that ran side by side, where other lines fork, and what waits; with --at, the state after one of them. With --json, one object: the chat with all its
    messages in log order, its branches and checkpoints; with --messages or --branch, the chain. With --format json, the DAG only: messages with a preview of their text, branches and checkpoints.
    """
    dag = f"--format {drawing}" if drawing is not None else "--graph" if is_graph else None
    chain = "--messages" if is_chain else "--branch" if branch_name is not None else None
    _check_usage(dag, chain, has_limit=limit is not None, as_json=settings.as_json, ascii_only=ascii_only)
    if thread_id is not None or chat_id is None:
        _check_thread(thread_id, chat_id, others=bool(dag or chain or ascii_only))
        with ledger_at(settings, is_read=True) as ledger:
            if at is None:
                show_thread(ledger, str(thread_id), limit=limit, as_json=settings.as_json)
            else:
                show_thread_at(ledger, str(thread_id), at, as_json=settings.as_json)
        return
    context = click.get_current_context()
    moment = point(context, next(option for option in context.command.params if option.name == "at"), at)
    with ledger_at(settings, is_read=True) as ledger, contextlib.ExitStack() as stack:
        reader: LedgerOrView = ledger
        if moment is None:
            chat = require_chat(ledger, chat_id)
        else:
            reader = stack.enter_context(ledger.as_of(moment))
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
        facts = Text(escaped(f"{owner}{numbers} · {times}"), style="dim")
        print_lines([title, facts, *hold_line(chat.hold), Text()])
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
        usage.fail("--thread goes with --at, --limit and --json only")


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


_NOW: Final = "@now"
_SHORT: Final = 8
_FIELDS: Final = {"user_id": "owner", "title": "title", "metadata": "metadata", "active_branch": "active branch"}


@click.command("diff")
@chat_argument
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@ledger_options
def diff_command(settings: GlobalOptions, *, chat_id: str, a: str, b: str) -> None:
    """
    Show how A and B differ: two branches, checkpoints or messages of a chat, or two moments.

    Of branches, checkpoints and messages (by name, or by id) the chains are compared: their last common message, and what only A
    and only B has after it. A moment is @POSITION or @TIME (ISO 8601, yesterday, tuesday, 7d; UTC unless it has an offset), or @now: what was
    changed, moved and added between the two. With --json, one object.
    """
    moments = [name.startswith("@") for name in (a, b)]
    if moments[0] != moments[1]:
        moment, other = (a, b) if moments[0] else (b, a)
        example = "@120" if moment == _NOW else moment
        click.get_current_context().fail(
            f"{moment} is a moment and {other} is not; compare two moments, such as {example} and {_NOW}, "
            "or two branches, checkpoints or messages"
        )
    points = [_moment(name) for name in (a, b)] if moments[0] else None
    with ledger_at(settings, is_read=True) as ledger:
        if points is None:
            answer, lines = _diff_chains(ledger, chat_id, a, b)
        else:
            answer, lines = _diff_moments(ledger, chat_id, (a, b), points)
    if settings.as_json:
        print_json({"chat_id": chat_id, **answer})
    else:
        print_lines(lines)


def _moment(name: str) -> int | datetime | None:
    """The moment that an argument names; None for now."""
    if name == _NOW:
        return None
    try:
        return point_in_log(name.removeprefix("@"))
    except ValueError:
        msg = f"{name} is no moment; give @POSITION, e.g. @120, or @TIME, e.g. @2026-02-07T17:29:24Z, or {_NOW}"
        raise click.UsageError(msg) from None


# Chains


def _diff_chains(ledger: Ledger, chat_id: str, a: str, b: str) -> tuple[dict[str, Any], Iterator[Text]]:
    require_chat(ledger, chat_id)
    places = [find_place(ledger, chat_id, name) for name in (a, b)]
    heads = [place.message_id for place in places]
    common: Message | None = None
    only: list[list[Message]]
    if heads[0] is None or heads[1] is None:
        only = [[] if head is None else ledger.get_chain(head) for head in heads]
    else:
        divergence = ledger.diff(heads[0], heads[1])
        common, only = divergence.common, [divergence.only_a, divergence.only_b]
    answer = {
        "a": places[0].to_dict(),
        "b": places[1].to_dict(),
        "common": None if common is None else message_object(common),
        "only_a": list(map(message_object, only[0])),
        "only_b": list(map(message_object, only[1])),
    }
    return answer, _chain_lines(places, common, only)


def _chain_lines(places: Sequence[Place], common: Message | None, only: Sequence[Sequence[Message]]) -> Iterator[Text]:
    for sign, place, messages in zip("-+", places, only, strict=True):
        place_of = "empty" if place.message_id is None else f"at {place.message_id}"
        yield Text(f"{sign} {escaped(place.kind)} {escaped(place.name)}, {escaped(place_of)}: ", style="bold").append(
            f"{count(len(messages), 'message')} of its own", style="not bold"
        )
    if not any(only):
        yield Text("The chains are equal.")
        return
    yield Text()
    yield Text("  nothing in common", style="dim") if common is None else _message_line(" ", common)
    for sign, messages in zip("-+", only, strict=True):
        for message in messages:
            yield _message_line(sign, message)


def _message_line(sign: str, message: Message | ImportedMessage) -> Text:
    colour = {"-": "red", "+": "green"}.get(sign, "dim")
    line = Text(f"{sign} ", style=colour)
    line.append(f"{escaped(message.id)} ", style="dim")
    line.append(f"({escaped(message.name)})", style=role_style(message.name))
    return line.append(f': "{escaped(preview(message.data, message.form or None))}"', style=colour)


# Moments


def _diff_moments(
    ledger: Ledger, chat_id: str, names: tuple[str, str], points: Sequence[int | datetime | None]
) -> tuple[dict[str, Any], Iterator[Text]]:
    states: list[ImportedChat | None] = [None, None]
    positions = [0, 0]
    for number, at in enumerate(points):
        # At one of the two moments the chat may not have been, or not any more: then all of it differs.
        with contextlib.ExitStack() as stack, contextlib.suppress(ChatNotFoundError):
            reader: LedgerOrView = ledger if at is None else stack.enter_context(ledger.as_of(at))
            positions[number] = reader.position
            states[number] = reader.export_chat(chat_id)
    if states == [None, None]:
        msg = f"chat {chat_id!r} was there neither {names[0]} nor {names[1]}; {describe_beginning(ledger, chat_id)}"
        raise NotFoundError(msg)
    comparison = compare_chats(*states)
    answer = {
        "a": {"position": positions[0], "is_there": states[0] is not None},
        "b": {"position": positions[1], "is_there": states[1] is not None},
        "chat": comparison.chat,
        "branches": comparison.branches,
        "checkpoints": comparison.checkpoints,
        "only_a": list(map(message_object, comparison.only_a)),
        "only_b": list(map(message_object, comparison.only_b)),
    }
    return answer, _moment_lines(chat_id, names, positions, states, comparison)


def _moment_lines(
    chat_id: str,
    names: Sequence[str],
    positions: Sequence[int],
    states: Sequence[ImportedChat | None],
    comparison: ChatComparison,
) -> Iterator[Text]:
    title = f"{chat_id} from position {positions[0]} to position {positions[1]}"
    yield Text(escaped(title), style="bold")
    for state, name in zip(states, names, strict=True):
        if state is None:
            yield Text(escaped(f"  not there {name}"), style="yellow")
    if comparison.is_equal:
        yield Text("Nothing differs.")
        return
    for difference in comparison.chat:
        yield _difference_line(_FIELDS[difference.name], difference, is_id=False)
    for kind, differences in (("branch", comparison.branches), ("checkpoint", comparison.checkpoints)):
        for difference in differences:
            yield _difference_line(f"{kind} {difference.name}", difference, is_id=True)
    for sign, messages in (("-", comparison.only_a), ("+", comparison.only_b)):
        for message in messages:
            yield _message_line(sign, message)


def _difference_line(what: str, difference: ChatDifference, *, is_id: bool) -> Text:
    before = _value(difference.a, is_id=is_id) if difference.in_a else "not there"
    after = _value(difference.b, is_id=is_id) if difference.in_b else "not there"
    return Text(f"  {escaped(what)}: ", style="yellow").append(
        escaped(f"{before} -> {after}"), style="not bold default"
    )


def _value(value: Any, *, is_id: bool) -> str:
    if is_id:
        return "empty" if value is None else str(value)[:_SHORT]
    return "none" if value is None else preview(value)

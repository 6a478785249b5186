"""`diff`: how two branches, checkpoints, messages or moments of a chat differ."""

import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import click
from rich.text import Text

from chatledger.domain.chat.interchange import ImportedChat, ImportedMessage
from chatledger.domain.draw.outline import escaped
from chatledger.domain.errors import ChatNotFoundError, NotFoundError
from chatledger.domain.proof.verification import ChatComparison, ChatDifference, compare_chats
from chatledger.domain.values import Message, preview

from ...ledger.ledger import Ledger
from ..places import Place, find_place
from .lookup import LedgerOrView, describe_beginning, require_chat
from .options import GlobalOptions, chat_argument, ledger_at, ledger_options, point_in_log
from .output import count, print_json, print_lines, role_style
from .show import message_object

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
    and only B has after it. A moment is @POSITION or @TIME (ISO 8601, UTC unless it has an offset), or @now: what was
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
    for number, point in enumerate(points):
        # At one of the two moments the chat may not have been, or not any more: then all of it differs.
        with contextlib.ExitStack() as stack, contextlib.suppress(ChatNotFoundError):
            reader: LedgerOrView = ledger if point is None else stack.enter_context(ledger.as_of(point))
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

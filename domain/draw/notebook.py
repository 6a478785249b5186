"""
HTML and Markdown of values, as notebooks show them.

Both are plain: no colour, script, link or style sheet, so that they are read in a dark theme, without a network, and where a notebook
is not trusted. A text of a message can neither end what it stands in nor add anything to it.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, Final, NamedTuple, cast

from ..chat.recorded import Recorded
from ..errors import InvalidValueError
from ..values import Chat, Divergence, Graph, Message, Page, PageEntry, SearchHit, SearchHits, preview
from ..wire import iso
from .diagrams import draw_mermaid
from .escaping import printable
from .event_words import describe_event
from .tree import visualize_graph

LIST_ENDS: Final = 10
"""The items of a longer list that are shown at either end; of hits twice as many, the best ones."""
GRAPH_LINES: Final = 200
TEXT_CHARACTERS: Final = 4000
LISTED_CHARACTERS: Final = 400
"""The characters that are shown of the text of a message alone, and of one in a list."""
_MERMAID_CHARACTERS: Final = 50_000
_MERMAID_ARROWS: Final = 500
"""The most that Mermaid draws where nobody allows it more."""
_RISKY: Final = re.compile(r"[^\w .,:!?()'\"/\x80-\U0010ffff-]|_|(?<!\d):|:(?!\d)", re.ASCII)
"""Characters to which Markdown may give a meaning; the colon of a time is none of them, that of an address is."""


class Paragraph(NamedTuple):
    """A paragraph: its title in bold, facts behind it in small letters, and a text below, or the parts of a passage, each with whether it is marked."""

    title: str
    facts: Sequence[str] = ()
    text: str = ""
    parts: Sequence[tuple[str, bool]] = ()


def draw_html(value: object) -> str:
    """
    HTML of what a ledger returns, as a notebook shows it by itself.

    Args:
        value: A page, a graph, a difference, or the hits of a search; a chat, a message, a hit or an event, or a list of these.

    Returns:
        One element without colours, scripts and links. Long texts and lists are cut, and say how much more there is. Whatever
        the messages contain, it is shown as text.

    Raises:
        InvalidValueError: It is something else.
    """
    if isinstance(value, Graph):
        return f"<pre>{escape(_tree(value))}</pre>"
    return "\n".join(["<div>", *map(_html, _paragraphs(value)), "</div>"])


def draw_markdown(value: object) -> str:
    """
    Markdown of what a ledger returns. A graph is a Mermaid flowchart, or a tree of lines where it is too large for Mermaid.

    Args:
        value: As `draw_html` takes it.

    Returns:
        Paragraphs, or a block of code. Long texts and lists are cut as in HTML, and whatever the messages contain is shown as text.

    Raises:
        InvalidValueError: It is something else.
    """
    if not isinstance(value, Graph):
        return "\n\n".join(map(_markdown, _paragraphs(value)))
    language, drawing = "mermaid", draw_mermaid(value)
    if len(drawing) > _MERMAID_CHARACTERS or drawing.count("> n") > _MERMAID_ARROWS:
        language, drawing = "text", _tree(value)
    # No message ends it: a line of nothing but backticks stands in neither language.
    return f"```{language}\n{drawing}\n```"


def _tree(graph: Graph) -> str:
    lines = visualize_graph(graph).split("\n")
    if len(lines) > GRAPH_LINES:
        lines[GRAPH_LINES:] = [f"... {len(lines) - GRAPH_LINES} more lines ..."]
    return "\n".join(map(printable, lines))


def _paragraphs(value: object) -> Iterator[Paragraph]:
    match value:
        case Message():
            yield _message_paragraph(value, value.chat_id and f"in {value.chat_id}", most=TEXT_CHARACTERS)
        case Page():
            chain = "a chain" if value.branch is None else f"branch {value.branch}"
            yield Paragraph(value.chat_id, (chain, f"{len(value.entries)} of {_count(value.count, 'message')}"))
            yield from _both_ends(value.entries)
        case SearchHits():
            shown = 2 * LIST_ENDS
            how = ("not ranked" if value.is_degraded else "", f"{value.pending} not embedded" if value.pending else "")
            yield Paragraph(_count(len(value), "hit"), how)
            yield from map(_paragraph, value[:shown])
            if len(value) > shown:
                yield _more(len(value) - shown)
        case Divergence():
            yield Paragraph("in both", (_count(value.common_count, "message"),))
            if value.common is not None:
                yield _paragraph(value.common)
            for title, messages in (("only in the first", value.only_a), ("only in the second", value.only_b)):
                yield Paragraph(title, (_count(len(messages), "message"),))
                yield from _both_ends(messages)
        case list() | tuple() if value:
            yield from _both_ends(cast("Sequence[Any]", value))
        case list() | tuple():
            yield Paragraph("", ("(empty)",))
        case _:
            yield _paragraph(value)


def _both_ends(items: Sequence[Any]) -> Iterator[Paragraph]:
    left_out = len(items) - 2 * LIST_ENDS
    if left_out <= 0:
        yield from map(_paragraph, items)
        return
    yield from map(_paragraph, items[:LIST_ENDS])
    yield _more(left_out)
    yield from map(_paragraph, items[-LIST_ENDS:])


def _more(left_out: int) -> Paragraph:
    return Paragraph("", (f"... {left_out} more ...",))


def _paragraph(value: object) -> Paragraph:
    match value:
        case Chat():
            expires = "" if value.expires_at is None else f"expires {_time(value.expires_at)}"
            counts = (_count(value.message_count, "message"), _count(value.branch_count, "branch", "branches"))
            facts = [value.id if value.title else "", value.user_id, *counts, _time(value.updated_at), expires]
            return Paragraph(value.title or value.id, facts, value.last_text or "")
        case Message():
            return _message_paragraph(value)
        case PageEntry(message=message, versions=versions):
            ids = versions.ids
            return _message_paragraph(
                message, f"version {ids.index(message.id) + 1} of {len(ids)}" if len(ids) > 1 else ""
            )
        case SearchHit(message=message, place=place):
            where = f"in {message.chat_id}" if place is None else f"in {place.kind} {place.id}"
            return _message_paragraph(message, where)._replace(parts=value.parts)
        case Recorded():
            facts = [value.chat_id, f"position {value.position}", _time(value.occurred_at), value.actor or ""]
            return Paragraph(f"{value.version} {value.type.replace('_', ' ')}", facts, describe_event(value))
        case _:
            msg = f"this draws chats, messages, pages, hits, graphs, differences, events and lists of them, not {type(value).__name__}"
            raise InvalidValueError(msg)


def _message_paragraph(message: Message, where: str = "", *, most: int = LISTED_CHARACTERS) -> Paragraph:
    annotation, text = message.annotation, message.text
    if not text.strip():  # a call of a tool, for example, says nothing in words
        text = " ".join(f"[{part.get('type')}]" for part in message.parts) or preview(message.shown)
    if len(text) > most:
        text = f"{text[:most]}\n... {len(text) - most} more characters ..."
    facts = (
        message.id,
        where,
        _time(message.created_at),
        message.sender_id or message.agent_id or "",
        "hidden" if message.is_hidden else "",
        "stale" if message.is_stale else "",
        f"replaced by {annotation.replaced_by}" if annotation is not None and annotation.replaced_by else "",
        "redacted" if message.redacted is not None else "",
    )
    return Paragraph(message.role, facts, text)


def _count(number: int, thing: str, plural: str | None = None) -> str:
    return f"{number} {thing if number == 1 else plural or thing + 's'}"


def _time(at: int) -> str:
    written = iso(at)
    return f"{written[:16].replace('T', ' ')} UTC" if isinstance(written, str) else str(written)


def _html(paragraph: Paragraph) -> str:
    title = f"<b>{escape(printable(paragraph.title))}</b> " if paragraph.title else ""
    text = _text(paragraph, escape, "\n")
    # The lines and blanks of code are those of the text.
    below = f'<br><span style="white-space: pre-wrap">{text}</span>' if text else ""
    facts = _facts(paragraph)
    return f"<p>{title}{facts and f'<small>{escape(facts)}</small>'}{below}</p>"


def _markdown(paragraph: Paragraph) -> str:
    # One line that begins with a title of ours or dots, so that no text can begin a list, a heading or a block of code.
    title = f"**{_plain(printable(paragraph.title).strip() or '?')}** " if paragraph.title else ""
    text = _text(paragraph, _plain, "<br>")
    return (title + _plain(_facts(paragraph))).rstrip() + (f"<br>{text}" if text else "")


def _facts(paragraph: Paragraph) -> str:
    return printable(" · ".join(filter(None, paragraph.facts)))


def _text(paragraph: Paragraph, escaped: Callable[[str], str], line_break: str) -> str:
    def shown(text: str) -> str:
        return line_break.join(escaped(printable(line.expandtabs(4))) for line in text.split("\n"))

    parts = paragraph.parts or [(paragraph.text, False)]
    return "".join([f"<mark>{shown(text)}</mark>" if is_match else shown(text) for text, is_match in parts])


def _plain(text: str) -> str:
    """Text without a meaning in Markdown, in formulas and in HTML: entities are read after all of these."""
    return _RISKY.sub(lambda risky: f"&#{ord(risky[0])};", text)

"""The DAG of a chat, drawn for a terminal of any width or for a pipe."""

import sys
from collections.abc import Iterator
from itertools import accumulate, islice
from typing import Final

from rich.cells import chop_cells
from rich.text import Text

from chatledger.domain.draw.escaping import escaped, short_id
from chatledger.domain.draw.tree import FLAT_LEGENDS, DrawnLine, Style, draw_flat_lines, messages_left_out
from chatledger.domain.values import Graph

from .output import ACTIVE_HEAD, CHECKPOINT, HEAD, console, count, print_lines, role_style

_LEAST_PREVIEW: Final = 12
_MOST_BRANCHES: Final = 30
_LEAST_ROOM: Final = 4
"""So many characters are left for names in the narrowest terminal."""


def best_style(*, ascii_only: bool) -> Style:
    """ASCII when asked for, or when the output cannot show more."""
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    return "unicode" if is_unicode and not ascii_only else "ascii"


def print_tree(graph: Graph, *, style: Style, limit: int | None = None) -> None:
    """Draw a chat, or the first lines of the drawing, and list its branches where there are several."""
    out = console()
    width = out.width if out.file.isatty() else None
    print_lines(_drawing(graph, style=style, limit=limit, width=width))


def _drawing(graph: Graph, *, style: Style, limit: int | None, width: int | None) -> Iterator[Text]:
    yield Text(f"[chat: {escaped(graph.chat_id)}]", style="bold")
    yield Text()
    if not graph.nodes:
        yield Text("(empty)")
        return
    lines = draw_flat_lines(graph, style=style)
    for number, line in enumerate(islice(lines, limit)):
        if number and line.is_root:
            yield Text()
        yield from coloured(line, width=width)
    rest = sum(1 for _ in lines)
    if rest:
        yield Text(f"... {count(rest, 'more line')}, --limit cut them", style="dim")
    yield Text()
    yield Text(FLAT_LEGENDS[style], style="dim")
    if len(graph.branches) > 1:
        yield from _branch_list(graph)


def _branch_list(graph: Graph) -> Iterator[Text]:
    """The branches with their heads; of very many the first ones, and the active one wherever it stands."""
    shown = [branch for at, branch in enumerate(graph.branches) if at < _MOST_BRANCHES or branch.is_active]
    longest = max(Text(escaped(branch.name)).cell_len for branch in shown)
    yield Text()
    yield Text(f"Branches ({len(graph.branches):,}):", style="bold")
    for branch in shown:
        name = Text(escaped(branch.name), style=ACTIVE_HEAD if branch.is_active else HEAD)
        name.align("left", longest)
        head = "(empty)" if branch.head_message_id is None else short_id(branch.head_message_id)
        yield Text.assemble("* " if branch.is_active else "  ", name, (f"  {head}", "dim"))
    if len(shown) < len(graph.branches):
        yield Text(f"  ... {len(graph.branches) - len(shown):,} more; 'chatledger branches' lists them", style="dim")


def coloured(line: DrawnLine, *, width: int | None) -> list[Text]:
    """
    A line of the drawing in colour, no wider than the terminal.

    The preview gives way first. Names of branches and checkpoints are never cut: what does not fit beside the message stands
    under it.
    """
    if line.skipped:
        text = Text(_strokes(line.prefix, width), style="dim")
        return [_cut(text.append(messages_left_out(line.skipped), style="italic"), width)]
    weight = "" if line.is_active else "dim"
    head = Text.assemble((_strokes(line.prefix, width), "dim"), (line.id, weight or "bold"), " ")
    head.append(f"({line.role})", style=role_style(line.role))
    head.append(": ")
    tags = _tags(line)
    room = None if width is None else width - head.cell_len - sum(tag.cell_len for tag in tags) - 2
    preview = Text(line.content.removesuffix("..."))
    if room is None or Text(line.content).cell_len <= room:
        return [_joined(head.append(f'"{line.content}"', style=weight), tags)]
    assert width is not None, "without a width there is room"
    is_beside = room >= min(_LEAST_PREVIEW, preview.cell_len)
    most = max(room if is_beside else width - head.cell_len - 2, 1)
    if Text(line.content).cell_len > most:
        preview.truncate(most, overflow="ellipsis")
    else:
        preview = Text(line.content)
    first = head.append(f'"{preview.plain}"', style=weight)
    if is_beside:
        return [_joined(first, tags)]
    return [_cut(first, width), *_wrapped(tags, _strokes(line.below, width), width)]


def _strokes(prefix: str, width: int | None) -> str:
    """Strokes that leave room for a message: of very many columns the last ones."""
    most = None if width is None else max(width // 2, 4)
    return prefix if most is None or len(prefix) <= most else f"…{prefix[1 - most :]}"


def _tags(line: DrawnLine) -> list[Text]:
    """The names behind a message, each with the signs around it."""
    tags: list[Text] = []
    for number, (name, is_active) in enumerate(line.branches):
        shown = (f"{name} *", ACTIVE_HEAD) if is_active else (name, HEAD)
        tags.append(Text.assemble((", " if number else " <- [", "dim"), shown))
    if line.branches:
        tags[-1].append("]", style="dim")
    for number, name in enumerate(line.checkpoints):
        is_last = number == len(line.checkpoints) - 1
        tags.append(Text(f"{', ' if number else ' {'}{name}{'}' if is_last else ''}", style=CHECKPOINT))
    if line.merged_from:
        tags.append(Text(f" (merges {', '.join(line.merged_from)})", style="dim"))
    if line.note:
        tags.append(Text(f" ({line.note})", style="red"))
    return tags


def _joined(text: Text, tags: list[Text]) -> Text:
    for tag in tags:
        text.append_text(tag)
    return text


def _cut(text: Text, width: int | None) -> Text:
    if width is not None:
        text.truncate(width, overflow="ellipsis")
    return text


def _wrapped(tags: list[Text], strokes: str, width: int) -> Iterator[Text]:
    """The names on lines of their own; one that is wider than the terminal goes on in the next line."""
    room = max(width - len(strokes), _LEAST_ROOM)
    line = Text()
    for tag in tags:
        if line.cell_len + tag.cell_len > room and line:
            yield Text(strokes, style="dim").append_text(line)
            line = Text()
        # The first on a line goes without the blank, or the comma and the blank, before it.
        own = tag[1:] if tag.plain.startswith(" ") else tag[2:]
        text = line.append_text(tag) if line else own
        ends = list(accumulate(map(len, chop_cells(text.plain, room))))
        *whole, line = list(text.divide(ends[:-1])) or [text]
        yield from (Text(strokes, style="dim").append_text(part) for part in whole)
    if line:
        yield Text(strokes, style="dim").append_text(line)

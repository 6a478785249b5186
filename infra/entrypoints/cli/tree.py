"""The DAG of a chat in colours."""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from rich.console import Console
from rich.text import Text

from chatledger.domain.draw.outline import flat
from chatledger.domain.draw.tree import LEGEND, DrawnLine, Style, draw_lines
from chatledger.domain.values import Graph

from .output import ACTIVE_HEAD, CHECKPOINT, HEAD, console, count, print_lines, role_style

_LEAST_PREVIEW: Final = 4


def print_tree(graph: Graph, *, style: Style, limit: int | None = None) -> None:
    """Draw a chat, or the first lines of the drawing."""
    out = console()
    print_lines(_drawing(graph, style=style, limit=limit, out=out), is_cut=True)


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
    text = Text(line.prefix, style="dim")
    if line.skipped:
        text.append(str(line).removeprefix(line.prefix), style="italic")
        return text
    text.stylize("not dim", 0, len(line.prefix))
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

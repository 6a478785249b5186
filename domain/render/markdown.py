"""Fragments as Markdown."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from .prepared import Named, Renderer, Value, by_name, joined_scalars, partition, scalar_text
from .words import plural, title

_INDENT: Final = "  "


class _ListItem(NamedTuple):
    """An item of a list: `- **name**: value`, or `- value` where the name is None."""

    name: str | None
    value: Value
    depth: int
    is_apart: bool = False
    """Whether an empty line goes before it: else it would run into the object before it, or underline the key above."""
    is_markdown: bool = False
    """Whether its text is Markdown of the author's."""


@dataclass(frozen=True, kw_only=True)
class MarkdownRenderer(Renderer):
    """
    Writes fragments as Markdown: a heading per fragment, and nested lists below it.

    Text is written as it is, and may contain Markdown; but what would begin a heading or an item of a list gets a backslash,
    so no text adds fragments or entries. Text of the author's own, of a fragment `.with_metadata(markdown=True)`, gets none.
    docs/reference/renderers/markdown.md shows each rule.
    """

    def document(self, fragments: Sequence[Named]) -> str:
        """See `Renderer.document`."""
        return "\n\n".join(f"## {title(named.name)}\n{self._body(named)}" for named in fragments)

    def _body(self, named: Named) -> str:
        value = named.value
        if not isinstance(value, Named | list | dict):
            text = scalar_text(value)
            if named.is_markdown:
                return text
            return "\n".join(_harmless_lines(_LINE_BREAK.split(text), is_below_text=False, is_in_item=False))
        lines: list[str] = []
        pending = self._top(value)[::-1]
        while pending:
            pending += _write(pending.pop(), lines)[::-1]
        return "\n".join(lines)

    def _top(self, value: Value) -> list[_ListItem]:
        if not isinstance(value, list):
            return _inner(value, 0)
        plain, fragments = partition(value)
        if not self.group_fragments:
            return _inner([*plain, *fragments], 0)
        groups = [_ListItem(title(plural(name)), list(group), 0) for name, group in by_name(fragments).items()]
        return [*_inner(plain, 0), *groups]


def _write(item: _ListItem, lines: list[str]) -> list[_ListItem]:
    """Write the lines of an item. Returns what comes below it."""
    name, value, depth, is_apart, is_markdown = item
    if isinstance(value, dict) and name is None:
        return _entries(value, depth, is_apart=is_apart)
    if is_apart:
        lines.append("")
    head = _INDENT * depth + ("-" if name is None else f"- **{' '.join(name.splitlines())}**:")
    text = joined_scalars(value) if isinstance(value, list) and name is None else _text(value)
    if text is not None:
        texts = _lines_of_item(text) if name is None else _LINE_BREAK.split(text)
        texts = texts if is_markdown else _harmless_item(texts, is_named=name is not None)
        first, *others = ["", *texts] if name is None and _is_below_its_dash(texts) else texts
        lines.append(f"{head} {first}" if first or not others else head)
        lines += [line and f"{_INDENT * (depth + 1)}{line}" for line in others]
        return []
    lines.append(head)
    if isinstance(value, dict) and not value:
        lines.append("")
    inner = _inner(value, depth + 1)
    if name is not None and inner and _is_only_a_dash(inner[0]):
        inner[0] = inner[0]._replace(is_apart=True)
    return inner


def _is_only_a_dash(item: _ListItem) -> bool:
    """Whether nothing stands behind the dash of an item. Below a line of text, such a dash makes that a heading."""
    if item.name is not None or isinstance(item.value, dict):
        return False
    text = joined_scalars(item.value) if isinstance(item.value, list) else _text(item.value)
    return text is None or not text.strip(" \t\r\n") or _is_below_its_dash(_lines_of_item(text))


def _lines_of_item(text: str) -> list[str]:
    """The lines of a text that is an item. Empty lines at its beginning are left out, as they would end the item."""
    first, *others = _LINE_BREAK.split(text)
    while others and not first.strip(" \t"):
        first, *others = others
    return [first, *others]


def _is_below_its_dash(texts: list[str]) -> bool:
    """
    Whether the lines of a text begin below the dash of their item, not behind it.

    The blanks that a first line begins with would move the edge of the item, and lines that begin with fewer would end it. From
    four on they are code in the item, and move nothing.
    """
    first, *others = texts
    blanks = len(first) - len(first.lstrip(" \t"))
    if not blanks or not others:
        return False
    return "\t" in first[:blanks] or (
        blanks < 4 and not all(line.startswith(" " * blanks) for line in others if line.strip(" \t"))
    )


def _text(value: Value) -> str | None:
    return None if isinstance(value, Named | list | dict) else scalar_text(value)


def _inner(value: Value, depth: int) -> list[_ListItem]:
    """The items that a fragment, a list or an object holds. A fragment stands under its own name, wherever it is."""
    if isinstance(value, Named):
        return [_item(None, value, depth)]
    if isinstance(value, dict):
        return _entries(value, depth)
    return list(_items(value, depth)) if isinstance(value, list) else []


def _entries(value: dict[str, Value], depth: int, *, is_apart: bool = False) -> list[_ListItem]:
    items = [_item(key, inner, depth) for key, inner in value.items()]
    return [items[0]._replace(is_apart=True), *items[1:]] if is_apart and items else items


def _items(values: list[Value], depth: int) -> Iterator[_ListItem]:
    """The items of a list. Two objects side by side are told apart if it takes more than one line to write them."""
    before: Value = ""
    for value in values:
        if value == {}:
            continue  # an object is written as its entries
        is_apart = isinstance(value, dict) and isinstance(before, dict) and max(len(value), len(before)) > 1
        yield _item(None, value, depth)._replace(is_apart=is_apart)
        before = value


def _item(name: str | None, value: Value, depth: int) -> _ListItem:
    if isinstance(value, Named):
        return _ListItem(value.name, value.value, depth, is_markdown=value.is_markdown)
    return _ListItem(name, value, depth)


# What follows keeps text in its place, as a parser of CommonMark sees it. Where it must, it writes a backslash before the
# character that would begin something, which such a parser does not show.

_LINE_BREAK: Final = re.compile(r"\r\n?|\n")
_BEGINS: Final = re.compile(r"([ \t]{0,3})(?=#{1,6}(?:[ \t]|$)|[-+*](?:[ \t]|$))")
"""A heading, or an item of a bullet list."""
_UNDERLINES: Final = re.compile(r"([ \t]{0,3})(?=(?:=+|-+)[ \t]*$)")
"""Below a line of text it makes that a heading."""
_SWALLOWS: Final = re.compile(r"([ \t]{0,3})(?=`{3,}[^`]*$|~{3}|<(?:script|pre|style|textarea)|<[!?])", re.IGNORECASE)
"""Code or HTML that goes on until it is ended, over the headings of what comes next."""
_FENCE: Final = re.compile(r"`{3,}(?=[^`]*$)|~{3,}")
"""At the start of a line, it begins a block of code."""
_RULE: Final = re.compile(r"([ \t]*)(?=-[- \t]*$)")
"""After the dash of an item it makes the line a thematic break."""


def _harmless_item(texts: list[str], *, is_named: bool) -> list[str]:
    """The lines of a text in an item of a list. A named item begins inside of a line."""
    first, *others = texts
    if is_named:
        return [first, *_harmless_lines(others, is_below_text=True, is_in_item=True)]
    first = _escaped(_RULE if _RULE.match(first) else _BEGINS, first)
    return _harmless_lines([first, *others], is_below_text=False, is_in_item=True)


def _harmless_lines(texts: list[str], *, is_below_text: bool, is_in_item: bool) -> list[str]:
    """
    The lines of a text. Blocks of code in it that are ended stay as they are.

    In an item they are indented, so nothing in them goes on after it: code and HTML need no end. But after such a line nobody
    knows what is code.
    """
    lines: list[str] = []
    endless: set[str] = set()
    is_below_html = False
    while len(lines) < len(texts):
        line = texts[len(lines)]
        if not is_below_html and (end := _end_of_code(texts, len(lines), endless)):
            lines += texts[len(lines) : end]
            is_below_text = False
            continue
        harmless = _escaped(_UNDERLINES if is_below_text and _UNDERLINES.match(line) else _BEGINS, line)
        lines.append(harmless if is_in_item else _escaped(_SWALLOWS, harmless))
        is_below_text = bool(line.strip(" \t"))
        if is_in_item:
            is_below_html |= bool(_SWALLOWS.match(line)) or line.lstrip(" \t").startswith("<")
        else:
            is_below_html = is_below_text and (is_below_html or line.lstrip(" \t").startswith("<"))
    return lines


def _end_of_code(lines: list[str], start: int, endless: set[str]) -> int:
    """
    The number of the line after the block of code that begins here; 0 if none does, or it has no end.

    Fences without an end are put into `endless`, so that no text is searched for each of them.
    """
    fence = _FENCE.match(lines[start])
    if fence is None or any(fence[0].startswith(each) for each in endless):
        return 0
    closing = re.compile(rf" {{0,3}}{re.escape(fence[0])}{re.escape(fence[0][0])}*[ \t]*$")
    for number in range(start + 1, len(lines)):
        if closing.match(lines[number]):
            return number + 1
    endless.add(fence[0])
    return 0


def _escaped(pattern: re.Pattern[str], line: str) -> str:
    begin = pattern.match(line)
    return f"{begin[1]}\\{line[begin.end() :]}" if begin else line

"""Fragments as Markdown."""

from collections.abc import Sequence
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


@dataclass(frozen=True, kw_only=True)
class MarkdownRenderer(Renderer):
    """
    Writes fragments as Markdown: a heading per fragment, and nested lists below it.

    Text is written as it is, not escaped: it may contain Markdown. docs/reference/renderers/markdown.md shows each rule.
    """

    def _document(self, fragments: Sequence[Named]) -> str:
        return "\n\n".join(f"## {title(named.name)}\n{self._body(named.value)}" for named in fragments)

    def _body(self, value: Value) -> str:
        if not isinstance(value, Named | list | dict):
            return scalar_text(value)
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
    """Write the line of an item. Returns what comes below it."""
    name, value, depth = item
    head = _INDENT * depth + ("-" if name is None else f"- **{name}**:")
    if isinstance(value, dict) and name is None:
        return _inner(value, depth)
    text = joined_scalars(value) if isinstance(value, list) and name is None else _text(value)
    if text is not None:
        lines.append(f"{head} {text}")
        return []
    lines.append(head)
    if isinstance(value, dict) and not value:
        lines.append("")
    return _inner(value, depth + 1)


def _text(value: Value) -> str | None:
    return None if isinstance(value, Named | list | dict) else scalar_text(value)


def _inner(value: Value, depth: int) -> list[_ListItem]:
    """The items that a fragment, a list or an object holds. A fragment stands under its own name, wherever it is."""
    if isinstance(value, Named):
        return [_item(None, value, depth)]
    if isinstance(value, dict):
        return [_item(key, inner, depth) for key, inner in value.items()]
    return [_item(None, inner, depth) for inner in value] if isinstance(value, list) else []


def _item(name: str | None, value: Value, depth: int) -> _ListItem:
    return _ListItem(value.name, value.value, depth) if isinstance(value, Named) else _ListItem(name, value, depth)

"""Fragments as XML."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from ..context.fragment import Fragment, as_fragment, fragment
from .base import Renderer
from .prepared import Named, Value
from .scalars import scalar_text
from .shapes import by_name, joined_scalars, partition
from .words import plural, singular
from .xml_names import xml_name, xml_text

_INDENT: Final = "  "
_LINE_BREAK: Final = re.compile(r"\r\n?|\n")  # what a parser of XML reads as one
_ESCAPES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"})


class _Role(Enum):
    """What a value is to its element; lists differ by it."""

    DATA = auto()
    """The data of the fragment that the element is named after: items first, then fragments, grouped if asked for."""
    ENTRY = auto()
    """The value below a key: items in their order, under the singular of the key."""
    ITEM = auto()
    """An item of a list: the inner items in their order, under the same tag."""
    GROUP = auto()
    """Fragments of one name."""


class _Element(NamedTuple):
    name: str
    value: Value
    role: _Role


_Content = str | list[_Element]


@dataclass(frozen=True, kw_only=True)
class XmlRenderer(Renderer):
    """
    Writes fragments as XML: one element per fragment, two blanks per level, well-formed whatever the content.

    Text is escaped, tags are made valid names, and what XML cannot hold becomes U+FFFD, so no content can end its
    element. docs/reference/renderers/xml.md shows each rule. Each line is indented by its depth, so the size of an output
    grows with the square of the depth.
    """

    def _document(self, fragments: Sequence[Named]) -> str:
        written = [self._written(named.name, self._unwrapped(named)) for named in fragments]
        return "\n".join(text for text in written if text)

    def _unwrapped(self, named: Named) -> _Content:
        """The content of a top-level element: a list of one item stands for the item."""
        value = named.value
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
            if isinstance(value, list):
                return self._listed(_Element(singular(named.name), value, _Role.ITEM), value)
        if isinstance(value, Named):
            return self._dissolved(value)
        return self._content(_Element(named.name, value, _Role.DATA))

    def _dissolved(self, only: Named) -> _Content:
        """The content of a top-level element whose data are one fragment: the fragment, or what its mixed list holds."""
        items, fragments = partition(only.value) if isinstance(only.value, list) else ([], [])
        if not items:
            return [_element(only)]
        return [*_items(only.name, items), *self._fragments(fragments)]

    def _content(self, element: _Element) -> _Content:
        """The text of a leaf, or the children of a container."""
        value = element.value
        if isinstance(value, Named):
            return [_element(value)]
        if isinstance(value, list):
            return self._listed(element, value)
        if isinstance(value, dict):
            return [_element(item, key, _Role.ENTRY) for key, item in value.items()]
        return scalar_text(value)

    def _listed(self, element: _Element, values: list[Value]) -> _Content:
        if element.role is _Role.DATA:
            items, fragments = partition(values)
            return [*_items(singular(element.name), items), *self._fragments(fragments)]
        if element.role is _Role.ENTRY:
            return _items(singular(element.name), values)
        if element.role is _Role.ITEM and values:
            text = joined_scalars(values)
            return _items(element.name, values) if text is None else text
        return [_element(value) for value in values]

    def _fragments(self, fragments: list[Named]) -> list[_Element]:
        if not self.group_fragments:
            return [_element(named) for named in fragments]
        return [_Element(plural(name), list(group), _Role.GROUP) for name, group in by_name(fragments).items()]

    def _written(self, name: str, content: _Content) -> str:
        """The lines of a top-level element; empty when nothing is in it."""
        writer = _Writer()
        writer.put(name, content)
        while writer.open:
            child = next(writer.open[-1].children, None)
            if child is None:
                writer.end()
            else:
                writer.put(child.name, self._content(child))
        return "\n".join(writer.lines)


class _Open(NamedTuple):
    """A container that has begun."""

    tag: str
    line: int
    """Where its opening tag is."""
    children: Iterator[_Element]
    """Those which are still to come."""


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.open: list[_Open] = []

    def put(self, name: str, content: _Content) -> None:
        """Write a leaf, or begin a container."""
        tag, indent = xml_name(name), _INDENT * len(self.open)
        if not isinstance(content, str):
            self.open.append(_Open(tag, len(self.lines), iter(content)))
            self.lines.append(f"{indent}<{tag}>")
            return
        texts = _LINE_BREAK.split(xml_text(content).translate(_ESCAPES))
        if len(texts) == 1:
            self.lines.append(f"{indent}<{tag}>{texts[0]}</{tag}>")
            return
        if not any(text.strip() for text in texts):
            texts = [""]
        self.lines += [f"{indent}<{tag}>", *(f"{indent}{_INDENT}{text}" for text in texts), f"{indent}</{tag}>"]

    def end(self) -> None:
        """End the innermost container. One without content leaves no trace."""
        tag, line, _ = self.open.pop()
        if line == len(self.lines) - 1:
            self.lines.pop()
        else:
            self.lines.append(f"{_INDENT * len(self.open)}</{tag}>")


def render(tag: str, *fragments: Fragment | Mapping[str, Any]) -> str:
    """
    The XML of one fragment named `tag` with these children; empty without any.

    Example:
        render("rules", hint("Use UTC"), hint("No PII"))

    Raises:
        InvalidValueError: The tag is no name, or a child is not a fragment.
    """
    if not fragments:
        return ""
    return XmlRenderer().render([fragment(tag, *(as_fragment(child) for child in fragments))])


def _element(value: Value, name: str = "", role: _Role = _Role.ITEM) -> _Element:
    """The element of a value: under this name, or its own if it is a fragment."""
    if isinstance(value, Named):
        return _Element(value.name, value.value, _Role.DATA)
    return _Element(name, value, role)


def _items(name: str, values: list[Value]) -> list[_Element]:
    return [_element(value, name) for value in values]

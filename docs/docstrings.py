"""Docstrings and source as Markdown."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, Final

_SECTION: Final = re.compile(r"^(Args|Attributes|Returns|Raises|Example|Source): *(.*)$")
_ITEM: Final = re.compile(r"^(\S[^:]*): +(.*)$")


def doc_of(thing: Any) -> str:
    """The docstring of a module, class, function or property, which has one."""
    text = inspect.getdoc(thing)
    assert text, f"{thing!r} has no docstring"
    return text


def tree_of(thing: Any) -> ast.stmt:
    """The statement that defines a class or function."""
    return ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]


def text_of(doc: str) -> str:
    """A docstring as Markdown."""
    return join(*blocks_of(doc)).rstrip("\n")


def line_of(doc: str) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join(doc.split("\n\n", maxsplit=1)[0].split())


def blocks_of(doc: str) -> Iterator[str]:
    """The paragraphs of a docstring as Markdown: sections become headings with lists, what is indented becomes a block."""
    for paragraph in doc.split("\n\n"):
        lines = paragraph.split("\n")
        while lines:
            section = _SECTION.match(lines[0])
            if section is None:
                at = next((number for number, line in enumerate(lines) if number and _SECTION.match(line)), len(lines))
                yield _prose(lines[:at])
                lines = lines[at:]
                continue
            at = next((number for number, line in enumerate(lines) if number and _SECTION.match(line)), len(lines))
            yield _section(section[1], section[2], lines[1:at])
            lines = lines[at:]


def _prose(lines: list[str]) -> str:
    body = "\n".join(lines).strip("\n")
    return f"```text\n{textwrap.dedent(body)}\n```" if body.startswith("    ") else body


def _section(title: str, rest: str, lines: list[str]) -> str:
    body = textwrap.dedent("\n".join(lines)).strip("\n")
    if title == "Example":
        return f"Example:\n\n```text\n{body}\n```"
    if title in {"Returns", "Source"}:
        return f"**{title}:** {' '.join([rest, *body.split(chr(10))]).strip()}"
    return f"**{title}:**\n\n{_items(body.split(chr(10)))}"


def _items(lines: Iterable[str]) -> str:
    found: list[str] = []
    for line in lines:
        item = _ITEM.match(line)
        if item is not None:
            names = ", ".join(f"`{name.strip()}`" for name in item[1].split(","))
            found.append(f"- {names}: {item[2]}")
        elif line and found:
            found[-1] += f" {line.strip()}"
        elif line:
            found.append(f"- {line}")
    return "\n".join(found)


def join(*parts: str) -> str:
    """A page of these parts, with an empty line between two; empty parts are left out."""
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"

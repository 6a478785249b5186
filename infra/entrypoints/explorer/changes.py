"""Differences between two sets of named values: of two steps of an agent, or two versions of a state."""

import json
from collections.abc import Mapping
from difflib import unified_diff
from itertools import islice
from typing import Any, Final, Literal

from chatledger.domain.wire import Value

_LINES: Final = 400
_COMPARED: Final = 4000
"""The most lines of two values that are compared: hostile ones take quadratic time."""

_FIRST_HUNK: Final = ("@@ -0,0 ", "@@ -1 ", "@@ -1,")


class ChangedLine(Value, frozen=True):
    """A line of a value, as indented JSON: `-` of the left one, `+` of the right one, a space for both; `@` where some are left out."""

    sign: str
    text: str


class Change(Value, frozen=True, kw_only=True):
    """
    A value that differs.

    Args:
        name: Its name.
        kind: Where it is.
        lines: The lines that differ, with two around them, at most 400.
        is_cut: Whether there is more.
    """

    name: str
    kind: Literal["added", "removed", "changed"]
    lines: list[ChangedLine]
    is_cut: bool


def changes_between(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[Change]:
    """Return the values that differ, in the order of their names."""
    return [
        _change(name, _lines(left, name), _lines(right, name))
        for name in sorted({*left, *right})
        if name not in left or name not in right or left[name] != right[name]
    ]


def _lines(values: Mapping[str, Any], name: str) -> list[str] | None:
    return json.dumps(values[name], ensure_ascii=False, indent=2).split("\n") if name in values else None


def _change(name: str, left: list[str] | None, right: list[str] | None) -> Change:
    kind: Literal["added", "removed", "changed"] = (
        "added" if left is None else "removed" if right is None else "changed"
    )
    old, new = left or [], right or []
    compared = unified_diff(old[:_COMPARED], new[:_COMPARED], n=2, lineterm="")
    # The first two lines name files; those of hunks count lines, and say nothing where one begins with the first line.
    shown = [
        ChangedLine("@", "…") if line[0] == "@" else ChangedLine(line[0], line[1:])
        for line in islice(compared, 2, None)
        if not line.startswith(_FIRST_HUNK)
    ]
    is_cut = len(shown) > _LINES or max(len(old), len(new)) > _COMPARED
    return Change(name=name, kind=kind, lines=shown[:_LINES], is_cut=is_cut)

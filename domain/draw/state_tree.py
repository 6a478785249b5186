"""States as trees: what they hold, and which parts of it differ from another one."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, cast

from ..versioned.serials import UnreadValue, is_message
from ..versioned.standing import text_of_message
from ..wire import Value

Mark = Literal["", "inner", "added", "removed"]
_SHOWN: Final = 160
"""Characters of a text that are shown in its row."""
_LEAST_FOLDED: Final = 4
"""Fewer equal elements beside each other are shown."""
_MOST: Final = 2_000
"""Rows of one tree."""


class StateNode(Value, frozen=True, kw_only=True):
    """
    A value in a tree.

    Args:
        name: Its key, or its place in a list.
        path: The keys that lead to it, as JSON Pointer has them.
        mark: Whether it is only in the newer state, only in the older one, or something in it differs.
        text: The value, as JSON, where it holds nothing; else what it is, such as `list, 14`.
        kind: `text`, `number`, `word` or `message` of a value, `list` or `dict` of what holds others, `equal` of a run of equal ones.
        children: What it holds.
    """

    name: str
    path: str
    mark: Mark
    text: str
    kind: str
    children: list["StateNode"]


def state_tree(values: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[StateNode]:
    """
    Return a state as a tree, with what differs from another one; all of it is equal where that is None.

    Lists are compared from both ends: what lies between is taken out and put in, where it does not pair.
    """
    tree = _StateTree()
    old = values if before is None else before
    return list(tree.entries("", old, values))


def changed_names(nodes: Iterable[StateNode]) -> list[str]:
    """Return the names of the values that differ, each once."""
    return list(dict.fromkeys(node.name for node in nodes if node.mark))


class _StateTree:
    def __init__(self) -> None:
        self._left = _MOST

    def entries(self, path: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[StateNode]:
        for name in dict.fromkeys((*new, *old)):
            inner = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
            if name not in old:
                yield self._whole(name, inner, new[name], "added")
            elif name not in new:
                yield self._whole(name, inner, old[name], "removed")
            else:
                yield from self._pair(name, inner, old[name], new[name])

    def _pair(self, name: str, path: str, old: Any, new: Any) -> Iterator[StateNode]:
        """Yield the nodes of a value that is in both states: the old one and the new one, where they are not alike."""
        if old == new and type(old) is type(new):
            yield self._whole(name, path, new, "")
        elif isinstance(old, dict) and isinstance(new, dict) and not (is_message(old) or is_message(new)):
            fields = cast("dict[str, Any]", new)
            children = list(self.entries(path, cast("dict[str, Any]", old), fields))
            yield self._holder(name, path, "inner", _size("dict", len(fields)), "dict", folded(children))
        elif isinstance(old, list) and isinstance(new, list):
            elements = cast("list[Any]", new)
            children = list(self._elements(path, cast("list[Any]", old), elements))
            fresh = sum(child.mark == "added" for child in children)
            more = f", {fresh:,} new" if fresh and len(elements) > fresh else ""
            size = _size("list", len(elements)) + more
            yield self._holder(name, path, "inner", size, "list", folded(children))
        else:
            yield self._whole(name, path, old, "removed")
            yield self._whole(name, path, new, "added")

    def _elements(self, path: str, old: Sequence[Any], new: Sequence[Any]) -> Iterator[StateNode]:
        least = min(len(old), len(new))
        begin = next((at for at in range(least) if old[at] != new[at]), least)
        end = next((at for at in range(least - begin) if old[-1 - at] != new[-1 - at]), least - begin)
        for at in range(begin):
            yield self._whole(str(at), f"{path}/{at}", new[at], "")
        is_paired = len(old) == len(new)
        if is_paired:
            for at in range(begin, len(new) - end):
                yield from self._pair(str(at), f"{path}/{at}", old[at], new[at])
        else:
            for at in range(begin, len(old) - end):
                yield self._whole(str(at), f"{path}/{at}", old[at], "removed")
            for at in range(begin, len(new) - end):
                yield self._whole(str(at), f"{path}/{at}", new[at], "added")
        for at in range(len(new) - end, len(new)):
            yield self._whole(str(at), f"{path}/{at}", new[at], "")

    def _whole(self, name: str, path: str, value: Any, mark: Mark) -> StateNode:
        """Return the node of a value that is in one state only, or the same in both."""
        self._left -= 1
        if is_message(value):
            return StateNode(name=name, path=path, mark=mark, text=message_line(value), kind="message", children=[])
        if isinstance(value, dict) and value:
            fields = cast("dict[str, Any]", value)
            inner = self._inner(path, fields.items(), len(fields), mark)
            return self._holder(name, path, mark, _size("dict", len(fields)), "dict", inner)
        if isinstance(value, list) and value:
            elements = cast("list[Any]", value)
            inner = self._inner(path, enumerate(elements), len(elements), mark)
            return self._holder(name, path, mark, _size("list", len(elements)), "list", inner)
        kind = "text" if isinstance(value, str) else "word" if value is None or isinstance(value, bool) else "number"
        return StateNode(name=name, path=path, mark=mark, text=shown_value(value), kind=kind, children=[])

    def _inner(self, path: str, entries: Iterable[tuple[Any, Any]], count: int, mark: Mark) -> list[StateNode]:
        nodes: list[StateNode] = []
        for key, entry in entries:
            if self._left <= 0:
                text = f"… and {count - len(nodes):,} more"
                return [*nodes, StateNode(name="", path=path, mark="", text=text, kind="word", children=[])]
            nodes.append(self._whole(str(key), f"{path}/{key}", entry, mark))
        return nodes

    def _holder(self, name: str, path: str, mark: Mark, text: str, kind: str, children: list[StateNode]) -> StateNode:
        return StateNode(name=name, path=path, mark=mark, text=text, kind=kind, children=children)


def _size(kind: str, count: int) -> str:
    return f"{kind}, {count:,}"


def folded(nodes: Sequence[StateNode]) -> list[StateNode]:
    """Return nodes with runs of equal ones in one node each, where something beside them differs."""
    shown: list[StateNode] = []
    run: list[StateNode] = []

    def end_run() -> None:
        if len(run) < _LEAST_FOLDED:
            shown.extend(run)
        else:
            text = f"… {len(run):,} equal"
            shown.append(StateNode(name="", path=run[0].path, mark="", text=text, kind="equal", children=list(run)))
        run.clear()

    for node in nodes:
        if node.mark:
            end_run()
            shown.append(node)
        else:
            run.append(node)
    end_run()
    return shown


def shown_value(value: Any) -> str:
    """Return a value that holds no others as JSON; of a long text the beginning, and how long it is."""
    if isinstance(value, UnreadValue):
        return str(value)
    if isinstance(value, str) and len(value) > _SHOWN:
        return f'{json.dumps(value[:_SHOWN], ensure_ascii=False)[:-1]}…" {len(value):,} characters'
    return json.dumps(value, ensure_ascii=False)


def message_line(message: Mapping[str, Any]) -> str:
    """Return who said a message and how it begins."""
    role = str(message.get("role", message.get("type")))
    text = " ".join(text_of_message(message).split())
    return f"{role} {json.dumps(text[:_SHOWN] + ('…' if len(text) > _SHOWN else ''), ensure_ascii=False)}"


def value_line(value: Any) -> str:
    """Return a value in one line: a message as who said what, what holds others as JSON, cut."""
    if is_message(value):
        return message_line(value)
    if isinstance(value, list) and value and all(map(is_message, cast("list[Any]", value))):
        return ", ".join(map(message_line, cast("list[Any]", value)[:2]))
    if isinstance(value, dict | list):
        text = json.dumps(value, ensure_ascii=False, default=str)
        return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return shown_value(value)


def value_row(name: str, value: Any) -> StateNode:
    """Return a value as one row of a tree, whatever it holds."""
    return StateNode(name=name, path=f"/{name}", mark="", text=value_line(value), kind="text", children=[])


def messages_in(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages that a state has: those called so, or the first list of some."""
    lists = [values[name] for name in sorted(values, key=lambda name: name != "messages")]
    for entries in lists:
        if isinstance(entries, list) and entries and all(map(is_message, cast("list[Any]", entries))):
            return cast("list[dict[str, Any]]", entries)
    return []

"""
The order and shape in which a DAG is drawn, whatever the drawing looks like.

Long runs without forks and markers are collapsed, and nothing here recurses: the number of parts follows the number of
forks, branches and checkpoints, not the length of the chains.
"""

import json
import re
from collections.abc import Iterator
from itertools import count
from typing import Final

import msgspec

from ..errors import InvalidValueError
from ..values import Graph, GraphNode

_ID_CHARACTERS: Final = 8
# Control characters would break lines, or drive the terminal.
_BLANKS: Final = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029], " ")
_UNSEEN: Final = (
    *range(0x202A, 0x202F),
    *range(0x2060, 0x2065),
    *range(0x2066, 0x2070),
    *range(0xFFF9, 0xFFFC),
    *range(0xE0000, 0xE0080),
    0x00AD,
    0x180E,
    0x200B,
    0xFEFF,
)
ESCAPES: Final = {code: f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}" for code in _UNSEEN}
"""
Characters that nobody sees, and that let a text look like another one: overrides of the direction, tags, blanks of no width.

Marks that a script needs (U+200C to U+200F) are not among them.
"""
_NOT_BARE: Final = re.compile(r'[][{}*,"]|^\s|\s$|^$')
_NO_XML: Final = re.compile("[\ud800-\udfff\ufffe\uffff]")


def flat(text: str) -> str:
    """A text on one line: line breaks and other control characters become blanks."""
    return text.replace("\r\n", " ").translate(_BLANKS)


def escaped(text: str) -> str:
    """A text on one line as people see it: what nobody sees, and lets it look like another one, is escaped."""
    return flat(text).translate(ESCAPES)


def printable(text: str) -> str:
    """A text as `escaped` gives it; characters that neither XML nor UTF-8 can hold become U+FFFD."""
    return _NO_XML.sub("\ufffd", escaped(text))


def marker(name: str) -> str:
    """The name of a branch or checkpoint, in quotes if it could be read as more than one, or as the sign of the active one."""
    shown = escaped(name)
    return json.dumps(shown, ensure_ascii=False) if _NOT_BARE.search(shown) else shown


def short_id(message_id: str) -> str:
    """The first characters of an id."""
    return flat(message_id[:_ID_CHARACTERS])


def messages_left_out(count: int) -> str:
    """Return the placeholder for messages that are not shown."""
    return f"... {count} {'message' if count == 1 else 'messages'} ..."


COLLAPSE_AFTER: Final = 8
PARENT_MISSING, CYCLE = "parent missing", "cycle"
_ENDS: Final = 2
"""The number of messages that stay at either end of a collapsed run."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """
    One place of a drawing: a message, or the middle of a run.

    Args:
        number: 0, 1, 2 ... in the order of drawing: parents first, one subtree after another.
        parent: The number of the part above; None for a root.
        depth: How many parts are above it.
        is_last: Whether it is the last child of its parent.
        node: The message; None for the middle of a run.
        skipped: How many messages the middle of a run stands for; 0 for a message.
        branches: Name and whether it is the active one, of the branches whose head this is.
        checkpoints: The names of those on this message.
        is_active: Whether it lies on the chain of the active branch.
        note: Why a message with a parent is drawn as a root: its parent is not in the data, or is one of its own
            descendants. Else empty.
    """

    number: int
    parent: int | None
    depth: int
    is_last: bool
    node: GraphNode | None
    skipped: int = 0
    branches: tuple[tuple[str, bool], ...] = ()
    checkpoints: tuple[str, ...] = ()
    is_active: bool = False
    note: str = ""


def outline(graph: Graph, *, collapse_after: int | None) -> Iterator[Part]:
    """
    The parts of a drawing, one by one.

    Args:
        graph: Also of foreign data: parents may be missing, and a cycle is cut above its first message.
        collapse_after: Longer runs of messages that are only children with one child each, without branch or checkpoint,
            are represented by their first and last two. None leaves nothing out.

    Raises:
        InvalidValueError: `collapse_after` is no number of messages, or two messages have the same id.
    """
    is_number = isinstance(collapse_after, int) and not isinstance(collapse_after, bool) and collapse_after >= 0
    if collapse_after is not None and not is_number:
        msg = f"collapse_after must be a whole number of at least 0, or None, not {collapse_after!r}"
        raise InvalidValueError(msg)
    return _Outline(graph, collapse_after).parts()


class _Outline:
    def __init__(self, graph: Graph, collapse_after: int | None) -> None:
        self._collapse_after = collapse_after
        nodes = sorted(graph.nodes, key=lambda node: node.created_at)
        self._nodes = {node.id: node for node in nodes}
        if len(self._nodes) < len(nodes):
            twice = next(node.id for node in nodes if self._nodes[node.id] is not node)
            msg = (
                f"message {twice!r} is more than once in the graph of chat {graph.chat_id!r}; each id names one message"
            )
            raise InvalidValueError(msg)
        # The first message of each cycle, in the order of `nodes`: every walk to the parents ends at a root or in a cycle.
        order = {message_id: number for number, message_id in enumerate(self._nodes)}
        firsts: set[str] = set()
        walk_of: dict[str, str] = {}
        for start in self._nodes:
            at: str | None = start
            while at is not None and at in self._nodes and at not in walk_of:
                walk_of[at] = start
                at = self._nodes[at].parent_id
            if at is not None and walk_of.get(at) == start:
                firsts.add(min(_cycle_through(at, self._nodes), key=order.__getitem__))
        self._notes: dict[str, str] = {}
        self._children: dict[str, list[GraphNode]] = {}
        self._roots: dict[str, GraphNode] = {}
        for node in nodes:
            if node.parent_id is not None and node.parent_id in self._nodes and node.id not in firsts:
                self._children.setdefault(node.parent_id, []).append(node)
                continue
            self._roots[node.id] = node
            if node.parent_id is not None:
                self._notes[node.id] = CYCLE if node.id in firsts else PARENT_MISSING
        self._checkpoints: dict[str, list[str]] = {}
        for checkpoint in graph.checkpoints:
            self._checkpoints.setdefault(checkpoint.message_id, []).append(checkpoint.name)
        self._branches: dict[str, list[tuple[str, bool]]] = {}
        self._active: set[str] = set()
        for branch in graph.branches:
            if branch.head_message_id is not None:
                self._branches.setdefault(branch.head_message_id, []).append((branch.name, branch.is_active))
                if branch.is_active:
                    self._mark_active(branch.head_message_id)

    def _mark_active(self, head: str) -> None:
        at: str | None = head
        while at is not None and at in self._nodes and at not in self._active:
            self._active.add(at)
            at = None if at in self._roots else self._nodes[at].parent_id

    def parts(self) -> Iterator[Part]:
        """Depth first. The stack holds messages, and where they stand."""
        numbers = count()
        stack: list[tuple[GraphNode, int | None, int, bool]]
        stack = [(root, None, 0, True) for root in reversed(self._roots.values())]
        while stack:
            node, above, depth, is_last = stack.pop()
            run = self._run_from(node) or [node]
            for step in self._shorten(run):
                number = next(numbers)
                yield self._part(step, number, above, depth, is_last=is_last, is_active=node.id in self._active)
                # Each message of a run is an only child, so the next one stands one step deeper.
                above, depth, is_last = number, depth + 1, True
            children = self._children.get(run[-1].id, [])
            stack.extend((child, above, depth, child is children[-1]) for child in reversed(children))

    def _part(
        self, step: GraphNode | int, number: int, parent: int | None, depth: int, *, is_last: bool, is_active: bool
    ) -> Part:
        """`is_active` holds for the whole run: who leaves the active chain is no only child, or has the head above."""
        node, skipped = (None, step) if isinstance(step, int) else (step, 0)
        message_id = "" if node is None else node.id
        return Part(
            number=number,
            parent=parent,
            depth=depth,
            is_last=is_last,
            is_active=is_active,
            node=node,
            skipped=skipped,
            branches=tuple(self._branches.get(message_id, ())),
            checkpoints=tuple(self._checkpoints.get(message_id, ())),
            note=self._notes.get(message_id, ""),
        )

    def _run_from(self, node: GraphNode) -> list[GraphNode]:
        """The run that begins at a message; none when it has a fork or marker, or is a root."""
        run: list[GraphNode] = []
        while self._is_plain(node):
            run.append(node)
            (node,) = self._children[node.id]
        return run

    def _is_plain(self, node: GraphNode) -> bool:
        if node.id in self._roots or node.id in self._branches or node.id in self._checkpoints:
            return False
        assert node.parent_id is not None, "what has no parent is a root"
        return len(self._children[node.parent_id]) == 1 == len(self._children.get(node.id, ()))

    def _shorten(self, run: list[GraphNode]) -> list[GraphNode | int]:
        """Return the run; of a long one its ends, and between them the number of the others."""
        if self._collapse_after is None or len(run) <= max(self._collapse_after, 2 * _ENDS):
            return [*run]
        return [*run[:_ENDS], len(run) - 2 * _ENDS, *run[-_ENDS:]]


def _cycle_through(message_id: str, nodes: dict[str, GraphNode]) -> Iterator[str]:
    at: str | None = message_id
    while at is not None:
        yield at
        at = nodes[at].parent_id
        if at == message_id:
            return

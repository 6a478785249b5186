"""
Items of a session: one item of the Responses API is one message, as it came.

Messages that something else wrote are told as items: one may stand for several, such as what was said and the calls that followed,
or for none. A turn is a message of the user and the items that follow it, up to the next; counted from 1, and 0 before the first.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from chatledger.domain.forms.items import ASSISTANT
from chatledger.domain.forms.plain import compact, plain_object
from chatledger.domain.forms.reading import role_of
from chatledger.domain.forms.responses import NAME as RESPONSES
from chatledger.domain.values import NewMessage

from ....ledger.drafts import new_id
from ....ledger.history import Told
from ..access import NO_ID, utc

_PREVIEW: Final = 100
_SEARCH: Final = "tool_search"
_NAMED_BY_TYPE: Final = frozenset(
    {
        "apply_patch_call",
        "code_interpreter_call",
        "computer_call",
        "file_search_call",
        "shell_call",
        "web_search_call",
    }
)
_CALLS: Final = _NAMED_BY_TYPE | {
    "custom_tool_call",
    "function_call",
    "mcp_approval_request",
    "mcp_call",
    "tool_call",
    "tool_search_call",
}
_MCP: Final = ("mcp_call", "mcp_approval_request")


def draft_of(item: Any, chat_id: str) -> NewMessage:
    """Return the message to store for an item; an id of its own makes that of the message. Raises `InvalidValueError` for no JSON object."""
    fields = plain_object(item, "an item of a session")
    own = fields.get("id")
    has_own_id = isinstance(own, str) and own not in {"", NO_ID}
    return _message_of(fields, f"{chat_id}:{own if has_own_id else new_id()}")


def copies_of(items: Iterable[Any], unique_id: str) -> list[NewMessage]:
    """Return messages for items under new ids, which begin with `unique_id`, whatever the ids of the items are."""
    return [
        _message_of(plain_object(item, "an item of a session"), f"{unique_id}-{number}")
        for number, item in enumerate(items)
    ]


def _message_of(fields: dict[str, Any], message_id: str) -> NewMessage:
    # Whatever the SDK is given it keeps: what is no item is of the assistant.
    return NewMessage(role_of(RESPONSES, fields, ASSISTANT), fields, RESPONSES, id=message_id)


def cut(told: Sequence[Told], start: int, depth_of: Callable[[str], int]) -> tuple[str | None, list[Any]]:
    """
    Return where a branch is to end so that an item and those behind it are gone.

    Args:
        told: Items of the branch, its last ones at least.
        start: The place of the first item to go.
        depth_of: The depth of a message in the chain.

    Returns:
        The message that the branch ends with, and the items before the first to go that go with it: told of the same messages.
    """
    depths = [[depth_of(standing.base.id) for standing in item.origin] for item in told]
    first = min(min(of_item) for of_item in depths[start:])
    with_it: list[int] = []
    # What goes with an item may share an earlier message with yet another: until nothing more is touched.
    while True:
        with_it = [place for place in range(start) if max(depths[place]) >= first]
        earliest = min((min(depths[place]) for place in with_it), default=first)
        if earliest >= first:
            break
        first = earliest
    base = next(
        standing.base.parent_id
        for item, of_item in zip(told, depths, strict=True)
        for standing, depth in zip(item.origin, of_item, strict=True)
        if depth == first
    )
    return base, [told[place].value for place in with_it]


def numbered(items: Iterable[Told]) -> Iterator[tuple[int, Told]]:
    """Yield the items of a branch, each with the number of its turn."""
    turn = 0
    for item in items:
        turn += is_user(item.value)
        yield turn, item


def is_user(item: Mapping[str, Any]) -> bool:
    """Whether an item is a message of the user."""
    return item.get("role") == "user"


def user_turns(items: Iterable[Told]) -> list[tuple[int, Told]]:
    """Return the messages of the user, each with the number of its turn."""
    return [(turn, item) for turn, item in numbered(items) if is_user(item.value)]


def described_turn(turn: int, item: Told, *, is_cut: bool = True) -> dict[str, Any]:
    """Return a turn as lists of turns have it: `turn`, `content`, `full_content`, `timestamp` (ISO 8601) and `can_branch`."""
    content = item.value.get("content", "")
    text = content if isinstance(content, str) else compact(content)
    return {
        "turn": turn,
        "content": text[:_PREVIEW] + "..." if is_cut and len(text) > _PREVIEW else text,
        "full_content": content,
        "timestamp": utc(item.origin[0].base.created_at).isoformat(timespec="milliseconds"),
        "can_branch": True,
    }


def has_text(item: Mapping[str, Any], sought: str) -> bool:
    """Whether a text stands in the content of an item, in small or capital letters."""
    content = item.get("content")
    texts: list[Any] = [content]
    if isinstance(content, list):
        blocks = cast("list[Any]", content)
        texts = [cast("dict[str, Any]", block).get("text") for block in blocks if isinstance(block, dict)]
    return any(isinstance(text, str) and sought.casefold() in text.casefold() for text in texts)


def kind_of_item(item: Mapping[str, Any]) -> str:
    """Return `user` or `assistant` for what they said, else the type of an item, or `other`."""
    role = item.get("role")
    return role if role in {"user", "assistant"} else str(item.get("type") or "other")


def tool_of(item: Mapping[str, Any]) -> str | None:
    """Return the tool that an item calls, or whose output it is: `name`, `namespace.name` or `server.name`; None for others."""
    kind, name = item.get("type"), item.get("name")
    server = item.get("server_label")
    if kind in _MCP and server:
        return f"{server}.{name}" if name else str(server)
    if kind in {f"{_SEARCH}_call", f"{_SEARCH}_output"}:
        return _SEARCH
    if kind in _NAMED_BY_TYPE:
        return str(kind)
    if name is None:
        return None
    space = item.get("namespace")
    return f"{space}.{name}" if space and space != name else str(name)


def tool_usage(items: Iterable[Told]) -> list[tuple[str, int, int]]:
    """Return (tool, number of calls, turn) for each tool of each turn. An output of a search counts where its call is not there."""
    calls: Counter[tuple[int, str]] = Counter()
    outputs: Counter[tuple[int, str]] = Counter()
    for turn, item in numbered(items):
        kind, tool = item.value.get("type"), tool_of(item.value)
        if tool is not None and (kind in _CALLS or kind == f"{_SEARCH}_output"):
            (calls if kind in _CALLS else outputs)[turn, tool] += 1
    for called, number in outputs.items():
        calls[called] = calls[called] or number
    return [(tool, number, turn) for (turn, tool), number in sorted(calls.items())]

"""Turns of a conversation: a message of the user and the items that follow it, up to the next; counted from 1, and 0 before the first."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

from chatledger.domain.forms.plain import compact

from ....ledger.history import Told

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


def numbered(items: Iterable[Told]) -> Iterator[tuple[int, Told]]:
    """Yield the items of a branch, each with the number of its turn."""
    turn = 0
    for one in items:
        turn += is_user(one.value)
        yield turn, one


def is_user(item: Mapping[str, Any]) -> bool:
    """Whether an item is a message of the user."""
    return item.get("role") == "user"


def user_turns(items: Iterable[Told]) -> list[tuple[int, Told]]:
    """Return the messages of the user, each with the number of its turn."""
    return [(turn, one) for turn, one in numbered(items) if is_user(one.value)]


def described_turn(turn: int, one: Told, *, is_cut: bool = True) -> dict[str, Any]:
    """Return a turn as lists of turns have it: `turn`, `content`, `full_content`, `timestamp` (ISO 8601) and `can_branch`."""
    content = one.value.get("content", "")
    text = content if isinstance(content, str) else compact(content)
    return {
        "turn": turn,
        "content": text[:_PREVIEW] + "..." if is_cut and len(text) > _PREVIEW else text,
        "full_content": content,
        "timestamp": iso_time(one.origin[0].base.created_at),
        "can_branch": True,
    }


def iso_time(at_ms: int) -> str:
    """Return a time as ISO 8601, UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


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
    for turn, one in numbered(items):
        kind, tool = one.value.get("type"), tool_of(one.value)
        if tool is not None and (kind in _CALLS or kind == f"{_SEARCH}_output"):
            (calls if kind in _CALLS else outputs)[turn, tool] += 1
    for called, number in outputs.items():
        calls[called] = calls[called] or number
    return [(tool, number, turn) for (turn, tool), number in sorted(calls.items())]

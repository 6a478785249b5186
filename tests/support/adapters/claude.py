"""
Transcripts of the Claude Agent SDK, as the checks of adapters drive them: the calls that the SDK makes for its subprocess.

A session has one writer at a time, its subprocess, so writers wait for each other here as they do there.
"""

import asyncio
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast
from uuid import NAMESPACE_URL, uuid5

from claude_agent_sdk import get_session_messages_from_store, project_key_for_directory

from chatledger import AsyncLedger, Ledger
from chatledger.adapters.claude import LedgerSessionStore, chat_id
from chatledger.testing import Turn

PROJECT: Final = project_key_for_directory()
_TIME: Final = "2026-11-20T10:00:00.000Z"
_WRITERS: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]] = weakref.WeakKeyDictionary()


class ClaudeDriver:
    """Appends entries after the last one that the SDK finds, and reads the conversation as the SDK does."""

    name = "claude"
    form = "claude-code"
    losses: Mapping[str, str] = {}
    notes_saves = False
    conflicts: tuple[type[Exception], ...] = ()

    def chat_id(self, conversation_id: str) -> str:
        return chat_id(PROJECT, session_id(conversation_id))

    async def write(
        self, ledger: Ledger | AsyncLedger, conversation_id: str, turns: Sequence[Turn], *, key: str
    ) -> None:
        store, session = LedgerSessionStore(ledger), session_id(conversation_id)
        lock = _WRITERS.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        async with lock:
            said = await get_session_messages_from_store(store, session)
            parent = said[-1].uuid if said else None
            entries: list[dict[str, Any]] = []
            for place, turn in enumerate(turns):
                entries.append(entry_of(turn, str(uuid5(NAMESPACE_URL, f"{key}:{place}")), parent, session))
                parent = entries[-1]["uuid"]
            await store.append(_key(conversation_id), cast("Any", entries))

    async def read(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Turn]:
        said = await get_session_messages_from_store(LedgerSessionStore(ledger), session_id(conversation_id))
        return [Turn(one.type, text_of(cast("dict[str, Any]", one.message))) for one in said]

    def message_with(self, value: Any) -> dict[str, Any]:
        call = {"type": "tool_use", "id": "toolu_1", "name": "about", "input": {"value": value}}
        return entry_of(Turn("assistant", ""), str(uuid5(NAMESPACE_URL, "about")), None, "", content=[call])

    async def save_values(self, ledger: Ledger | AsyncLedger, conversation_id: str, values: Sequence[Any]) -> None:
        store, key = LedgerSessionStore(ledger), _key(conversation_id)
        if await store.load(key):  # the SDK gives no entry twice that has no uuid
            values = [value for value in values if value.get("uuid")]
        await store.append(key, list(values))

    async def load_values(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Any]:
        return list(await LedgerSessionStore(ledger).load(_key(conversation_id)) or [])

    async def delete(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> None:
        await LedgerSessionStore(ledger).delete(_key(conversation_id))


def _key(conversation_id: str) -> Any:
    return {"project_key": PROJECT, "session_id": session_id(conversation_id)}


def session_id(conversation_id: str) -> str:
    """The id of a session, which the SDK wants to be a UUID."""
    return str(uuid5(NAMESPACE_URL, conversation_id))


def entry_of(
    turn: Turn, uuid: str, parent: str | None, session: str, *, content: Any = None, **given: Any
) -> dict[str, Any]:
    """The entry for a turn, as Claude writes it."""
    message: dict[str, Any] = {"role": turn.role, "content": turn.text if content is None else content}
    if turn.role == "assistant":
        blocks = [{"type": "text", "text": turn.text}] if content is None else content
        message = {
            "id": f"msg_{uuid[:8]}",
            "type": "message",
            "role": "assistant",
            "model": "claude-test",
            "content": blocks,
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 3, "output_tokens": 5},
        }
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/project",
        "sessionId": session,
        "version": "2.1.0",
        "type": turn.role,
        "message": message,
        "uuid": uuid,
        "timestamp": _TIME,
        **given,
    }


def text_of(message: dict[str, Any]) -> str:
    """The text of a message of the API."""
    content: Any = message["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)

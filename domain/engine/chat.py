"""The chat that an engine works on: title, metadata, usage."""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from ..context.usage import add_usage, usage_of
from ..rules import check_metadata
from ..values import Chat
from .base import EngineBase


class ChatUpdates(EngineBase):
    """The part of a context engine that changes the chat as a whole."""

    async def update_chat(
        self, *, title: str | UnsetType | None = UNSET, metadata: dict[str, Any] | None = None
    ) -> Chat:
        """
        Set the title, and merge metadata over what is stored; concurrent calls lose nothing.

        Args:
            title: The new title; None clears it, left out it stays.
            metadata: The keys to set; others stay.

        Returns:
            The chat afterwards.
        """
        given = check_metadata(metadata) or {}

        def merge(chat: Chat) -> dict[str, Any] | None:
            changes: dict[str, Any] = {} if title is UNSET else {"title": title}
            if given:
                changes["metadata"] = {**(chat.metadata or {}), **given}
            return changes or None

        return await self._update(merge)

    async def track_usage(self, usage: Mapping[str, Any]) -> Chat:
        """
        Add token counts to `metadata["usage"]`, field by field, nested ones too. Concurrent calls lose nothing.

        Args:
            usage: Counts, and objects of them, under whatever names the provider gives them: `input_tokens`, `prompt_tokens`,
                `total_tokens`, ... None counts as absent. `raw`, what the provider said, replaces the one before.

        Raises:
            InvalidValueError: A count is no number of at least 0.
        """

        def add(chat: Chat) -> dict[str, Any] | None:
            metadata = chat.metadata or {}
            return {"metadata": {**metadata, "usage": add_usage(usage_of(chat), usage)}}

        return await self._update(add)

    async def _update(self, updater: Any) -> Chat:
        await self._ready()
        self._chat = await self._port.update_chat(self._chat_id, updater)
        return self._chat

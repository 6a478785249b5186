"""Keys of transcripts and the chats that keep them."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self, cast

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import Chat

from ....ledger.ledger import Ledger
from ....ledger.view import LedgerView
from ..access import joined

PROJECT: Final = "claude_project"
SESSION: Final = "claude_session"
SUBPATH: Final = "claude_subpath"
"""The keys of the metadata of a chat that say of which transcript it is; the subpath of the main one is empty."""


class Key(NamedTuple):
    """The key of a transcript; `subpath` is empty for the main one of a session."""

    project: str
    session: str
    subpath: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """
        Return a key as the SDK gives it: `project_key`, `session_id` and maybe `subpath`.

        Raises:
            InvalidValueError: A part of it is no text.
        """
        parts = (given.get("project_key"), given.get("session_id"), given.get("subpath") or "")
        for part in parts:
            if not isinstance(part, str):
                msg = f"the key of a transcript consists of texts, not {part!r}"
                raise InvalidValueError(msg)
        return cls(*cast("tuple[str, str, str]", parts))

    @property
    def chat_id(self) -> str:
        """The id of the chat that is made for the transcript."""
        return joined("claude", self.project, self.session, *filter(None, (self.subpath,)))

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata by which the chat is found."""
        return {PROJECT: self.project, SESSION: self.session, SUBPATH: self.subpath}


def chat_id(project_key: str, session_id: str, subpath: str | None = None) -> str:
    """
    Return the id of the chat that is made for a transcript, such as `claude/-work-trip/<session>`.

    Where there is no such chat, one that has the id of the session alone is gone on with.
    """
    return Key(project_key, session_id, subpath or "").chat_id


def resolved_chat_id(ledger: Ledger | LedgerView, key: Key) -> str:
    """
    Return the id of the chat of a transcript: that of its key or, where there is none, a chat that has the id of the session.

    So a chat that something else wrote can be resumed, from any project; whoever writes first makes it a transcript of theirs.
    """
    if not key.subpath and ledger.get_chat(key.chat_id) is None:
        chat = ledger.get_chat(key.session)
        if chat is not None and _is_for(chat, key):
            return key.session
    return key.chat_id


def _is_for(chat: Chat, key: Key) -> bool:
    said = chat.metadata or {}
    return said.get(PROJECT, key.project) == key.project and not said.get(SUBPATH)

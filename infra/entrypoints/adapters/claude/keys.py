"""Keys of transcripts and the chats that keep them."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self, cast

from chatledger.domain.errors import InvalidValueError

from ....ledger.ledger import Ledger
from ....ledger.view import LedgerView
from ..access import joined

PROJECT: Final = "claude_project"
SESSION: Final = "claude_session"
SUBPATH: Final = "claude_subpath"
"""The keys of the metadata of a chat that say of which transcript it is; the subpath of the main one is empty."""


class TranscriptKey(NamedTuple):
    """The key of a transcript; `subpath` is empty for the main one of a session."""

    project: str
    session: str
    subpath: str = ""

    @classmethod
    def of(cls, key: Mapping[str, Any]) -> Self:
        """Return a key of the SDK: `project_key`, `session_id` and maybe `subpath`. Raises `InvalidValueError` for what is no text."""
        parts = (key.get("project_key"), key.get("session_id"), key.get("subpath") or "")
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
    return TranscriptKey(project_key, session_id, subpath or "").chat_id


def resolved_chat_id(ledger: Ledger | LedgerView, key: TranscriptKey) -> str:
    """
    Return the id of the chat of a transcript: that of its key or, where there is none, a chat that has the id of the session.

    So a chat that something else wrote can be resumed, from any project; whoever writes first makes it a transcript of theirs.
    """
    if not key.subpath and ledger.get_chat(key.chat_id) is None:
        chat = ledger.get_chat(key.session)
        metadata = {} if chat is None else chat.metadata or {}
        if chat is not None and metadata.get(PROJECT, key.project) == key.project and not metadata.get(SUBPATH):
            return key.session
    return key.chat_id

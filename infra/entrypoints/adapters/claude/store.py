"""`LedgerSessionStore`: the session store of the Claude Agent SDK on a ledger, and the chats of its transcripts."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, Self, cast

from claude_agent_sdk import fold_session_summary
from claude_agent_sdk.types import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)

from chatledger.domain.errors import InvalidValueError
from chatledger.domain.forms.plain import object_at
from chatledger.domain.values import Chat, SearchHits

from ....ledger.history import MessageHistory
from ....ledger.ledger import Ledger
from ....ledger.view import LedgerView
from ..access import AdapterLedger, Closable, Source, joined
from .appending import SUMMARY, EntryBatch, Fold
from .entries import draft_of_entry, load_entries

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


class LedgerSessionStore(Closable):
    """
    Transcripts of the Claude Agent SDK as chats: `ClaudeAgentOptions(session_store=LedgerSessionStore(ledger), ...)`.

    Entries are kept as they are. What the user and the assistant said are messages that everything else reads; the tree of
    `parentUuid` is the branches of the chat, the conversation that Claude goes on with is the active one. A chat that has the
    id of a session, whatever wrote it, is resumed as one.

    Args:
        source: A ledger, or the location of one, as `chatledger.open` takes it; `close` closes what was opened here.
        user_id: The user whose transcripts they are. None: the user of the ledger, or nobody.

    Raises:
        ConfigurationError: The source is neither a ledger nor a location.
    """

    def __init__(self, source: Source, *, user_id: str | None = None) -> None:
        self._ledger = AdapterLedger(source, user_id=user_id, adapter="LedgerSessionStore")

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """
        Keep a batch of entries: one commit, all or nothing, with the summary of the session. Those of a known `uuid` are left out.

        Raises:
            AlreadyExistsError, AccessDeniedError: The chat of the transcript belongs to another user.
            PayloadTooLargeError: An entry exceeds the size limit of an event.
            InvalidValueError: The key is none.
        """
        transcript = TranscriptKey.of(key)
        is_main = not transcript.subpath

        def append(ledger: Ledger) -> None:
            chat_id = resolved_chat_id(ledger, transcript)
            drafts = [
                draft_of_entry(entry, chat_id, is_main=is_main) for entry in cast("list[Mapping[str, Any]]", entries)
            ]
            batch = EntryBatch(drafts, transcript.metadata, _folding(transcript) if is_main else None)
            MessageHistory(ledger, chat_id).commit(batch.append)

        if entries:
            await self._ledger.run(append)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """
        Return the entries of a transcript in the order in which they were appended; None when there are none.

        Where another branch than the one that was written last is the active one of the chat, the entries of that branch.
        Messages that something else wrote come as entries that Claude resumes from.
        """
        transcript = TranscriptKey.of(key)
        entries = await self._ledger.run(lambda ledger: _loaded(ledger, transcript))
        return cast("list[SessionStoreEntry] | None", entries)

    async def load_as_of(self, key: SessionKey, moment: int | datetime) -> list[SessionStoreEntry] | None:
        """
        Return the entries of a transcript as they were at a moment: a position of the log, or an aware datetime.

        To go on from there, append them under the id of another session.
        """
        transcript = TranscriptKey.of(key)

        def load(ledger: Ledger) -> Any:
            with ledger.as_of(moment) as view:
                return _loaded(view, transcript)

        return cast("list[SessionStoreEntry] | None", await self._ledger.run(load))

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project with the times of their last changes in ms, those changed last first."""
        chats = await self._ledger.run(lambda ledger: _sessions(ledger, project_key))
        return [{"session_id": _session_of(chat), "mtime": chat.updated_at} for chat in chats]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """
        Return the summaries of the sessions of a project. One whose chat something else wrote to since has the time 0.

        The SDK makes a summary from the entries where there is none, or an old one.
        """
        summaries: list[SessionSummaryEntry] = []
        for chat in await self._ledger.run(lambda ledger: _sessions(ledger, project_key)):
            summary = object_at(chat.metadata, SUMMARY)
            if summary:
                # A summary that is older than its transcript the SDK makes anew.
                mtime = chat.updated_at if summary["messages"] == chat.message_count else 0
                summaries.append({"session_id": _session_of(chat), "mtime": mtime, "data": summary["data"]})
        return summaries

    async def delete(self, key: SessionKey) -> None:
        """Erase a transcript; with the main one of a session those of its subagents. Nothing happens where there is none."""
        transcript = TranscriptKey.of(key)

        def delete(ledger: Ledger) -> None:
            chat_id = resolved_chat_id(ledger, transcript)
            if not transcript.subpath:
                for chat in _subagents(ledger, transcript):
                    ledger.delete_chat(chat.id)
            ledger.delete_chat(chat_id)

        await self._ledger.run(delete)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of the transcripts of subagents of a session."""
        transcript = TranscriptKey.of(key)
        chats = await self._ledger.run(lambda ledger: _subagents(ledger, transcript))
        return [str(object_at(chat.metadata)[SUBPATH]) for chat in chats]

    async def search(self, query: str, *, key: SessionKey | None = None, limit: int = 20) -> SearchHits:
        """Find messages by their words, in one transcript or in all chats of the user; see `Ledger.search`."""
        transcript = None if key is None else TranscriptKey.of(key)

        def search(ledger: Ledger) -> SearchHits:
            chat_id = None if transcript is None else resolved_chat_id(ledger, transcript)
            return ledger.search(query, chat_id=chat_id, limit=limit)

        return await self._ledger.run(search)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _loaded(ledger: Ledger | LedgerView, key: TranscriptKey) -> list[dict[str, Any]] | None:
    history = MessageHistory(ledger, resolved_chat_id(ledger, key))
    return history.read(lambda read: load_entries(read, key.session, is_main=not key.subpath))


def _sessions(ledger: Ledger, project: str) -> list[Chat]:
    return ledger.list_chats(metadata={PROJECT: project, SUBPATH: ""})


def _subagents(ledger: Ledger, key: TranscriptKey) -> list[Chat]:
    chats = ledger.list_chats(metadata={SESSION: key.session, PROJECT: key.project})
    return [chat for chat in chats if object_at(chat.metadata).get(SUBPATH)]


def _session_of(chat: Chat) -> str:
    return str(object_at(chat.metadata)[SESSION])


def _folding(key: TranscriptKey) -> Fold:
    """The SDK's own fold of the summary of a session."""
    session: SessionKey = {"project_key": key.project, "session_id": key.session}

    def fold(data: Mapping[str, Any] | None, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        before: SessionSummaryEntry | None = None
        if data is not None:
            before = {"session_id": key.session, "mtime": 0, "data": dict(data)}
        return fold_session_summary(before, session, cast("list[SessionStoreEntry]", list(entries)))["data"]

    return fold

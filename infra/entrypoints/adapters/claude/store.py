"""`LedgerSessionStore`: the session store of the Claude Agent SDK on a ledger, and the chats of its transcripts."""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, cast

from claude_agent_sdk import fold_session_summary
from claude_agent_sdk.types import (
    SessionKey,
    SessionListSubkeysKey,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
)
from msgspec import UNSET

from chatledger.domain.chat.lines import UNNAMED, Placing, TranscriptLine, gather, title_in
from chatledger.domain.errors import InvalidValueError, PayloadTooLargeError
from chatledger.domain.forms.claude_code import NAME
from chatledger.domain.forms.plain import object_at
from chatledger.domain.limits import check_metadata, data_copy
from chatledger.domain.moments import Moment
from chatledger.domain.values import Chat, SearchHits

from ....exchange.agents.claude_code import PROJECT, SESSION, SUBPATH, chat_id_of, line_of, lines_in
from ....ledger.drafts import new_id
from ....ledger.history import Commit, MessageHistory
from ....ledger.ledger import Ledger
from ....ledger.view import LedgerView
from ..access import AdapterLedger, Closable, Source
from .loading import entry_in, load_entries

SUMMARY: Final = "claude_summary"
"""The key in the metadata of a chat of its summary, and of the number of messages that the chat had then."""

Fold = Callable[[Mapping[str, Any] | None, Sequence[Mapping[str, Any]]], dict[str, Any]]
"""The state of a summary, None for the first, and further entries, to the state after them."""


class EntryBatch(NamedTuple):
    """Entries to append to a transcript: their lines, the metadata of its chat, and what folds its summary."""

    lines: Sequence[TranscriptLine]
    metadata: Mapping[str, Any]
    fold: Fold | None

    def append(self, commit: Commit) -> None:
        """Append the entries that are not there yet, by their uuids, and describe the chat."""
        chat_id = commit.state.chat_id
        named = {line.id: line for line in self.lines}
        commit.state.look_up(f"{chat_id}:{line_id}" for line_id in named if line_id[:1] != UNNAMED)
        new = {line_id: line for line_id, line in named.items() if not commit.has(f"{chat_id}:{line_id}")}
        # What says nothing has no message of its own to be known by: looked for only where the batch may be one that was written.
        has_turns = any(line.name for line in new.values())
        is_told = all(line_id in new for line_id, line in named.items() if line.name)
        if commit.is_begun and not (has_turns and is_told):
            placing = Placing(commit, NAME, lines_in)
            before = {line.id for message in placing.walk(commit.head()) for line in lines_in(message)}
            new = {line_id: line for line_id, line in new.items() if line_id not in before}
        added = list(new.values())
        if not added:
            return
        messages, state = gather(added), commit.state
        title = title_in(added, has_title=state.profile is not None and state.profile.title is not None)
        metadata = self._described(commit, added, len(messages))
        is_new = commit.begin(title=title, metadata=metadata)
        Placing(commit, NAME, lines_in).append(messages)
        if not is_new:
            commit.describe(metadata=metadata, title=UNSET if title is None else title)

    def _described(self, commit: Commit, added: Sequence[TranscriptLine], number: int) -> dict[str, Any]:
        metadata, state = dict(self.metadata), commit.state
        if self.fold is not None:
            before = object_at({} if state.profile is None else state.profile.metadata, SUMMARY)
            count = 0 if state.record is None else state.record.message_count
            # A summary of fewer messages than there are was left behind by whatever else wrote.
            is_current = before.get("messages") == count
            if is_current or not count:
                folded = self.fold(before["data"] if is_current else None, [entry_in(line.value) for line in added])
                summary = {SUMMARY: {"data": folded, "messages": count + number}}
                with contextlib.suppress(InvalidValueError, PayloadTooLargeError):  # the SDK makes another one then
                    metadata |= check_metadata(summary) or {}
        return metadata


def _value_of(entry: Mapping[str, Any]) -> Any:
    """The value that keeps an entry: its text where it has what data of messages have not, such as too many levels; Claude may read it."""
    try:
        return data_copy(dict(entry), "an entry")
    except InvalidValueError:
        return json.dumps(entry)


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
        return chat_id_of(self.project, self.session, self.subpath)

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata by which the chat is found."""
        return {PROJECT: self.project, SESSION: self.session, SUBPATH: self.subpath}


def chat_id(project_key: str, session_id: str, subpath: str | None = None) -> str:
    """
    Return the id of the chat that is made for a transcript, such as `claude/-src-trip/<session>`.

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
            lines = [line_of(_value_of(entry), f"{UNNAMED}{new_id()}", is_main=is_main) for entry in entries]
            batch = EntryBatch(lines, transcript.metadata, _folding(transcript) if is_main else None)
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

    async def load_as_of(self, key: SessionKey, moment: Moment) -> list[SessionStoreEntry] | None:
        """
        Return the entries of a transcript as they were at a moment: a position of the log, or a time.

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

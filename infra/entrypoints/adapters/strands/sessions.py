# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportUntypedBaseClass=false, reportIncompatibleMethodOverride=false
# strands-agents is not among the development dependencies, with some of which it conflicts.
"""
Sessions of Strands Agents on a ledger: a chat for the agent of a session, and one for each further agent of it.

Messages of Strands as messages of a ledger, and back; and the history of an agent, the active branch of its chat, by the indexes that
Strands counts messages by.

A message that Strands wrote says its index, which mostly is its depth in the chain. Messages of others count as many as they become.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final, TypeVar

from strands.session.repository_session_manager import RepositorySessionManager
from strands.session.session_repository import SessionRepository
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType, decode_bytes_values

from chatledger.domain.errors import ChatExistsError, ChatNotFoundError
from chatledger.domain.forms.plain import object_at
from chatledger.domain.forms.reading import name_of
from chatledger.domain.forms.strands import NAME, index_of
from chatledger.domain.limits import same_json
from chatledger.domain.packing import ordered_json
from chatledger.domain.values import Chat, Message, NewMessage

from ....ledger.drafts import new_id
from ....ledger.history import Commit, History, MessageHistory, Told
from ....ledger.ledger import Ledger
from ..access import AdapterLedger, Closable, Source, joined, utc

_FIELDS: Final = frozenset(field.name for field in fields(SessionMessage))


def draft_of(stored: SessionMessage, chat_id: str) -> NewMessage:
    """Return a message as it is to be stored. Raises `InvalidValueError` for what JSON does not know."""
    # Its id is made from its index and its tracking id, so that the same call writes the same message.
    value = stored.to_dict()
    tracked = object_at(value, "message").get("tracking_id") or _digest(value.get("message"))
    return _draft(value, f"{chat_id}:{stored.message_id}:{tracked}")


def is_same(message: Message, stored: SessionMessage) -> bool:
    """Whether a message that Strands wrote is this one, whenever it was made."""
    return same_json(message.data.get("message"), stored.to_dict()["message"])


def index_in(message: Message) -> int | None:
    return index_of(message.data) if message.form == NAME else None


def session_message(told: Told) -> SessionMessage:
    """
    Return a message of Strands as it was stored; one that took the place of another with what it does not say itself.

    As `SessionMessage.from_dict`, which looks at the class anew for each key: most of the time of reading a history.
    """
    base, message = told.origin[0]
    value: dict[str, Any] = {key: field for key, field in told.value.items() if key in _FIELDS}
    if "created_at" not in value:  # it was written by somebody else
        value["created_at"] = value["updated_at"] = utc(message.created_at).isoformat()
    if "message" not in value:
        value["message"] = base.data["message"]
    return SessionMessage(**decode_bytes_values(value))


class AgentHistory:
    """A history of an agent, as it is at one moment."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._length: Final = history.branch.message_count

    @property
    def count(self) -> int:
        """The index of the next message. Costs nothing more in a long history, and what others wrote since Strands did."""
        told = self._read(self._history, 1, self._length)
        return told[-1].value["message_id"] + 1 if told else 0

    def at(self, index: int) -> Message | None:
        """Return the message that Strands wrote at an index, as it was written first; None where there is none."""
        message = self._history.at(index)
        if message is not None and index_in(message) == index:  # depths and indexes mostly are the same
            return message
        return next((message for message in self._history.chain() if index_in(message) == index), None)

    def page(self, limit: int | None, offset: int) -> list[SessionMessage]:
        """Return messages from an index on, at most `limit`."""
        if limit == 0:
            return []
        history, wanted = self._history, max(self._length - offset, 1)
        end = self._length if limit is None else offset + limit
        last = history.at(end - 1)
        if end < self._length and last is not None and index_in(last) == end - 1:
            # The last one of the page, where depths and indexes are the same.
            history, wanted = history.up_to(end - 1), min(end, limit or end)
        told = [message for message in self._read(history, wanted, offset) if message.value["message_id"] >= offset]
        return [session_message(message) for message in told[:limit]]

    def _read(self, history: History, count: int, index: int) -> list[Told]:
        """
        Return a branch from a message on that is at an index or before it.

        The first one has to be one that Strands wrote: of others the index is known only if all before them are read.
        """
        limit = count
        while limit < history.branch.message_count:
            told = history.told(NAME, limit)
            first = index_in(told[0].origin[0].message) if told else None
            if first is not None and first <= index:
                return told
            limit *= 2
        return history.told(NAME)


def _draft(value: dict[str, Any], message_id: str, parent_id: str | None = None) -> NewMessage:
    try:
        created_at = round(datetime.fromisoformat(value["created_at"]).timestamp() * 1000)
    except ValueError:
        created_at = None
    return NewMessage(name_of(value, NAME), value, form=NAME, id=message_id, parent_id=parent_id, created_at=created_at)


def _digest(value: Any) -> str:
    return blake2b(ordered_json(value), digest_size=8).hexdigest()


T = TypeVar("T")

_AGENT: Final = "strands_agent"
_OF_SESSION: Final = "strands_session_id"
_SESSION: Final = "strands_session"
_STATE: Final = "state"


def chat_id(session_id: str, agent_id: str | None = None) -> str:
    """
    Return the id of the chat that keeps a session.

    The first agent of a session is in the chat of the session's own id, the others are each in one of
    `strands/<session>/<agent>`, with slashes in them escaped.
    """
    return session_id if agent_id is None else joined("strands", session_id, agent_id)


class LedgerSessionRepository(Closable, SessionRepository):  # type: ignore[misc]  # Strands is not installed where types are checked
    """
    Sessions of Strands Agents on a ledger, for `RepositorySessionManager`. Safe for threads.

    Each method is one commit, and each reads the local index, no server. Indexes of messages count the agent's active branch.

    Args:
        source: A ledger, which its opener closes; or a location, which is opened by the first call and closed by `close`.
        user_id: The owner of the sessions, and the only one whose sessions there are; everybody's when None.
    """

    def __init__(self, source: Source, *, user_id: str | None = None) -> None:
        self._ledger = AdapterLedger(source, user_id=user_id, adapter=type(self).__name__)

    def create_session(self, session: Session, **kwargs: Any) -> Session:
        """
        Make a session, also of a chat of its id that Strands did not make.

        Raises:
            SessionException: There is one of that id.
        """
        del kwargs
        ledger, fields = self._ledger.blocking, session.to_dict()
        try:
            ledger.create_chat(session.session_id, self._ledger.user_id or "", metadata={_SESSION: fields})
        except ChatExistsError:
            taken: list[bool] = []

            def mark(chat: Chat) -> dict[str, Any] | None:
                taken[:] = [_SESSION in object_at(chat.metadata)]
                return None if taken[0] else {"metadata": {**object_at(chat.metadata), _SESSION: fields}}

            try:
                ledger.update_chat(session.session_id, updater=mark)
            except ChatNotFoundError:  # it is another user's
                taken[:] = [True]
            if taken[0]:
                msg = f"Session {session.session_id} already exists"
                raise SessionException(msg) from None
        return session

    def read_session(self, session_id: str, **kwargs: Any) -> Session | None:
        """Return a session, or None. A chat of that id that somebody else wrote is one too."""
        del kwargs
        chat = self._ledger.blocking.get_chat(session_id)
        if chat is None:
            return None
        fields = object_at(chat.metadata, _SESSION)
        if fields:
            return Session.from_dict(dict(fields))
        return Session(
            session_id, SessionType.AGENT, utc(chat.created_at).isoformat(), utc(chat.updated_at).isoformat()
        )

    def delete_session(self, session_id: str, **kwargs: Any) -> None:
        """
        Delete a session with all its agents, and erase their content.

        Raises:
            SessionException: There is none of that id.
        """
        del kwargs
        ledger = self._ledger.blocking
        chat = ledger.get_chat(session_id)
        if chat is None:
            raise SessionException(_no_session(session_id))
        for part in ledger.list_chats(user_id=chat.user_id, metadata={_OF_SESSION: session_id}):
            ledger.delete_chat(part.id)
        ledger.delete_chat(session_id)

    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """
        Add an agent to a session, or put it in the place of the one of its id; its messages stay.

        The first agent has the chat of the session, unless messages of somebody else are there: those are for `adopt_agent`.

        Raises:
            SessionException: There is no such session.
        """
        del kwargs
        if not self._claim(session_id, session_agent, adopts=False):
            owner = self._session_chat(session_id).user_id
            own, ledger = chat_id(session_id, session_agent.agent_id), self._ledger.blocking
            ledger.upsert_chat(own, owner, metadata={_OF_SESSION: session_id})
            ledger.update_chat(own, metadata={_AGENT: session_agent.to_dict()})

    def adopt_agent(self, session_id: str, session_agent: SessionAgent) -> bool:
        """
        Make an agent the one of a session whose chat has messages but no agent, since something else than Strands wrote them.

        Returns:
            Whether its history is that of the chat now.
        """
        chat = self._ledger.blocking.get_chat(session_id)
        if chat is None or not chat.message_count or _AGENT in object_at(chat.metadata):
            return False
        return self._claim(session_id, session_agent, adopts=True)

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent | None:
        del kwargs
        chat = self._agent_chat(session_id, agent_id)
        return None if chat is None else SessionAgent.from_dict(dict(object_at(chat.metadata, _AGENT)))

    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """
        Store an agent as it is now; it keeps the time of its creation.

        Raises:
            SessionException: There is no such agent.
        """
        del kwargs
        chat = self._need_agent(session_id, session_agent.agent_id)
        session_agent.created_at = object_at(chat.metadata, _AGENT)["created_at"]
        self._ledger.blocking.update_chat(chat.id, metadata={_AGENT: session_agent.to_dict()})

    def create_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        """
        Add a message at the end of an agent's history. The same one at the same index is not stored again.

        Raises:
            SessionException: There is no such agent, or somebody else has added another message at that index.
        """
        del kwargs
        self.create_messages(session_id, agent_id, [session_message])

    def create_messages(self, session_id: str, agent_id: str, session_messages: Sequence[SessionMessage]) -> None:
        """Add several messages in one commit, all or none. Otherwise as `create_message`."""
        chat = self._need_agent(session_id, agent_id)

        def add(commit: Commit) -> None:
            history = _history(commit)
            count = history.count
            new: list[NewMessage] = []
            for message in session_messages:
                if message.message_id >= count:
                    new.append(draft_of(message, chat.id))
                    count = message.message_id + 1
                    continue
                stored = history.at(message.message_id)
                if stored is None or not is_same(stored, message):
                    msg = (
                        f"Message {message.message_id} of agent {agent_id} in session {session_id} exists already with other "
                        "content: somebody else added it. Restore the agent from the session, and try again"
                    )
                    raise SessionException(msg)
            commit.append(commit.with_free_ids(new))

        self._commit(session_id, agent_id, chat.id, add)

    def read_message(self, session_id: str, agent_id: str, message_id: int, **kwargs: Any) -> SessionMessage | None:
        """Return the message at an index of an agent's history, or None."""
        del kwargs
        chat = self._agent_chat(session_id, agent_id)
        messages = [] if chat is None else self._read(chat.id, 1, message_id)
        return messages[0] if messages and messages[0].message_id == message_id else None

    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any) -> None:
        """
        Put a message in the place of the one at its index, as guardrails do that redact something. It keeps the time of that.

        The stored one stays, neither shown to models nor found by searches, until its chat is deleted.

        Raises:
            SessionException: There is no message at that index, or one that something else than Strands wrote.
        """
        del kwargs
        chat = self._need_agent(session_id, agent_id)

        def replace(commit: Commit) -> str:
            original = _history(commit).at(session_message.message_id)
            if original is None:
                msg = f"Message {session_message.message_id} does not exist"
                raise SessionException(msg)
            created_at = str(original.data["created_at"])
            value = dataclasses.replace(session_message, created_at=created_at).to_dict()
            # Of a redacted message it has the new content only; the old one stays with the original.
            if value.get("redact_message") is not None and same_json(value["message"], original.data.get("message")):
                del value["message"]
            told = _digest({key: value.get(key) for key in ("message", "redact_message")})
            draft = _draft(value, f"{original.id}:{told}", original.parent_id)
            if not commit.has(str(draft.id)):
                commit.insert([draft])
            commit.annotate([original.id], replaced_by=draft.id)
            return created_at

        session_message.created_at = self._commit(session_id, agent_id, chat.id, replace) or session_message.created_at

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **kwargs: Any
    ) -> list[SessionMessage]:
        """
        Return messages of an agent's active branch, oldest first, from the index `offset` on.

        Costs O(result) where Strands wrote the messages.

        Raises:
            SessionException: There is no such agent.
        """
        del kwargs
        return self._read(self._need_agent(session_id, agent_id).id, limit, offset)

    def create_multi_agent(self, session_id: str, multi_agent: Any, **kwargs: Any) -> None:
        """Store the state of a multi-agent system: each state is a message of a chat of its own."""
        del kwargs
        owner = self._session_chat(session_id).user_id
        own = _multi_agent_chat(session_id, multi_agent.id)
        self._ledger.blocking.upsert_chat(own, owner, metadata={_OF_SESSION: session_id})
        self._append_state(own, multi_agent.serialize_state())

    def read_multi_agent(self, session_id: str, multi_agent_id: str, **kwargs: Any) -> dict[str, Any] | None:
        """Return the last state of a multi-agent system, or None."""
        del kwargs
        own, ledger = _multi_agent_chat(session_id, multi_agent_id), self._ledger.blocking
        if ledger.get_chat(own) is None:
            return None
        last = ledger.get_messages(own, limit=1)
        return dict(object_at(last[0].data, _STATE)) if last else None

    def update_multi_agent(self, session_id: str, multi_agent: Any, **kwargs: Any) -> None:
        """
        Store the state of a multi-agent system as it is now; nothing where it is as it was.

        Raises:
            SessionException: It was not created.
        """
        del kwargs
        state = multi_agent.serialize_state()
        stored = self.read_multi_agent(session_id, multi_agent.id)
        if stored is None:
            msg = f"MultiAgent state {multi_agent.id} in session {session_id} does not exist"
            raise SessionException(msg)
        if not same_json(stored, state):
            self._append_state(_multi_agent_chat(session_id, multi_agent.id), state)

    def _append_state(self, own: str, state: dict[str, Any]) -> None:
        message_id = new_id()
        data = {"id": message_id, "role": _STATE, "parts": [], _STATE: state}
        self._ledger.blocking.append(own, [NewMessage(_STATE, data, id=message_id)])

    def _commit(self, session_id: str, agent_id: str, own: str, change: Callable[[Commit], T]) -> T | None:
        try:
            return MessageHistory(self._ledger.blocking, own).commit(change)
        except ChatNotFoundError:
            raise SessionException(_no_agent(session_id, agent_id)) from None

    def _read(self, own: str, limit: int | None, offset: int) -> list[SessionMessage]:
        history = MessageHistory(self._ledger.blocking, own)
        return history.read(lambda branch: AgentHistory(branch).page(limit, offset)) or []

    def _claim(self, session_id: str, agent: SessionAgent, *, adopts: bool) -> bool:
        """Make an agent the one of the session's chat, if that is free or is its own already."""

        def claim(chat: Chat) -> dict[str, Any] | None:
            metadata = object_at(chat.metadata)
            holder = object_at(metadata, _AGENT)
            is_free = not holder and (adopts or not chat.message_count)
            is_its = is_free or holder.get("agent_id") == agent.agent_id
            return {"metadata": {**metadata, _AGENT: agent.to_dict()}} if is_its else None

        try:
            chat = self._ledger.blocking.update_chat(session_id, updater=claim)
        except ChatNotFoundError:
            raise SessionException(_no_session(session_id)) from None
        return bool(object_at(chat.metadata, _AGENT).get("agent_id") == agent.agent_id)

    def _session_chat(self, session_id: str) -> Chat:
        chat = self._ledger.blocking.get_chat(session_id)
        if chat is None:
            raise SessionException(_no_session(session_id))
        return chat

    def _agent_chat(self, session_id: str, agent_id: str) -> Chat | None:
        ledger: Ledger = self._ledger.blocking
        for sought in (session_id, chat_id(session_id, agent_id)):
            chat = ledger.get_chat(sought)
            if chat is not None and object_at(chat.metadata, _AGENT).get("agent_id") == agent_id:
                return chat
        return None

    def _need_agent(self, session_id: str, agent_id: str) -> Chat:
        chat = self._agent_chat(session_id, agent_id)
        if chat is None:
            raise SessionException(_no_agent(session_id, agent_id))
        return chat


class LedgerSessionManager(RepositorySessionManager, LedgerSessionRepository):  # type: ignore[misc]  # as above
    """
    A session of Strands Agents on a ledger: `Agent(session_manager=LedgerSessionManager("trip", ledger))`.

    A session that is a chat which something else than Strands wrote is gone on with by the first agent that enters it.

    Args:
        session_id: The id of the session, and of its chat. It is made if there is none.
        source: A ledger, which its opener closes; or a location, which is opened at once and closed by `close`.
        user_id: The owner of the session; see `LedgerSessionRepository`.
    """

    def __init__(self, session_id: str, source: Source, *, user_id: str | None = None) -> None:
        LedgerSessionRepository.__init__(self, source, user_id=user_id)
        RepositorySessionManager.__init__(self, session_id=session_id, session_repository=self)

    def initialize(self, agent: Any, **kwargs: Any) -> None:
        """Restore an agent from the session, or add it to the session."""
        if agent.agent_id not in self._latest_agent_message:
            self.adopt_agent(self.session_id, SessionAgent.from_agent(agent))
        super().initialize(agent, **kwargs)


def _history(commit: Commit) -> AgentHistory:
    history = commit.history()
    if history is None:
        raise ChatNotFoundError(commit.state.chat_id)
    return AgentHistory(history)


def _multi_agent_chat(session_id: str, multi_agent_id: str) -> str:
    return joined("strands-multi-agent", session_id, multi_agent_id)


def _no_session(session_id: str) -> str:
    return f"Session {session_id} does not exist"


def _no_agent(session_id: str, agent_id: str) -> str:
    return f"Agent {agent_id} in session {session_id} does not exist"

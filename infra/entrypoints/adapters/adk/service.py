# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false, reportPrivateUsage=false, reportUnknownLambdaType=false
# google-adk is not among the development dependencies, with some of which it conflicts.
"""Sessions of Google's Agent Development Kit (ADK) on a ledger: a chat each, whose messages are the events."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple, Self, get_args
from urllib.parse import parse_qsl
from weakref import WeakValueDictionary

import msgspec
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.sessions import BaseSessionService, Session, State
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse

from chatledger.domain.errors import ChatExistsError, ChatNotFoundError, ConfigurationError, HeadConflictError
from chatledger.domain.forms.adk import NAME
from chatledger.domain.forms.plain import object_at
from chatledger.domain.limits import check_choice
from chatledger.domain.values import Branch, Chat, NewMessage

from ....ledger.aio.awaiting import in_thread
from ....ledger.drafts import new_id
from ....ledger.history import ChatState, Commit, History, MessageHistory
from ....ledger.ledger import Ledger
from ....ledger.open import DEFAULT_LOCATION
from ..access import AdapterLedger, Source, joined
from .events import (
    RECORD,
    SharedState,
    StateTrail,
    StoredEvent,
    changes_of,
    events_of,
    state_as_json,
    stored_event,
    time_of,
    timestamp_of,
)

APP: Final = "adk_app"
SESSION: Final = "adk_session"
"""Keys in the metadata of a chat that ADK has written to: the app, and the id of the session."""

OnStale = Literal["raise", "rebase", "branch"]
"""The action on an event whose writer has not seen the last one: refuse it, add it at the end, or to a branch of its own."""


class Outcome(NamedTuple):
    """The events that a session has now beside those that its holder had, and its revision."""

    events: list[Event]
    marker: str


class _SeenBranch(NamedTuple):
    """The branch that a session was read from, None where that is gone, and the last message that its holder has seen."""

    branch: Branch | None
    head: str | None


class EventsToAppend:
    """Events, whole and without temporary state, to append to a session as its holder has it, which is not changed."""

    outcome: Outcome | None = None
    """None until something was stored."""

    def __init__(self, session: Session, events: Sequence[Event], *, on_stale: OnStale) -> None:
        self._session, self._events, self._on_stale = session, events, on_stale
        self._stored: list[StoredEvent] = []
        self._read: tuple[str, str | None] | None = None
        """The branch and the message of the session's revision; None for a revision that another service made."""
        marker: str | None = session._storage_update_marker  # noqa: SLF001 - the field that ADK has for it
        if marker is not None:
            with suppress(msgspec.MsgspecError):
                self._read = msgspec.json.decode(marker, type=tuple[str, str | None])

    def carry_out(self, ledger: Ledger, chat_id: str) -> None:
        """
        Store what is new, then set the state of the user and of the app.

        Raises `HeadConflictError` when the holder of the session has not seen its last event, `ChatNotFoundError` when the chat is
        another user's, and `AccessDeniedError` when state of the app is to be set in a ledger that is limited to one user.
        """
        self._stored = [stored_event(event, chat_id) for event in self._events]
        shared = SharedState(ledger)
        for event in self._stored:
            shared.check(event.changes.app, self._session.app_name)
        new, marker = MessageHistory(ledger, chat_id).commit(self._append) or ([], None)
        if marker is not None:
            self.outcome = Outcome([event.event for event in new], marker)
        of_app = {key: value for event in new for key, value in event.changes.app.items()}
        of_user = {key: value for event in new for key, value in event.changes.user.items()}
        # Behind the events: what they set is in them, and an event that is refused sets nothing.
        shared.merge(self._session.app_name, self._session.user_id, of_app=of_app, of_user=of_user)

    def _append(self, commit: Commit) -> tuple[list[StoredEvent], str | None]:
        """Append what is new; returns what this call has stored, now or before, and the revision of the session."""
        profile, history = commit.state.profile, commit.history()
        if profile is None or history is None or profile.user_id != self._session.user_id:
            raise ChatNotFoundError(commit.state.chat_id)
        active = history.branch
        seen = self._seen(commit.state, active)
        new: list[StoredEvent] = []
        for event in self._stored:
            message = commit.state.message(str(event.draft.id))
            if message is None:
                new.append(event)
            elif not event.is_stored_as(message) and not commit.state.has_message(event.other_id):
                new.append(event._replace(draft=msgspec.structs.replace(event.draft, id=event.other_id)))
        if not new:
            return self._repeated(commit.state, active, seen)
        target, is_apart = self._target(commit.state, active, seen)
        metadata = object_at(profile.metadata)
        mark = None if APP in metadata else {APP: self._session.app_name, SESSION: self._session.id}
        # Where ADK never wrote there is no record to look for.
        trail = StateTrail(commit.message if mark is None else lambda _: None, object_at(metadata, RECORD))
        drafts: list[NewMessage] = []
        head = seen.head if is_apart else target.head_message_id
        for event in new:
            message_id = str(event.draft.id)
            record = trail.extend(message_id, head, event.changes.session)
            drafts.append(msgspec.structs.replace(event.draft, metadata={RECORD: record}))
            head = message_id
        name = commit.create_branch(seen.head, after=target.name) if is_apart else target.name
        commit.append(drafts, branch=name)
        if mark is not None:
            commit.describe(metadata=mark)
        return new, marker_of(commit.branch_id(name), commit.head(name))

    def _target(self, state: ChatState, active: Branch, seen: _SeenBranch) -> tuple[Branch, bool]:
        """The branch to append to, and whether a new one is to be made after the last message that was seen."""
        is_current = seen.branch is not None and seen.branch.id == active.id and seen.head == active.head_message_id
        if is_current or self._on_stale == "rebase":
            return active, False
        own = seen.branch or active
        is_stored = seen.head is None or state.has_message(seen.head)
        if self._on_stale == "raise" or not is_stored:
            raise HeadConflictError(state.chat_id, active.name, expected=seen.head, actual=active.head_message_id)
        return own, seen.head != own.head_message_id

    def _seen(self, state: ChatState, active: Branch) -> _SeenBranch:
        if self._read is not None:
            branch_id, head = self._read
            branches = [active] if active.id == branch_id else state.branches_seen()
            return _SeenBranch(next((branch for branch in branches if branch.id == branch_id), None), head)
        # A session that was not read from a ledger, or came by way of JSON: as ADK's own services do, by time and last event.
        last = None if active.head_message_id is None else state.message(active.head_message_id)
        if last is None or timestamp_of(last) <= self._session.last_update_time:
            return _SeenBranch(active, active.head_message_id)
        if not self._session.events:
            return _SeenBranch(active, None)
        event_id = self._session.events[-1].id
        named = (f"{state.chat_id}:{event_id}", event_id, event_id.rpartition("#")[0])
        return _SeenBranch(active, next((name for name in named if name and state.has_message(name)), event_id))

    def _repeated(self, state: ChatState, active: Branch, seen: _SeenBranch) -> tuple[list[StoredEvent], str | None]:
        """The outcome where all is stored already: by this very call, if it is what follows the last message that was seen."""
        ids: list[str] = []
        for event in self._stored:
            message = state.message(str(event.draft.id))
            is_own = message is not None and event.is_stored_as(message)
            ids.append(str(event.draft.id) if is_own else event.other_id)
        first = state.message(ids[0])
        # The event was stored, and its writer did not hear of it: the same call again is the same write.
        if active.head_message_id != ids[-1] or first is None or first.parent_id != seen.head:
            return [], None
        return self._stored, marker_of(active.id, ids[-1])


def marker_of(branch_id: str, head_message_id: str | None) -> str:
    """Return the revision of a session: the branch that it was read from, and the last message there."""
    return msgspec.json.encode([branch_id, head_message_id]).decode()


_KIND: Final = "adk"
_SCHEME: Final = "chatledger://"
_IN_URI: Final = frozenset({"agent_name", "on_stale", "user_id"})
_PAGE: Final = 64


def chat_id(app_name: str, user_id: str, session_id: str) -> str:
    """Return the id of the chat that keeps a session which ADK made: `adk/<app>/<user>/<session>`, slashes in them escaped."""
    return joined(_KIND, app_name, user_id, session_id.strip())


class LedgerSessionService(BaseSessionService):  # type: ignore[misc]  # ADK is not installed where types are checked
    """
    Sessions of Google's ADK on a ledger. Safe for tasks and threads.

    A session is a chat of its user; each event is a message, with the state that it sets, in one commit. Where `chat_id` has no
    chat, a chat of exactly the session's id that the user owns is read and gone on with, whoever wrote it.

    Args:
        source: A ledger, which its opener closes; or a location, which is opened by the first call and closed by `close`.
        user_id: The only user whose sessions there are; everybody's when None.
        uri: Instead of a source, as `services.yaml` gives it: `chatledger://` and a location, then options if any, such as
            `chatledger:///var/lib/agents?on_stale=rebase`.
        on_stale: The answer to an event for a session that somebody else has written to since it was read: `raise` ADK's
            `StaleSessionError`; `rebase`, which adds it at the end; or `branch`, which adds it to a new branch after the
            last event that its writer has seen, and makes that the active one.
        agent_name: The author of what assistants said who are not known by name, since ADK did not write it; the name of the app
            when None. ADK gives a model what other agents said as a report, so give the name of your agent.
        options: `agents_dir` of `adk web`, which is not needed.

    Raises:
        ConfigurationError: Neither or both of source and uri are given, or something unknown.
    """

    def __init__(
        self,
        source: Source | None = None,
        *,
        user_id: str | None = None,
        uri: str | None = None,
        on_stale: OnStale = "raise",
        agent_name: str | None = None,
        **options: Any,
    ) -> None:
        unknown = options.keys() - {"agents_dir"}
        if unknown or (source is None) == (uri is None):
            what = f"not {', '.join(sorted(unknown))}" if unknown else "and one of them only"
            msg = f"LedgerSessionService takes a ledger or a location, or uri='chatledger://...', {what}"
            raise ConfigurationError(msg)
        settings: dict[str, Any] = {"agent_name": agent_name, "on_stale": on_stale, "user_id": user_id}
        if source is None:
            source, in_uri = _of_uri(uri or "")
            settings |= in_uri
        check_choice(settings["on_stale"], get_args(OnStale), "on_stale")
        self._on_stale: OnStale = settings["on_stale"]
        self._agent_name: str | None = settings["agent_name"]
        self._ledger = AdapterLedger(source, user_id=settings["user_id"], adapter="LedgerSessionService")
        # Of each session that is written to at the moment: its events are appended one after the other.
        self._locks: WeakValueDictionary[tuple[object, ...], asyncio.Lock] = WeakValueDictionary()

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """
        Make a session. Blanks around its id are cut off; it gets a new one where there is none.

        Raises:
            AlreadyExistsError: There is one of that id.
            AccessDeniedError: State of the whole app is given, or another user, and the ledger is limited to one user.
        """
        name = (session_id or "").strip() or new_id()
        changes = changes_of(state_as_json(state or {}))

        def create(ledger: Ledger) -> Session:
            shared = SharedState(ledger)
            shared.check(changes.app, app_name)
            if find_chat(ledger, app_name, user_id, name) is not None:
                raise AlreadyExistsError(_exists(name))
            metadata = {APP: app_name, SESSION: name, RECORD: changes.session}
            try:
                ledger.create_chat(chat_id(app_name, user_id, name), user_id, metadata=metadata)
            except ChatExistsError:
                raise AlreadyExistsError(_exists(name)) from None
            shared.merge(app_name, user_id, of_app=changes.app, of_user=changes.user)
            session = self._read(ledger, app_name, user_id, name, _NO_EVENTS)
            if session is None:
                raise SessionNotFoundError(_missing(name))
            return session

        return await self._ledger.run(create)

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """
        Return a session with the events of its active branch, or None.

        Costs O(result): `num_recent_events=k` reads the last k events, however many there are.
        """
        name = session_id.strip()
        return await self._ledger.run(lambda ledger: self._read(ledger, app_name, user_id, name, config))

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions that ADK has written to, without their events, the last changed at the end."""

        def read(ledger: Ledger) -> list[Session]:
            chats = ledger.list_chats(user_id=user_id, metadata={APP: app_name})
            named = [(chat.user_id, _session_id(chat)) for chat in chats]
            sessions = [self._read(ledger, app_name, owner, name, _NO_EVENTS) for owner, name in named]
            return [session for session in sessions if session is not None]

        sessions = await self._ledger.run(read)
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with all its branches, and erase its content; nothing happens where there is none."""

        def delete(ledger: Ledger) -> None:
            chat = find_chat(ledger, app_name, user_id, session_id.strip())
            if chat is not None:
                ledger.delete_chat(chat.id, user_id=user_id)

        await self._ledger.run(delete)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user in an app, without the prefix `user:`; empty where there is none."""
        return await self._ledger.run(lambda ledger: SharedState(ledger).of_user(app_name, user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        """
        Store an event, with the state of the session that it sets, in one commit, and add it to `session`.

        A partial one is returned and not stored. An equal event that is stored already is not stored again. Another one under
        the id of a stored one is kept too. State of the user and of the app is set right after it, in commits of their own.

        Raises:
            SessionNotFoundError: The session was deleted.
            StaleSessionError: Somebody else has written to it since `session` was read, and `on_stale` is `raise`.
        """
        await self.append_events(session, [event])
        return event

    async def append_events(self, session: Session, events: Sequence[Event]) -> list[Event]:
        """Store several events in one commit, all or none. Otherwise as `append_event`."""
        whole = [event for event in events if not event.partial]
        for event in whole:
            self._apply_temp_state(session, event)
            self._trim_temp_delta_state(event)
        if whole:
            key = (id(asyncio.get_running_loop()), session.app_name, session.user_id, session.id)
            lock = self._locks.setdefault(key, asyncio.Lock())
            async with lock:
                await self._append(session, whole)
        return list(events)

    async def _append(self, session: Session, events: list[Event]) -> None:
        appending = EventsToAppend(session, events, on_stale=self._on_stale)

        def append(ledger: Ledger) -> None:
            chat = find_chat(ledger, session.app_name, session.user_id, session.id)
            if chat is None:  # the index may be behind
                ledger.sync()
                chat = find_chat(ledger, session.app_name, session.user_id, session.id)
            if chat is None:
                raise ChatNotFoundError(chat_id(session.app_name, session.user_id, session.id))
            appending.carry_out(ledger, chat.id)

        try:
            await self._ledger.run(append)
        except ChatNotFoundError:
            raise SessionNotFoundError(_missing(session.id)) from None
        except HeadConflictError as error:
            msg = (
                f"Session {session.id} was written to by somebody else since it was read: {error}. "
                "Get it again before appending, or choose on_stale='rebase' or 'branch'."
            )
            raise StaleSessionError(msg) from error
        finally:  # also when the task was cancelled after the commit
            outcome = appending.outcome
            if outcome is not None:
                for event in outcome.events:
                    self._commit_event_to_session(session, event)
                    session.last_update_time = event.timestamp
                session._storage_update_marker = outcome.marker  # noqa: SLF001 - the field that ADK has for it

    async def flush(self) -> None:
        """Do nothing: every event is durable when its call returns."""

    async def close(self) -> None:
        await in_thread(self._ledger.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # `state_of` and events are read of one branch at one moment; shared state after it, from chats of its own.
    def _read(
        self, ledger: Ledger, app_name: str, user_id: str, name: str, config: GetSessionConfig | None
    ) -> Session | None:
        chat = find_chat(ledger, app_name, user_id, name)
        if chat is None:
            return None

        def read(history: History) -> Session:
            head_id = history.branch.head_message_id
            head = None if head_id is None else history.state.message(head_id)
            session = Session(
                id=name,
                app_name=app_name,
                user_id=user_id,
                state=state_of(history),
                events=_recent(history, config, self._agent_name or app_name),
                last_update_time=chat.created_at / 1000 if head is None else timestamp_of(head),
            )
            session._storage_update_marker = marker_of(history.branch.id, head_id)  # noqa: SLF001 - the field that ADK has for it
            return session

        session = MessageHistory(ledger, chat.id).read(read)
        if session is None:
            return None
        shared = SharedState(ledger)
        session.state |= _prefixed(State.APP_PREFIX, shared.of_app(app_name))
        session.state |= _prefixed(State.USER_PREFIX, shared.of_user(app_name, user_id))
        return session


_NO_EVENTS: Final = GetSessionConfig(num_recent_events=0)


def find_chat(ledger: Ledger, app_name: str, user_id: str, session_id: str) -> Chat | None:
    """Return the chat of a session: the one of `chat_id`, else one of exactly the session's id; of this user, or None."""
    for sought in (chat_id(app_name, user_id, session_id), session_id):
        chat = ledger.get_chat(sought)
        if chat is not None and chat.user_id == user_id:
            return chat
    return None


def state_of(history: History) -> dict[str, Any]:
    """Return the state of a session at the end of a branch; not looked for where ADK never wrote."""
    profile = history.state.profile
    metadata = object_at(None if profile is None else profile.metadata)
    trail = StateTrail(history.state.message, object_at(metadata, RECORD))
    return trail.state_at(history.branch.head_message_id if APP in metadata else None)


def _recent(history: History, config: GetSessionConfig | None, agent_name: str) -> list[Event]:
    """The events of a branch, oldest first: all of them, or no more than asked for. Reads at most twice what it returns."""
    wanted = None if config is None else config.num_recent_events
    after = None if config is None else config.after_timestamp
    if wanted == 0:
        return []
    # Where only a time is given, pages grow until one begins before it.
    limit = _PAGE if wanted is None and after is not None else wanted
    told = history.told(NAME, limit)
    if after is not None:
        while wanted is None and limit is not None and len(told) >= limit and time_of(told[0]) >= after:
            limit *= 2
            told = history.told(NAME, limit)
        told = told[next((place for place in range(len(told), 0, -1) if time_of(told[place - 1]) < after), 0) :]
    return events_of(told, agent_name=agent_name)


def _prefixed(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    return {prefix + key: value for key, value in state.items()}


def _session_id(chat: Chat) -> str:
    """The id of the session that a chat keeps: its own id, unless ADK made it."""
    metadata = object_at(chat.metadata)
    app_name, name = metadata.get(APP), metadata.get(SESSION)
    is_made = isinstance(name, str) and chat_id(str(app_name), chat.user_id, name) == chat.id
    return str(name) if is_made else chat.id


def _of_uri(uri: str) -> tuple[str, dict[str, str]]:
    """The location and the options that an address names."""
    if not uri.startswith(_SCHEME):
        msg = (
            f"the address of a session service on a ledger begins with {_SCHEME}, such as chatledger:///var/lib/agents"
        )
        raise ConfigurationError(msg)
    rest = uri.removeprefix(_SCHEME)
    location, mark, query = rest.rpartition("?")
    options = dict(parse_qsl(query)) if mark else {}
    if options and options.keys() <= _IN_URI:
        return location or DEFAULT_LOCATION, options
    return rest or DEFAULT_LOCATION, {}


def _exists(name: str) -> str:
    return f"Session with id {name} already exists."


def _missing(name: str) -> str:
    return f"Session {name} not found."

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false, reportPrivateUsage=false
# google-adk is not among the development dependencies, with some of which it conflicts.
"""Appending events to an ADK session: what is new of them, whether their writer is up to date, and where they go."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import msgspec
from google.adk.events import Event
from google.adk.sessions import Session

from chatledger.domain.errors import ChatNotFoundError, HeadConflictError
from chatledger.domain.forms.plain import object_at
from chatledger.domain.values import Branch, Message, NewMessage

from ....ledger.history import ChatState, Commit, MessageHistory
from ....ledger.ledger import Ledger
from .events import StoredEvent, message_id_of, stored_event, timestamp_of
from .state import RECORD, SharedState, StateTrail

APP: Final = "adk_app"
SESSION: Final = "adk_session"
"""Keys in the metadata of a chat that ADK has written to: the app, and the id of the session."""

OnStale = Literal["raise", "rebase", "branch"]
"""The action on an event whose writer has not seen the last one: refuse it, add it at the end, or to a branch of its own."""


class Outcome(NamedTuple):
    """The events that a session has now beside those that its holder had, and its revision."""

    events: list[Event]
    marker: str


class _Seen(NamedTuple):
    """The branch that a session was read from, None where that is gone, and the last message that its holder has seen."""

    branch: Branch | None
    head: str | None


class Appending:
    """
    Events to append to a session.

    Args:
        session: The session as its holder has it; it is not changed.
        events: Whole events, without temporary state.
        on_stale: See `OnStale`.
    """

    outcome: Outcome | None = None
    """None until something was stored."""

    def __init__(self, session: Session, events: Sequence[Event], *, on_stale: OnStale) -> None:
        self._session, self._events, self._on_stale = session, events, on_stale
        self._marker: str | None = session._storage_update_marker  # noqa: SLF001 - the field that ADK has for it
        self._stored: list[StoredEvent] = []

    def carry_out(self, ledger: Ledger, chat_id: str) -> None:
        """
        Store what is new, then set the state of the user and of the app.

        Raises:
            ChatNotFoundError: The chat is not there, or another user's.
            HeadConflictError: The holder of the session has not seen its last event.
            AccessDeniedError: State of the app is to be set in a ledger that is limited to one user.
        """
        self._stored = [stored_event(event, chat_id) for event in self._events]
        shared = SharedState(ledger)
        for one in self._stored:
            shared.check(one.changes.app, self._session.app_name)
        new, marker = MessageHistory(ledger, chat_id).commit(self._append) or ([], None)
        if marker is not None:
            self.outcome = Outcome([one.event for one in new], marker)
        of_app = {key: value for one in new for key, value in one.changes.app.items()}
        of_user = {key: value for one in new for key, value in one.changes.user.items()}
        shared.merge(self._session.app_name, self._session.user_id, of_app=of_app, of_user=of_user)

    def _append(self, commit: Commit) -> tuple[list[StoredEvent], str | None]:
        """Append what is new; returns what this call has stored, now or before, and the revision of the session."""
        profile, history = commit.state.profile, commit.history()
        if profile is None or history is None or profile.user_id != self._session.user_id:
            raise ChatNotFoundError(commit.state.chat_id)
        active = history.branch
        seen = self._seen(commit.state, active)
        new = [fresh for one in self._stored if (fresh := _fresh(commit.state, one)) is not None]
        if not new:
            return self._repeated(commit.state, active, seen)
        target, is_apart = self._target(commit.state, active, seen)
        metadata = object_at(profile.metadata)
        mark = None if APP in metadata else {APP: self._session.app_name, SESSION: self._session.id}
        trail = StateTrail(commit.message if mark is None else _nothing, object_at(metadata, RECORD))
        drafts = _with_records(new, trail, seen.head if is_apart else target.head_message_id)
        name = commit.create_branch(seen.head, after=target.name) if is_apart else target.name
        commit.append(drafts, branch=name)
        if mark is not None:
            commit.describe(metadata=mark)
        return new, marker_of(commit.branch_id(name), commit.head(name))

    def _target(self, state: ChatState, active: Branch, seen: _Seen) -> tuple[Branch, bool]:
        """The branch to append to, and whether a new one is to be made after the last message that was seen."""
        is_current = seen.branch is not None and seen.branch.id == active.id and seen.head == active.head_message_id
        if is_current or self._on_stale == "rebase":
            return active, False
        own = seen.branch or active
        is_known = seen.head is None or state.has_message(seen.head)
        if self._on_stale == "raise" or not is_known:
            raise HeadConflictError(state.chat_id, active.name, expected=seen.head, actual=active.head_message_id)
        return own, seen.head != own.head_message_id

    def _seen(self, state: ChatState, active: Branch) -> _Seen:
        read = _read_marker(self._marker)
        if read is not None:
            branch_id, head = read
            branches = [active] if active.id == branch_id else state.branches_seen()
            return _Seen(next((branch for branch in branches if branch.id == branch_id), None), head)
        # A session that was not read from a ledger, or came by way of JSON: as ADK's own services do, by time and last event.
        last = None if active.head_message_id is None else state.message(active.head_message_id)
        if last is None or timestamp_of(last) <= self._session.last_update_time:
            return _Seen(active, active.head_message_id)
        return _Seen(active, _last_id(state, self._session.events))

    def _repeated(self, state: ChatState, active: Branch, seen: _Seen) -> tuple[list[StoredEvent], str | None]:
        """The outcome where all is stored already: by this very call, if it is what follows the last message that was seen."""
        ids = [_stored_id(state, one) for one in self._stored]
        first = state.message(ids[0])
        if active.head_message_id != ids[-1] or first is None or first.parent_id != seen.head:
            return [], None
        return self._stored, marker_of(active.id, ids[-1])


def marker_of(branch_id: str, head_message_id: str | None) -> str:
    """Return the revision of a session: the branch that it was read from, and the last message there."""
    return msgspec.json.encode([branch_id, head_message_id]).decode()


def _read_marker(marker: str | None) -> tuple[str, str | None] | None:
    """The branch and the message of a revision; None for one that another service made."""
    try:
        return None if marker is None else msgspec.json.decode(marker, type=tuple[str, str | None])
    except msgspec.MsgspecError:
        return None


def _stored_id(state: ChatState, one: StoredEvent) -> str:
    message = state.message(str(one.draft.id))
    return str(one.draft.id) if message is not None and one.is_stored_as(message) else one.other_id


def _fresh(state: ChatState, one: StoredEvent) -> StoredEvent | None:
    """The event as it is to be stored, under another id where that is taken; None if it is stored already."""
    message = state.message(str(one.draft.id))
    if message is None:
        return one
    if one.is_stored_as(message) or state.has_message(one.other_id):
        return None
    return one._replace(draft=msgspec.structs.replace(one.draft, id=one.other_id))


def _with_records(new: Sequence[StoredEvent], trail: StateTrail, head: str | None) -> list[NewMessage]:
    """The messages to store, each with the record of the session's state after it."""
    drafts: list[NewMessage] = []
    for one in new:
        message_id = str(one.draft.id)
        record = trail.extend(message_id, head, one.changes.session)
        drafts.append(msgspec.structs.replace(one.draft, metadata={RECORD: record}))
        head = message_id
    return drafts


def _last_id(state: ChatState, events: Sequence[Event]) -> str | None:
    """The id of the message of the last event that a session has."""
    if not events:
        return None
    event_id = events[-1].id
    named = (message_id_of(state.chat_id, event_id), event_id, event_id.rpartition("#")[0])
    return next((name for name in named if name and state.has_message(name)), event_id)


def _nothing(_message_id: str) -> Message | None:
    return None

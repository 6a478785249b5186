# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false, reportPrivateUsage=false
# google-adk is not among the development dependencies, with some of which it conflicts.
"""Appending events to an ADK session: what is new of them, whether their writer is up to date, and where they go."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Literal, NamedTuple

import msgspec
from google.adk.events import Event
from google.adk.sessions import Session

from chatledger.domain.errors import ChatNotFoundError, HeadConflictError
from chatledger.domain.forms.plain import object_at
from chatledger.domain.values import Branch, NewMessage

from ....ledger.history import ChatState, Commit, MessageHistory
from ....ledger.ledger import Ledger
from .events import RECORD, SharedState, StateTrail, StoredEvent, stored_event, timestamp_of

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

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false
# google-adk is not among the development dependencies, with some of which it conflicts.
"""
Events of ADK as messages, what a branch says as events, and the state that events set.

State of one session lies with its messages; what sessions share is in two chats of its own. An event says the keys that it sets.
Among the notes of its message is a record of where the others are:

    {"after": "<message id>", "steps": 3}   the message before it that set something, and how many lead back to a whole state
    {"state": {...}}                        all of the state, after the event

So every message leads to the state as it was then, on any branch and at any time, in a few look-ups, and a state of many keys is
not written again with each event.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from google.adk.events import Event, EventActions
from google.adk.sessions import State
from pydantic import TypeAdapter, ValidationError

from chatledger.domain.errors import AccessDeniedError, InvalidValueError
from chatledger.domain.forms.adk import NAME
from chatledger.domain.forms.items import ASSISTANT, USER
from chatledger.domain.forms.plain import object_at
from chatledger.domain.forms.reading import role_of, text_of
from chatledger.domain.limits import json_copy, same_json
from chatledger.domain.packing import ordered_json
from chatledger.domain.values import Message, NewMessage

from ....ledger.history import Told
from ....ledger.items.item_store import ItemPut, ItemStore
from ....ledger.ledger import Ledger, UserLedger

_EVENTS: Final[TypeAdapter[list[Event]]] = TypeAdapter(list[Event])


class StateDelta(NamedTuple):
    """Keys of state that were set, by their scope and without its prefix. Temporary ones are left out."""

    app: dict[str, Any]
    user: dict[str, Any]
    session: dict[str, Any]


class StoredEvent(NamedTuple):
    """An event as it is to be stored, without the record of the session's state."""

    event: Event
    draft: NewMessage
    changes: StateDelta

    @property
    def other_id(self) -> str:
        """The id of its message where another event was stored under the event's own id."""
        digest = blake2b(ordered_json(self.draft.data), digest_size=8).hexdigest()
        return f"{self.draft.id}:{digest}"

    def is_stored_as(self, message: Message) -> bool:
        return message.form == NAME and same_json(message.data, self.draft.data)


def stored_event(event: Event, chat_id: str) -> StoredEvent:
    """Return an event as it is stored. Raises `InvalidValueError` for what JSON does not know."""
    value: dict[str, Any] = event.model_dump(mode="json", by_alias=True, exclude_none=True)
    draft = NewMessage(
        role_of(NAME, value, USER if event.author == USER else ASSISTANT),
        value,
        form=NAME,
        id=f"{chat_id}:{event.id}",
        created_at=round(event.timestamp * 1000),
        agent_id=event.author if event.author and event.author != USER else None,
    )
    return StoredEvent(event, draft, changes_of(value))


def state_as_json(state: Mapping[str, Any]) -> Any:
    """Return the actions that set state, as JSON; what JSON does not know becomes text, as ADK has it."""
    return {"actions": EventActions(state_delta=dict(state)).model_dump(mode="json", by_alias=True)}


def changes_of(event: Any) -> StateDelta:
    """Return the state that an event as JSON sets, by its scopes."""
    changes = StateDelta({}, {}, {})
    for key, value in object_at(event, "actions", "stateDelta").items():
        if key.startswith(State.APP_PREFIX):
            changes.app[key.removeprefix(State.APP_PREFIX)] = value
        elif key.startswith(State.USER_PREFIX):
            changes.user[key.removeprefix(State.USER_PREFIX)] = value
        elif not key.startswith(State.TEMP_PREFIX):
            changes.session[key] = value
    return changes


def events_of(told: Sequence[Told], *, agent_name: str) -> list[Event]:
    """Return a branch as events; `agent_name` is the author of what assistants said that are not known by name."""
    values: list[dict[str, Any]] = []
    for value, origin in told:
        if "timestamp" not in value:  # it is no event that ADK wrote
            message = origin[0].message
            author = USER if value["author"] == USER else message.agent_id or agent_name
            value = {**value, "author": author, "timestamp": message.created_at / 1000}  # noqa: PLW2901
        values.append(value)
    try:
        return _EVENTS.validate_python(values)
    except ValidationError:  # somebody wrote a part that this version of the SDK does not know
        return [_event(value) for value in values]


def time_of(told: Told) -> float:
    """Return when something was said, in seconds since the epoch: exactly as the event has it, if it is one."""
    return _timestamp(told.value, told.origin[0].message)


def timestamp_of(message: Message) -> float:
    """Return when a message was said, as `time_of` does."""
    return _timestamp(message.data if message.form == NAME else None, message)


def _timestamp(value: Any, message: Message) -> float:
    timestamp = object_at(value).get("timestamp")
    return float(timestamp) if isinstance(timestamp, int | float) else message.created_at / 1000


def _event(value: dict[str, Any]) -> Event:
    try:
        return Event.model_validate(value)
    except ValidationError:
        content = {"role": value["content"]["role"], "parts": [{"text": text_of(NAME, value)}]}
        return Event.model_validate({**value, "content": content})


RECORD: Final = "adk_state"
"""The key of the record in the notes of a message; of the first state of a session in the metadata of its chat."""
STEPS: Final = 32
"""The most records that are read to know a state."""
_SHARED: Final = "adk"
"""The first label of the items of shared state; the app is the second one."""
_VALUE: Final = "value"


class _Link(NamedTuple):
    parent_id: str | None
    record: Mapping[str, Any]
    changes: Mapping[str, Any]


class StateTrail:
    """The state of a session along the chains of its messages, which `find` finds; `initial` is the state that it was made with."""

    def __init__(self, find: Callable[[str], Message | None], initial: Mapping[str, Any]) -> None:
        self._find, self._initial = find, initial
        self._new: dict[str, _Link] = {}

    def state_at(self, message_id: str | None) -> dict[str, Any]:
        """Return the state after a message; the first one for None."""
        steps: list[Mapping[str, Any]] = []
        base = self._initial
        while (link := self._link(message_id)) is not None:
            if "state" in link.record:
                base = object_at(link.record, "state")
                break
            steps.append(link.changes)
            message_id = self._before(link)
        state = dict(base)
        for step in reversed(steps):
            state.update(step)
        return state

    def extend(self, message_id: str, parent_id: str | None, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record of a new message, which follows another one and sets these keys."""
        anchor, steps = self._anchor(parent_id)
        record: dict[str, Any] = {"after": anchor, "steps": steps + bool(changes)}
        if changes and steps + 1 >= STEPS:
            with suppress(InvalidValueError):  # an event may set what notes cannot say, such as NaN
                record = json_copy({"state": {**self.state_at(parent_id), **changes}}, "state")
        self._new[message_id] = _Link(parent_id, record, changes)
        return record

    def _anchor(self, message_id: str | None) -> tuple[str | None, int]:
        """The last message up to this one that set something, and how many records lead back from there to a whole state."""
        while (link := self._link(message_id)) is not None:
            if "state" in link.record:
                return message_id, 0
            if link.changes:  # of one that came from elsewhere the record is missing: the next one has all of it
                return message_id, int(link.record.get("steps", STEPS))
            if "after" in link.record and self._before(link) == link.record["after"]:
                return link.record["after"], int(link.record["steps"])
            message_id = link.parent_id
        return None, 0

    def _link(self, message_id: str | None) -> _Link | None:
        if message_id is None or message_id in self._new:
            return None if message_id is None else self._new[message_id]
        message = self._find(message_id)
        if message is None:
            return None
        changes = changes_of(message.data).session if message.form == NAME else {}
        return _Link(message.parent_id, object_at(message.notes, RECORD), changes)

    def _before(self, link: _Link) -> str | None:
        """The message to look at next: the one that the record names, else, of messages of others and of copies, the parent."""
        if "after" not in link.record:
            return link.parent_id
        after: str | None = link.record["after"]
        return after if after is None or self._link(after) is not None else link.parent_id


class SharedState:
    """
    State that sessions share: of all users of an app, and of one user of it.

    Each key is an item of its own, under `("adk", <app>)`: of the user, or of nobody. So writers at the same time lose nothing of
    each other's, and what a change costs does not grow with what is there.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def of_app(self, app_name: str) -> dict[str, Any]:
        """Return the state of an app; empty where there is none, and in a ledger that is limited to one user."""
        return {} if isinstance(self._ledger, UserLedger) else _read(ItemStore(self._ledger), app_name)

    def of_user(self, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user of an app; empty where there is none, and in a ledger that is limited to another user."""
        items = self._of(user_id)
        return {} if items is None else _read(items, app_name)

    def merge(self, app_name: str, user_id: str, *, of_app: Mapping[str, Any], of_user: Mapping[str, Any]) -> None:
        """Set keys; a commit for each."""
        for items, changes in ((ItemStore(self._ledger), of_app), (self._of(user_id), of_user)):
            if changes and items is not None:
                items.write(
                    [ItemPut(namespace=(_SHARED, app_name), key=key, value={_VALUE: changes[key]}) for key in changes]
                )

    def _of(self, user_id: str) -> ItemStore | None:
        ledger = self._ledger
        if not isinstance(ledger, UserLedger):
            return ItemStore(ledger.for_user(user_id))
        return ItemStore(ledger) if ledger.user_id == user_id else None

    def check(self, of_app: Mapping[str, Any], app_name: str) -> None:
        """Raise `AccessDeniedError` when state of a whole app is to be set in a ledger that is limited to one user."""
        limited_to = getattr(self._ledger, "user_id", None)
        if of_app and limited_to is not None:
            msg = (
                f"the state of the app {app_name!r} is everybody's, and this ledger is limited to one user: "
                f"app:{next(iter(of_app))} was not set; give the session service the whole ledger"
            )
            raise AccessDeniedError(msg)


def _read(items: ItemStore, app_name: str) -> dict[str, Any]:
    # A prefix of labels is asked for, and below an app there are no others.
    return {item.key: item.value[_VALUE] for item in items.list((_SHARED, app_name))}

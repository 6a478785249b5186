# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false
# google-adk is not among the development dependencies, with some of which it conflicts.
"""Events of ADK as messages, and what a branch says as events."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from google.adk.events import Event, EventActions
from google.adk.sessions import State
from pydantic import TypeAdapter, ValidationError

from chatledger.domain.forms.adk import NAME
from chatledger.domain.forms.items import ASSISTANT, USER
from chatledger.domain.forms.plain import object_at
from chatledger.domain.forms.reading import role_of, text_of
from chatledger.domain.limits import same_json
from chatledger.domain.packing import ordered_json
from chatledger.domain.values import Message, NewMessage

from ....ledger.history import Told

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
        """Whether this is the event of a stored message."""
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

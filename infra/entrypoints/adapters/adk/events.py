# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false
# google-adk is not among the development dependencies, with some of which it conflicts.
"""Events of ADK as messages, and messages as events: those that ADK wrote as they were, others by what their parts say."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec
from google.adk.events import Event, EventActions
from google.adk.sessions import State
from google.genai.types import Content, Part
from pydantic import ValidationError

from chatledger.domain.context.formats.google import google_contents, ui_of_content
from chatledger.domain.context.formats.stored import as_ui_message
from chatledger.domain.context.messages import ASSISTANT, USER, object_at
from chatledger.domain.context.native import NATIVE, native_message, native_of
from chatledger.domain.limits import same_json
from chatledger.domain.values import Message, NewMessage

FORM: Final = "adk"
_MODEL: Final = "model"
_ROLES: Final = (USER, _MODEL, "function")
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class Changes(NamedTuple):
    """Keys of state that were set, by their scope and without its prefix. Temporary ones are left out."""

    app: dict[str, Any]
    user: dict[str, Any]
    session: dict[str, Any]


class StoredEvent(NamedTuple):
    """An event as it is to be stored, without the record of the session's state."""

    event: Event
    draft: NewMessage
    changes: Changes

    @property
    def other_id(self) -> str:
        """The id of its message where another event was stored under the event's own id."""
        digest = blake2b(_encode(self.value), digest_size=8).hexdigest()
        return f"{self.draft.id}:{digest}"

    @property
    def value(self) -> Any:
        """The event as JSON."""
        return self.draft.data[NATIVE]["value"]

    def is_stored_as(self, message: Message) -> bool:
        """Whether this is the event of a stored message."""
        return same_json(object_at(message.data, NATIVE).get("value"), self.value)


def message_id_of(chat_id: str, event_id: str) -> str:
    """Return the id of the message of an event."""
    return f"{chat_id}:{event_id}"


def stored_event(event: Event, chat_id: str) -> StoredEvent:
    """
    Return an event as it is stored.

    Raises:
        InvalidValueError: It has something that JSON does not know.
    """
    value: dict[str, Any] = event.model_dump(mode="json", by_alias=True, exclude_none=True)
    message_id = message_id_of(chat_id, event.id)
    shown = _shown(value, message_id)
    draft = native_message(
        FORM,
        value,
        id=message_id,
        role=shown["role"],
        parts=shown["parts"],
        created_at=round(event.timestamp * 1000),
        metadata=shown.get("metadata"),
    )
    if event.author and event.author != USER:
        draft = msgspec.structs.replace(draft, agent_id=event.author)
    return StoredEvent(event, draft, changes_of(object_at(value, "actions", "stateDelta")))


def state_as_json(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return state as JSON; what JSON does not know becomes text, as ADK has it."""
    found: dict[str, Any] = EventActions(state_delta=dict(state)).model_dump(mode="json", by_alias=True)["stateDelta"]
    return found


def changes_of(state: Mapping[str, Any]) -> Changes:
    """Return state by its scopes."""
    found = Changes({}, {}, {})
    for key, value in state.items():
        if key.startswith(State.APP_PREFIX):
            found.app[key.removeprefix(State.APP_PREFIX)] = value
        elif key.startswith(State.USER_PREFIX):
            found.user[key.removeprefix(State.USER_PREFIX)] = value
        elif not key.startswith(State.TEMP_PREFIX):
            found.session[key] = value
    return found


def events_of(message: Message, *, agent_name: str) -> list[Event]:
    """
    Return the events that a message stands for: the one that it was stored with, or one for each content of Google's API.

    Args:
        message: A stored message.
        agent_name: The author of what an assistant said of whom only that is known.
    """
    native = native_of(message, FORM)
    if native is not None:
        return [Event.model_validate(native)]
    shown = as_ui_message(message.name, message.data, message.form)
    author = USER if shown["role"] == USER else message.agent_id or agent_name
    return [
        Event(
            id=message.id if place == 0 else f"{message.id}.{place}",
            invocation_id=message.id,
            author=author,
            content=_content(content, message),
            timestamp=message.created_at / 1000,
        )
        for place, content in enumerate(google_contents(shown))
    ]


def timestamp_of(message: Message) -> float:
    """Return when a message was said, in seconds since the epoch: exactly as the event has it, if it is one."""
    native = object_at(native_of(message, FORM))
    found = native.get("timestamp")
    return float(found) if isinstance(found, int | float) else message.created_at / 1000


def _shown(value: Mapping[str, Any], message_id: str) -> dict[str, Any]:
    """The event as a UIMessage."""
    content, author = object_at(value, "content"), value.get("author")
    role = content.get("role")
    if role not in _ROLES:
        role = USER if author == USER else _MODEL
    parts = content.get("parts")
    if not parts:
        return {"role": ASSISTANT if role == _MODEL else USER, "parts": []}
    return ui_of_content({"role": role, "parts": parts}, message_id)


def _content(content: Mapping[str, Any], message: Message) -> Content:
    try:
        return Content.model_validate(content)
    except ValidationError:  # a part that this version of the SDK does not know
        return Content(role=content.get("role"), parts=[Part(text=message.text)])

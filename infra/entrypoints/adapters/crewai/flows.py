"""`LedgerFlowPersistence`: the states of CrewAI's flows on a ledger. A flow is a chat, a state is a message."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false
# crewai is not among the development dependencies, with some of which it conflicts.

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from crewai.flow.persistence.base import FlowPersistence
from msgspec import UNSET
from pydantic import BaseModel, PrivateAttr
from pydantic_core import to_jsonable_python

from chatledger.domain.chat.decide_chats import decide_upsert_chat
from chatledger.domain.chat.decide_messages import decide_append
from chatledger.domain.chat.events import Body
from chatledger.domain.context.messages import object_at
from chatledger.domain.context.native import native_message, native_of
from chatledger.domain.errors import (
    ChatExistsError,
    ChatNotFoundError,
    ConfigurationError,
    InvalidValueError,
    OwnerMismatchError,
)
from chatledger.domain.limits import check_id
from chatledger.domain.values import MAIN_NUMBER, NewMessage
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.log.kinds import CHATS

from ....ledger.drafts import new_id
from ....ledger.port import store_of
from ..access import AdapterLedger, Source
from ..histories import appended

if TYPE_CHECKING:
    from crewai.flow.async_feedback.types import PendingFeedbackContext

FORM: Final = "crewai-flow"
STATE: Final = "state"
"""The name of the messages that are states."""
_PENDING: Final = "crewai_pending_feedback"
_FIRST_PAGE: Final = 4


class LedgerFlowPersistence(FlowPersistence):  # type: ignore[misc]  # CrewAI is not installed where types are checked
    """
    States of flows: `MyFlow(persistence=LedgerFlowPersistence(ledger))`, or `@persist(LedgerFlowPersistence(ledger))`.

    The id of a flow is that of a chat. Each state is a message of its active branch, so a flow goes on from any state that the
    branch is taken back to. Safe for threads.

    Args:
        source: A ledger, or the location of one, as `chatledger.open` takes it; `close` closes what was opened here.
        user_id: The user whose flows these are. None: the user of the ledger, or nobody.
        location: The same as `source`, as checkpoints of a flow keep it; None for a ledger.

    Raises:
        ConfigurationError: The source is neither a ledger nor a location.
    """

    persistence_type: str = "LedgerFlowPersistence"
    location: str | None = None
    user_id: str | None = None
    _ledger: AdapterLedger = PrivateAttr()

    def __init__(self, source: Source | None = None, *, user_id: str | None = None, **fields: Any) -> None:
        source = fields.pop("location", None) if source is None else source
        if source is None:
            msg = "LedgerFlowPersistence needs a ledger or its location; checkpoints of flows keep only a location"
            raise ConfigurationError(msg)
        place = os.fspath(source) if isinstance(source, str | os.PathLike) else None
        super().__init__(location=place, user_id=user_id, **fields)
        self._ledger = AdapterLedger(source, user_id=user_id, adapter="LedgerFlowPersistence")

    def init_db(self) -> None:
        """Do nothing: a ledger has no tables to be made."""

    def save_state(self, flow_uuid: str, method_name: str, state_data: dict[str, Any] | BaseModel) -> None:
        """
        Store the state of a flow after a method: one commit. The chat is made if there is none.

        Raises:
            InvalidValueError: The state is no object, or the id breaks a rule.
            OwnerMismatchError: The chat of that id belongs to another user.
            PayloadTooLargeError: The state exceeds the size limit of an event.
        """
        self._save(_Given(flow_uuid, method_name, state_data), None)

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """Return the newest state of a flow, on the active branch of its chat; None when there is none. Costs O(state)."""
        found = self._newest(flow_uuid)
        return None if found is None else _object_in(found[STATE])

    def save_pending_feedback(
        self, flow_uuid: str, context: "PendingFeedbackContext", state_data: dict[str, Any] | BaseModel
    ) -> None:
        """Store the state of a flow that waits for somebody, and what it waits for: one commit. Otherwise as `save_state`."""
        pending = to_jsonable_python(context.to_dict(), fallback=str)
        self._save(_Given(flow_uuid, context.method_name, state_data), json.dumps(pending))

    def load_pending_feedback(self, flow_uuid: str) -> "tuple[dict[str, Any], PendingFeedbackContext] | None":
        """Return the state that a flow waits in, and what it waits for; None when it does not wait."""
        from crewai.flow.async_feedback.types import PendingFeedbackContext

        ledger = self._ledger.blocking
        chat = ledger.get_chat(flow_uuid)
        message_id = None if chat is None else object_at(chat.metadata).get(_PENDING)
        message = ledger.get_message(message_id) if isinstance(message_id, str) else None
        found = None if message is None else native_of(message, FORM)
        if found is None or found.get("pending") is None:
            return None
        return _object_in(found[STATE]), PendingFeedbackContext.from_dict(_object_in(found["pending"]))

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        """Note that a flow does not wait any more."""
        with contextlib.suppress(ChatNotFoundError):
            ledger = self._ledger.blocking
            chat = ledger.get_chat(flow_uuid)
            if chat is not None and object_at(chat.metadata).get(_PENDING) is not None:
                ledger.update_chat(flow_uuid, metadata={_PENDING: None})

    def close(self) -> None:
        """Close the ledger, if it was opened here. Calling it again does nothing."""
        self._ledger.close()

    def _save(self, given: "_Given", pending: str | None) -> None:
        chat_id = check_id(given.flow_uuid, "flow_uuid")
        message = _message_of(given, pending)
        metadata = None if pending is None else {_PENDING: message.id}
        saving = _Saving(message, metadata, self._ledger.user_id or "", new_id())
        try:
            store_of(self._ledger.blocking).execute(CHATS, chat_id, saving.decided)
        except ChatExistsError:  # a store of one user does not show those of others
            raise OwnerMismatchError(chat_id) from None

    def _newest(self, flow_uuid: str) -> dict[str, Any] | None:
        ledger, limit = self._ledger.blocking, 1
        while True:
            try:
                messages = ledger.get_messages(check_id(flow_uuid, "flow_uuid"), limit=limit)
            except ChatNotFoundError:
                return None
            for message in reversed(messages):
                found = None if message.is_hidden else native_of(message, FORM)
                if found is not None:
                    return dict(found)
            if len(messages) < limit:
                return None
            limit *= _FIRST_PAGE


class _Given(NamedTuple):
    """A state as CrewAI gives it."""

    flow_uuid: str
    method_name: str
    state_data: Any


class _Saving(NamedTuple):
    """A state to store, with metadata for its chat, which is made for `owner` if there is none."""

    message: NewMessage
    metadata: dict[str, Any] | None
    owner: str
    branch_id: str

    def decided(self, state: IndexedChat, now: int) -> list[Body]:
        """Return the events to write."""
        if state.record is not None:
            return decide_append(
                state, [self.message], branch=None, expected_head=UNSET, now=now, chat_metadata=self.metadata
            )
        created = decide_upsert_chat(
            state, user_id=self.owner, title=None, metadata=self.metadata, branch_id=self.branch_id
        )
        return [*created, appended([self.message], MAIN_NUMBER, None, now)]


def _object_in(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def _message_of(given: _Given, pending: str | None) -> NewMessage:
    """
    The message of a state: the whole state, and for searches the method and the texts in it.

    The state and what it waits for are JSON texts: CrewAI has integers of 128 bits in them, the ids of traces.
    """
    if not isinstance(given.state_data, BaseModel | dict):
        msg = f"the state of a flow must be an object or a pydantic model, not {type(given.state_data).__name__}"
        raise InvalidValueError(msg)
    state = to_jsonable_python(given.state_data, fallback=str)
    texts = [text for key, text in state.items() if isinstance(text, str) and text and key != "id"]
    value = {"method": given.method_name, STATE: json.dumps(state), "pending": pending}
    return native_message(
        FORM,
        value,
        id=f"{given.flow_uuid}:{new_id()}",
        role=STATE,
        parts=[{"type": "text", "text": "\n".join([given.method_name, *texts])}],
    )

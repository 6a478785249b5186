"""`LedgerFlowPersistence`: the states of CrewAI's flows on a ledger. A flow is a chat, a state is a message."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false
# crewai is not among the development dependencies, with some of which it conflicts.

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

from crewai.flow.persistence.base import FlowPersistence
from pydantic import BaseModel, PrivateAttr
from pydantic_core import to_jsonable_python

from chatledger.domain.errors import ChatNotFoundError, ConfigurationError, InvalidValueError
from chatledger.domain.forms.crewai import NAME, STATE
from chatledger.domain.forms.plain import object_at
from chatledger.domain.limits import check_id
from chatledger.domain.values import NewMessage

from ....ledger.drafts import new_id
from ....ledger.history import History, MessageHistory
from ..access import AdapterLedger, Source

if TYPE_CHECKING:
    from crewai.flow.async_feedback.types import PendingFeedbackContext

_PENDING: Final = "crewai_pending_feedback"


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
        self._save(flow_uuid, method_name, state_data, None)

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        """Return the newest state of a flow, on the active branch of its chat; None when there is none. Costs O(state)."""

        def newest(history: History) -> dict[str, Any] | None:
            for chain in history.growing(1):
                for message in reversed(chain):
                    if not message.is_hidden and message.form == NAME and STATE in message.data:
                        return dict(message.data[STATE])
            return None

        return self._history(flow_uuid).read(newest)

    def save_pending_feedback(
        self, flow_uuid: str, context: "PendingFeedbackContext", state_data: dict[str, Any] | BaseModel
    ) -> None:
        """Store the state of a flow that waits for somebody, and what it waits for: one commit. Otherwise as `save_state`."""
        pending = to_jsonable_python(context.to_dict(), fallback=str)
        self._save(flow_uuid, context.method_name, state_data, pending)

    def load_pending_feedback(self, flow_uuid: str) -> "tuple[dict[str, Any], PendingFeedbackContext] | None":
        """Return the state that a flow waits in, and what it waits for; None when it does not wait."""
        from crewai.flow.async_feedback.types import PendingFeedbackContext

        ledger = self._ledger.blocking
        chat = ledger.get_chat(flow_uuid)
        message_id = None if chat is None else object_at(chat.metadata).get(_PENDING)
        message = ledger.get_message(message_id) if isinstance(message_id, str) else None
        if message is None or message.form != NAME or message.data.get("pending") is None:
            return None
        return message.data[STATE], PendingFeedbackContext.from_dict(message.data["pending"])

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

    def _save(self, flow_uuid: str, method_name: str, state_data: Any, pending: Any) -> None:
        if not isinstance(state_data, BaseModel | dict):
            msg = f"the state of a flow must be an object or a pydantic model, not {type(state_data).__name__}"
            raise InvalidValueError(msg)
        state = to_jsonable_python(state_data, fallback=str)
        value = {"method": method_name, STATE: state, "pending": pending}
        message = NewMessage(STATE, value, NAME, id=f"{flow_uuid}:{new_id()}")
        metadata = None if pending is None else {_PENDING: message.id}
        self._history(flow_uuid).add(message, chat_metadata=metadata)

    def _history(self, flow_uuid: str) -> MessageHistory:
        return MessageHistory(self._ledger.blocking, check_id(flow_uuid, "flow_uuid"))

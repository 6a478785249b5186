# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false
# crewai is not among the development dependencies, with some of which it conflicts.
"""`LedgerProvider` and `LedgerFlowPersistence`: CrewAI's checkpoints, and the states of its flows, on a ledger: each is a message of a chat."""

import contextlib
import os
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from crewai.flow.persistence.base import FlowPersistence
from crewai.state.provider.json_provider import JsonProvider
from pydantic import BaseModel, PrivateAttr
from pydantic_core import to_jsonable_python

from chatledger.domain.errors import BranchNotFoundError, ChatNotFoundError, ConfigurationError, InvalidValueError
from chatledger.domain.forms.crewai import CHECKPOINT, NAME, STATE
from chatledger.domain.forms.plain import object_at
from chatledger.domain.limits import check_count, check_id
from chatledger.domain.values import MAIN, Message, NewMessage

from ...ledger.aio.awaiting import threaded
from ...ledger.drafts import new_id
from ...ledger.history import Commit, History, MessageHistory
from ...ledger.ledger import Ledger
from ...operating_system import write_private
from .access import AdapterLedger, Closable, Source


class LedgerProvider(JsonProvider, Closable):  # type: ignore[misc]  # CrewAI is not installed where types are checked
    """
    Checkpoints of crews and flows: `CheckpointConfig(location="trip", provider=LedgerProvider(ledger))`.

    The location is the id of a chat. A checkpoint follows its parent there, and the branches of CrewAI are those of the chat: one
    that goes on from an older checkpoint leaves what came after that on a branch of its own. Safe for threads and tasks.

    CrewAI takes only kinds of its own providers, so this one says that it is a `JsonProvider`. It reads and writes no file but in
    `save_file`, which CrewAI needs to go on from a checkpoint, as it reads those from files only.

    Args:
        source: A ledger, or the location of one, as `chatledger.open` takes it; `close` closes what was opened here.
        user_id: The user whose checkpoints these are. None: the user of the ledger, or nobody.

    Raises:
        ConfigurationError: The source is neither a ledger nor a location.
    """

    _ledger: AdapterLedger = PrivateAttr()

    def __init__(self, source: Source, *, user_id: str | None = None) -> None:
        super().__init__()
        self._ledger = AdapterLedger(source, user_id=user_id, adapter="LedgerProvider")

    def checkpoint(self, data: str, location: str, *, parent_id: str | None = None, branch: str = MAIN) -> str:
        """
        Store a checkpoint: one commit. The chat and the branch are made if they are not there.

        Args:
            data: The state as JSON text. Large ones are stored beside the log.
            location: The id of a chat.
            parent_id: The checkpoint that it follows. One that is not in this chat, as none, makes it a first one.
            branch: The branch, which becomes the active one.

        Returns:
            Where it is: `trip#20261102T093000_5d41402a`.

        Raises:
            OwnerMismatchError: The chat of that id belongs to another user.
        """
        chat_id = check_id(location, "location")
        checkpoint_id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}_{uuid.uuid4().hex[:12]}"
        value = {CHECKPOINT: data, "branch": branch, "parent_id": parent_id}
        message = NewMessage(CHECKPOINT, value, NAME, id=f"{chat_id}:{checkpoint_id}")
        parent = None if parent_id is None else f"{chat_id}:{parent_id}"
        MessageHistory(self._ledger.blocking, chat_id).commit(lambda commit: _append(commit, message, parent, branch))
        return f"{chat_id}#{checkpoint_id}"

    acheckpoint = threaded(checkpoint)

    def prune(self, location: str, max_keep: int, *, branch: str = MAIN) -> int:
        """
        Hide all but the newest checkpoints that were made on a branch; returns how many were hidden.

        They are not read again and not found by searches, but stay in the history, as of earlier moments, until the chat is
        deleted. Costs O(kept and hidden checkpoints).
        """
        check_count(max_keep, "max_keep")
        history = MessageHistory(self._ledger.blocking, location, branch=branch)
        try:
            return history.commit(lambda commit: _prune(commit, branch, max_keep)) or 0
        except BranchNotFoundError:
            return 0

    def extract_id(self, location: str) -> str:
        """Return the id of the checkpoint at `trip#20261102T093000_5d41402a`, or of one in a file."""
        chat_id, _, checkpoint_id = location.rpartition("#")
        return checkpoint_id if chat_id else str(super().extract_id(location))

    def from_checkpoint(self, location: str) -> str:
        """
        Return the state of a checkpoint as it was given.

        Raises:
            ValueError: There is none, or it was pruned.
        """
        return _checkpoint_at(self._ledger.blocking, location)[1]

    afrom_checkpoint = threaded(from_checkpoint)

    def save_file(self, location: str, folder: str | os.PathLike[str]) -> Path:
        """
        Write a checkpoint to a file that CrewAI goes on from; the next checkpoints follow this one.

        `crew.kickoff(from_checkpoint=CheckpointConfig(location="trip", provider=provider, restore_from=file))`

        Args:
            location: What `checkpoint` returned.
            folder: A folder, which is made if it is not there.

        Raises:
            ValueError: There is none, or it was pruned.
        """
        message, data = _checkpoint_at(self._ledger.blocking, location)
        parent_id = "none" if message.parent_id is None else message.parent_id.rpartition(":")[2]
        file = Path(folder, f"{self.extract_id(location)}_p-{parent_id}.json")
        write_private(file, data)
        return file


def _append(commit: Commit, message: NewMessage, parent: str | None, branch: str) -> None:
    """Let a checkpoint follow its parent on a branch, which becomes the active one; what was its end gets a branch of its own."""
    commit.begin()
    base = parent if parent is not None and commit.has(parent) else None
    if not commit.has_branch(branch):
        commit.create_branch(base, name=branch)
    end = commit.head(branch)
    if end != base:
        if end is not None:  # what came after the older checkpoint stays reachable
            commit.create_branch(end, after=branch, activate=False)
        commit.move_head(base, branch=branch)
    commit.activate(branch)
    commit.append([message], branch=branch)


def _prune(commit: Commit, branch: str, max_keep: int) -> int:
    """Hide all but the newest checkpoints of a branch. The walk ends at the first one that was hidden before."""
    at, shown = commit.head() if commit.is_begun else None, list[str]()
    while at is not None:
        message = commit.message(at)
        assert message is not None, "a head and its ancestors are stored"
        # A branch begins with checkpoints of the one that it left.
        if message.form == NAME and object_at(message.data).get("branch") == branch:
            if message.is_hidden:
                break
            shown.append(message.id)
        at = message.parent_id
    pruned = shown[max_keep:]
    commit.annotate(pruned[::-1], hidden=True)
    return len(pruned)


def _checkpoint_at(ledger: Ledger, location: str) -> tuple[Message, str]:
    """Return the message of a checkpoint, and its state. Raises `ValueError` where there is none."""
    chat_id, _, checkpoint_id = location.rpartition("#")
    message = ledger.get_message(f"{chat_id}:{checkpoint_id}") if checkpoint_id else None
    if message is not None and message.chat_id == chat_id and not message.is_hidden and message.form == NAME:
        data = object_at(message.data).get(CHECKPOINT)
        if data is not None:
            return message, str(data)
    msg = f"Checkpoint not found: {location}"
    raise ValueError(msg)


if TYPE_CHECKING:
    from crewai.flow.async_feedback.types import PendingFeedbackContext

_PENDING: Final = "crewai_pending_feedback"


class LedgerFlowPersistence(FlowPersistence, Closable):  # type: ignore[misc]  # CrewAI is not installed where types are checked
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

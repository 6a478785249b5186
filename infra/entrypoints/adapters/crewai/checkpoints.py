"""`LedgerProvider`: CrewAI's checkpoints on a ledger. A location is a chat, a checkpoint is a message, a branch is a branch."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false
# crewai is not among the development dependencies, with some of which it conflicts.

import os
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from crewai.state.provider.json_provider import JsonProvider
from pydantic import PrivateAttr

from chatledger.domain.chat.decide_chats import decide_upsert_chat
from chatledger.domain.chat.decide_messages import find_branch
from chatledger.domain.chat.decide_runs import annotations
from chatledger.domain.chat.events import Body, BranchActivated, BranchCreated, HeadMoved
from chatledger.domain.chat.fork import next_name
from chatledger.domain.chat.state import next_branch_number
from chatledger.domain.context.messages import object_at
from chatledger.domain.context.native import native_message, native_of
from chatledger.domain.errors import BranchNotFoundError, ChatExistsError, ChatNotFoundError, OwnerMismatchError
from chatledger.domain.limits import check_count, check_id
from chatledger.domain.values import MAIN, MAIN_NUMBER, Branch, Message, NewMessage
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.lmdb.environment import make_folder, private
from chatledger.projections.log.kinds import CHATS

from ....ledger.drafts import new_id
from ....ledger.ledger import Ledger
from ....ledger.port import store_of
from ..access import AdapterLedger, Source
from ..histories import appended

FORM: Final = "crewai-checkpoint"
CHECKPOINT: Final = "checkpoint"
"""The name of the messages that are checkpoints."""


class LedgerProvider(JsonProvider):  # type: ignore[misc]  # CrewAI is not installed where types are checked
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
        return self._stored(self._ledger.blocking, _Given(data, location, parent_id, branch))

    async def acheckpoint(self, data: str, location: str, *, parent_id: str | None = None, branch: str = MAIN) -> str:
        """Do as `checkpoint`."""
        given = _Given(data, location, parent_id, branch)
        return await self._ledger.run(lambda ledger: self._stored(ledger, given))

    def prune(self, location: str, max_keep: int, *, branch: str = MAIN) -> int:
        """
        Hide all but the newest checkpoints that were made on a branch; returns how many were hidden.

        They are not read again and not found by searches, but stay in the history, as of earlier moments, until the chat is
        deleted. Costs O(kept and hidden checkpoints).
        """
        pruning = _Pruning(branch, check_count(max_keep, "max_keep"))
        try:
            store_of(self._ledger.blocking).execute(CHATS, check_id(location, "location"), pruning.decided)
        except (ChatNotFoundError, BranchNotFoundError):
            return 0
        return pruning.hidden

    def extract_id(self, location: str) -> str:
        """Return the id of the checkpoint at `trip#20261102T093000_5d41402a`, or of one in a file."""
        chat_id, mark, found = location.rpartition("#")
        return found if mark and chat_id else str(super().extract_id(location))

    def from_checkpoint(self, location: str) -> str:
        """
        Return the state of a checkpoint as it was given.

        Raises:
            ValueError: There is none, or it was pruned.
        """
        return _data_of(_checkpoint_at(self._ledger.blocking, location), location)

    async def afrom_checkpoint(self, location: str) -> str:
        """Do as `from_checkpoint`."""
        found = await self._ledger.run(lambda ledger: _checkpoint_at(ledger, location))
        return _data_of(found, location)

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
        found = _checkpoint_at(self._ledger.blocking, location)
        data = _data_of(found, location)
        parent = found.parent_id if found is not None else None
        parent_id = "none" if parent is None else parent.rpartition(":")[2]
        file = Path(folder, f"{self.extract_id(location)}_p-{parent_id}.json")
        make_folder(file.parent)
        with open(file, "w", encoding="utf-8", opener=private) as stream:
            stream.write(data)
        return file

    def close(self) -> None:
        """Close the ledger, if it was opened here. Calling it again does nothing."""
        self._ledger.close()

    def _stored(self, ledger: Ledger, given: "_Given") -> str:
        chat_id = check_id(given.location, "location")
        checkpoint_id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}_{uuid.uuid4().hex[:12]}"
        checkpointing = _Checkpointing(
            _message_of(given, checkpoint_id), given, self._ledger.user_id or "", (new_id(), new_id())
        )
        try:
            store_of(ledger).execute(CHATS, chat_id, checkpointing.decided)
        except ChatExistsError:  # a store of one user does not show those of others
            raise OwnerMismatchError(chat_id) from None
        return f"{chat_id}#{checkpoint_id}"


class _Given(NamedTuple):
    """A checkpoint as CrewAI gives it."""

    data: str
    location: str
    parent_id: str | None
    branch: str


class _Checkpointing(NamedTuple):
    """A checkpoint to store, and ids for a branch and for the chat."""

    message: NewMessage
    given: _Given
    owner: str
    new_ids: tuple[str, str]

    def decided(self, state: IndexedChat, now: int) -> list[Body]:
        """Return the events to write."""
        given, new_id_ = self.given, self.new_ids[0]
        if state.record is None:
            created = decide_upsert_chat(
                state, user_id=self.owner, title=None, metadata=None, branch_id=self.new_ids[1]
            )
            if given.branch == MAIN:
                return [*created, appended([self.message], MAIN_NUMBER, None, now)]
            other = BranchCreated(MAIN_NUMBER + 1, new_id_, given.branch, None, now, is_active=True)
            return [*created, other, appended([self.message], other.number, None, now)]
        parent = None if given.parent_id is None else f"{given.location}:{given.parent_id}"
        base = parent if parent is not None and state.has_message(parent) else None
        target = state.branch(given.branch)
        if target is None:
            number = state.record.branches_made
            branch = BranchCreated(number, new_id_, given.branch, base, now, is_active=True)
            return [branch, appended([self.message], number, base, now)]
        checkpoint = appended([self.message], target.number, base, now)
        moved = [] if target.head_message_id == base else self._moved(state, target, base, now)
        active: list[Body] = [] if target.is_active else [BranchActivated(target.number, target.name)]
        return [*moved, *active, checkpoint]

    def _moved(self, state: IndexedChat, target: Branch, base: str | None, now: int) -> list[Body]:
        """The branch at another checkpoint, with another branch for what was its end."""
        moved = HeadMoved(target.number, target.name, target.head_message_id, base)
        if target.head_message_id is None:
            return [moved]
        name = next_name(
            target.name, named_after=state.branches_named_after, is_taken=lambda name: state.branch(name) is not None
        )
        number = next_branch_number(state)
        return [BranchCreated(number, self.new_ids[0], name, target.head_message_id, now), moved]


class _Pruning:
    """The checkpoints of a branch that are to be hidden; `hidden` is their number."""

    def __init__(self, branch: str, max_keep: int) -> None:
        self._branch, self._max_keep = branch, max_keep
        self.hidden = 0

    def decided(self, state: IndexedChat, now: int) -> list[Body]:
        """Return the events to write. The walk ends at the first one that was hidden before."""
        del now
        at, kept, gone = find_branch(state, self._branch).head_message_id, 0, list[str]()
        while at is not None:
            message = state.message(at)
            assert message is not None, "a head and its ancestors are stored"
            if _label(message) == self._branch:
                if message.is_hidden:
                    break
                kept += 1
                if kept > self._max_keep:
                    gone.append(message.id)
            at = message.parent_id
        self.hidden = len(gone)
        return annotations(state, gone[::-1], {"hidden": True}) if gone else []


def _message_of(given: _Given, checkpoint_id: str) -> NewMessage:
    """The message of a checkpoint: its data as they are, and for searches what was done last."""
    text = _said_in(given.data)
    metadata = {"crewai": {"branch": given.branch, "parent_id": given.parent_id}}
    return native_message(
        FORM,
        given.data,
        id=f"{given.location}:{checkpoint_id}",
        role=CHECKPOINT,
        parts=[{"type": "text", "text": text}] if text else [],
        metadata=metadata,
    )


def _said_in(data: str) -> str:
    """Text for searches: the event that a checkpoint was made for, and the result of the last task that has one."""
    try:
        found: Any = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return ""
    lines = [str(object_at(found).get("trigger") or "")]
    entities = object_at(found).get("entities")
    tasks = [task for entity in entities or [] for task in object_at(entity).get("tasks") or []] if entities else []
    done = [output for task in tasks if (output := object_at(task, "output"))]
    if done:
        lines += [str(done[-1].get("name") or done[-1].get("description") or ""), str(done[-1].get("raw") or "")]
    return "\n".join(filter(None, lines))


def _label(message: Message) -> Any:
    kept: Mapping[str, Any] = object_at(message.data, "metadata", "crewai")
    return kept.get("branch")


def _checkpoint_at(ledger: Ledger, location: str) -> Message | None:
    chat_id, _, checkpoint_id = location.rpartition("#")
    found = ledger.get_message(f"{chat_id}:{checkpoint_id}") if checkpoint_id else None
    return None if found is None or found.chat_id != chat_id or found.is_hidden else found


def _data_of(found: Message | None, location: str) -> str:
    data = None if found is None else native_of(found, FORM)
    if data is None:
        msg = f"Checkpoint not found: {location}"
        raise ValueError(msg)
    return str(data)

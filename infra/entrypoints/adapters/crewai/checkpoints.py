"""`LedgerProvider`: CrewAI's checkpoints on a ledger. A location is a chat, a checkpoint is a message, a branch is a branch."""
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false
# crewai is not among the development dependencies, with some of which it conflicts.

import os
import uuid
from datetime import UTC, datetime
from pathlib import Path

from crewai.state.provider.json_provider import JsonProvider
from pydantic import PrivateAttr

from chatledger.domain.errors import BranchNotFoundError
from chatledger.domain.forms.crewai import CHECKPOINT, NAME
from chatledger.domain.forms.plain import object_at
from chatledger.domain.limits import check_count, check_id
from chatledger.domain.values import MAIN, Message, NewMessage

from ....ledger.aio.awaiting import threaded
from ....ledger.history import Commit, MessageHistory
from ....ledger.ledger import Ledger
from ....private_files import write_private
from ..access import AdapterLedger, Source


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

    def close(self) -> None:
        """Close the ledger, if it was opened here. Calling it again does nothing."""
        self._ledger.close()


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

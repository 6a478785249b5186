"""Writing anew what only the index still knows of chats that lost events."""

from chatledger.domain.chat.interchange import ImportedChat
from chatledger.domain.chat.state import stream_head
from chatledger.domain.values import Branch
from chatledger.projections.index import Index

from ...ledger.interchange import exported_chat
from ...ledger.ledger import Ledger
from ...ledger.port import store_of
from .index_check import snapshot_chats


class Recreation:
    """
    The chats that were written anew.

    Attributes:
        done: The chats.
    """

    def __init__(self) -> None:
        self.done: set[str] = set()

    @classmethod
    def run(cls, ledger: Ledger, index: Index, *, seen: int) -> "Recreation":
        """
        Bring the chats that lost events to where the index saw them.

        Args:
            ledger: On the repaired log.
            index: What was derived from the damaged one before.
            seen: The position of the index; what was deleted after it stays deleted.
        """
        made = cls()
        for chat_id, (version, _) in heads_of(index).items():
            with store_of(ledger).snapshot() as snapshot:
                state = snapshot.chat(chat_id)
                tombstone, record = state.tombstone, state.record
            is_deleted = record is None and tombstone is not None and tombstone.head.position > seen
            if not is_deleted and (record is None or record.head.version < version):
                with index.snapshot() as snapshot:
                    lost = exported_chat(snapshot.chat(chat_id))
                _bring_back(ledger, lost)
                made.done.add(chat_id)
        return made


def heads_of(index: Index) -> dict[str, tuple[int, bytes]]:
    """Version and hash of the last event of each chat, as an index has seen it."""
    with index.snapshot() as snapshot:
        heads = {chat_id: stream_head(chat) for chat_id, chat in snapshot_chats(snapshot)}
    return {chat_id: (head.version, head.hash) for chat_id, head in heads.items()}


def _bring_back(ledger: Ledger, chat: ImportedChat) -> None:
    ledger.import_chat(chat, on_change="refuse")
    now = ledger.get_chat(chat.id)
    assert now is not None, "it was just imported"
    if (now.title, now.metadata) != (chat.title, chat.metadata):
        ledger.update_chat(chat.id, title=chat.title, replace_metadata=chat.metadata)
    there: dict[str, Branch] = {branch.name: branch for branch in ledger.list_branches(chat.id)}
    for branch in chat.branches:
        head = there[branch.name].head_message_id
        if head != branch.head_message_id:
            ledger.move_head(chat.id, branch.name, branch.head_message_id, expected=head)
        if branch.is_active and not there[branch.name].is_active:
            ledger.set_active_branch(chat.id, branch.name)
    wanted = {checkpoint.name: checkpoint.message_id for checkpoint in chat.checkpoints}
    for checkpoint in ledger.list_checkpoints(chat.id):
        if checkpoint.name not in wanted:
            ledger.delete_checkpoint(chat.id, checkpoint.name)
        elif checkpoint.message_id != wanted[checkpoint.name]:
            ledger.set_checkpoint(chat.id, checkpoint.name, wanted[checkpoint.name])

"""Writing anew what only the index still knows of chats that lost events."""

from collections.abc import Mapping

from chatledger.domain.chat.interchange import ImportedChat
from chatledger.domain.values import Branch
from chatledger.projections.index import Index

from ...ledger.interchange import exported_chat
from ...ledger.ledger import Ledger
from ...ledger.port import store_of


def recreate(ledger: Ledger, index: Index, heads: Mapping[str, tuple[int, bytes]], *, seen: int) -> set[str]:
    """
    Bring the chats that lost events to where the index saw them, and return which these are.

    Args:
        ledger: On the repaired log.
        index: What was derived from the damaged one before.
        heads: Version and hash of the last event of each chat, as the index has seen it.
        seen: The position of the index; what was deleted after it stays deleted.
    """
    done: set[str] = set()
    for chat_id, (version, _) in heads.items():
        with store_of(ledger).snapshot() as snapshot:
            state = snapshot.chat(chat_id)
            tombstone, record = state.tombstone, state.record
        is_deleted = record is None and tombstone is not None and tombstone.head.position > seen
        if not is_deleted and (record is None or record.head.version < version):
            with index.snapshot() as snapshot:
                lost = exported_chat(snapshot.chat(chat_id))
            _bring_back(ledger, lost)
            done.add(chat_id)
    return done


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
    for name in there.keys() - {branch.name for branch in chat.branches}:
        ledger.delete_branch(chat.id, name)
    wanted = {checkpoint.name: checkpoint.message_id for checkpoint in chat.checkpoints}
    for checkpoint in ledger.list_checkpoints(chat.id):
        if checkpoint.name not in wanted:
            ledger.delete_checkpoint(chat.id, checkpoint.name)
        elif checkpoint.message_id != wanted[checkpoint.name]:
            ledger.set_checkpoint(chat.id, checkpoint.name, wanted[checkpoint.name])

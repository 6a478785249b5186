"""How a tombstone tells its owner from others without naming anybody."""

from hashlib import sha256

from .agents.events import AgentThreadDeleted
from .events import ChatDeleted


def owner_digest(chat_id: str, user_id: str) -> str:
    """
    What stays of the owner of a deleted chat: 32 hexadecimal digits, different for each chat of an owner.

    Who knows the user id can check it, so that owners find their own tombstones. It hides ids that cannot be guessed, such
    as random ones; it does not hide one of a list that somebody tries.
    """
    identity = chat_id.encode()
    return sha256(b"owner:%d:%s%s" % (len(identity), identity, user_id.encode())).hexdigest()[:32]


def is_owner_of_deleted(body: ChatDeleted | AgentThreadDeleted, chat_id: str, user_id: str) -> bool:
    """Whether a user owned the chat of that tombstone; False for one that was written before tombstones could tell."""
    return body.owner_digest is not None and body.owner_digest == owner_digest(chat_id, user_id)

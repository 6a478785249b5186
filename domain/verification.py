"""What a verification found, when all was well; otherwise it raises."""

import msgspec


class ForeignRecord(msgspec.Struct, frozen=True):
    """
    A message on the log that no chatledger wrote, or that does not belong where it stands. It is passed over.

    Args:
        position: Where it stands.
        chat_id: The chat on whose subject, which is refused because of it; None when it is on that of none.
        why: What is wrong with it.
    """

    position: int
    chat_id: str | None
    why: str


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """
    A log that is sound, with an index that equals it.

    Args:
        position: The last position that was read.
        event_count: How many events were read and checked.
        chat_count: How many chats were compared with the index.
        message_count: How many messages they have.
        deletion_count: How many deletions the log has; what was erased after them is accounted for.
        erased_since_anchor: The chats of the anchor that were deleted after it, by id, in the order of their deletion.
        foreign: Messages that others published into the log, the first 1,000; `chatledger doctor --repair` removes them.
        foreign_count: How many there are.
    """

    position: int
    event_count: int
    chat_count: int
    message_count: int
    deletion_count: int
    erased_since_anchor: tuple[str, ...] = ()
    foreign: tuple[ForeignRecord, ...] = ()
    foreign_count: int = 0

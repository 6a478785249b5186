"""What a verification found, when all was well; otherwise it raises."""

import msgspec


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
    """

    position: int
    event_count: int
    chat_count: int
    message_count: int
    deletion_count: int
    erased_since_anchor: tuple[str, ...] = ()

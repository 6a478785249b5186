"""What a backup holds, as its readers are told."""

import msgspec


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """
    A backup: the stored events of a log up to one position.

    Args:
        folder: Where it lies.
        log_id: The identity of the log that it was taken from last.
        position: The last position that it covers.
        hash: The hash of the last event, in hexadecimal digits; empty for an empty log.
        event_count: How many events it holds.
        stream_count: How many chats and threads they are of, deleted ones included.
        size_bytes: The size of its files.
        created_at, updated_at: When it was begun and taken last, in ms.
        added_count: How many events this run added.
        erased_count: How many events this run removed, because their chats were deleted since.
    """

    folder: str
    log_id: str
    position: int
    hash: str
    event_count: int
    stream_count: int
    size_bytes: int
    created_at: int
    updated_at: int
    added_count: int = 0
    erased_count: int = 0

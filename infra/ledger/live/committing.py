"""Making live streams messages: at once by their writers, or later in place of writers that died."""

import contextlib
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from chatledger.domain.chat.live import (
    SILENCE_S,
    LiveChunk,
    LiveCommit,
    LiveEntry,
    LiveStream,
    live_key,
    unpacked_chunks,
)
from chatledger.domain.errors import (
    ChatledgerError,
    InvalidValueError,
    LiveStreamNotFoundError,
    MessageConflictError,
)
from chatledger.domain.values import Message

from ...log.live import FoundLive
from ...log.live_storage import LiveAbsentError, LiveChangedError
from ..drafts import as_drafts, text_message
from ..messages import Appending, append_now
from ..port import LedgerStore

_WAIT_S: Final = 5.0


def append_answer(
    store: LedgerStore, stream: LiveStream, commit: LiveCommit, *, expected_head: str | UnsetType | None = UNSET
) -> Message:
    """Append the message of a stream, once: it has its id. Raises what `Ledger.append` raises."""
    draft = commit.draft
    if draft is None:
        (draft,) = as_drafts(text_message(stream.name, _text(store, stream), commit.message_id))
    given = Appending(
        [draft], branch=commit.branch, expected_head=expected_head, skips_stored=False, chat_metadata=None
    )
    return append_now(store, stream.chat_id, given)[0]


def _text(store: LedgerStore, stream: LiveStream) -> str:
    texts = [chunk.data for chunk in stored_chunks(store, stream)]
    if not all(isinstance(text, str) for text in texts):
        msg = f"live stream {stream.id!r} has chunks that are not text; commit(message) says what it is to become"
        raise InvalidValueError(msg)
    return "".join(texts)


def stored_chunks(store: LedgerStore, stream: LiveStream) -> list[LiveChunk]:
    """
    Return the chunks of a stream that are stored now.

    Raises:
        LiveStreamNotFoundError: It is gone.
    """
    found = store.live.find(live_key(stream.chat_id, stream.id))
    if found is None:
        raise LiveStreamNotFoundError(stream.chat_id, stream.id)
    reading, chunks = store.live.read(found.key), list[LiveChunk]()
    try:
        while len(chunks) < found.last.count:
            for entry in reading.next(_WAIT_S):
                chunks += unpacked_chunks(entry)
    except LiveAbsentError:
        raise LiveStreamNotFoundError(stream.chat_id, stream.id) from None
    finally:
        reading.close()
    return chunks[: found.last.count]


def complete(store: LedgerStore, found: FoundLive) -> bool:
    """
    Append the message of a stream that was closed by a writer which died before it could; whether it is there then.

    A stream whose message cannot be appended is opened again, and left interrupted.
    """
    commit = found.last.commit
    if found.stream.status != "committing" or found.stream.idle_s <= SILENCE_S or commit is None:
        return found.stream.status == "committed"
    is_there = True
    try:
        append_answer(store, found.stream, commit)
    except MessageConflictError as error:
        is_there = not error.other_chat  # the branch went elsewhere since, and the message is not on it any more
    except ChatledgerError as error:
        if not isinstance(error, InvalidValueError | LookupError):
            raise
        is_there = False
    last = found.last
    entry = LiveEntry(
        "end" if is_there else "leave",
        last.epoch,
        last.count,
        last.size,
        commit=msgspec.structs.replace(commit, draft=None) if is_there else None,
    )
    with contextlib.suppress(LiveChangedError, LiveAbsentError):  # another one was faster
        store.live.add(found.key, found.tail, store.live.seal(found.key, found.tail.number + 1, entry))
    return is_there

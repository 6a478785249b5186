"""Making live streams messages: at once by their writers, or later in place of writers that died."""

from typing import Final

import msgspec
from msgspec import UNSET

from chatledger.domain.chat.decide_messages import check_message, is_same_message
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
    AlreadyExistsError,
    HeadConflictError,
    InvalidValueError,
    LiveStreamNotFoundError,
    LogUnavailableError,
    NotFoundError,
)
from chatledger.domain.values import Message

from ...log.live import FoundLive
from ...log.live_storage import LiveAbsentError, LiveChangedError
from ...store.commands import ChatsToRead
from ..drafts import as_draft, text_message
from ..messages import Appending, append_now
from ..port import StorePort

_WAIT_S: Final = 10.0
_REFUSALS: Final = (InvalidValueError, NotFoundError, AlreadyExistsError, HeadConflictError)
"""Errors of an append that trying again would not change."""


def append_answer(store: StorePort, stream: LiveStream, commit: LiveCommit, *, is_again: bool = False) -> Message:
    """
    Append the message of a stream, once: it has its id. Raises what `Ledger.append` raises.

    With `is_again` it may be on the log already; then it is returned, also where its branch has moved since.
    """
    draft = commit.draft
    if draft is None:
        texts = [chunk.data for chunk in stored_chunks(store, stream)]
        if not all(isinstance(text, str) for text in texts):
            msg = f"live stream {stream.id!r} has chunks that are not text; commit(message) says what it is to become"
            raise InvalidValueError(msg)
        draft = as_draft(text_message(stream.name, "".join(texts), commit.message_id))
    appending = Appending(
        [draft],
        branch=commit.branch,
        expected_head=commit.expected_heads[0] if commit.expected_heads else UNSET,
        skips_stored=False,
        chat_metadata=None,
    )
    try:
        return append_now(store, stream.chat_id, appending)[0]
    except _REFUSALS:
        if not is_again:
            raise
        # The first attempt may have stored it. Another message under this id must not be taken for the answer.
        message = check_message(draft, 0)
        with store.snapshot(ChatsToRead(stream.chat_id)) as snapshot:
            stored = snapshot.chat(stream.chat_id).message(message.id)
        if stored is None or not is_same_message(stored, message):
            raise
        return stored


def stored_chunks(store: StorePort, stream: LiveStream) -> list[LiveChunk]:
    """
    Return the chunks of a stream that are stored now.

    Raises:
        LiveStreamNotFoundError: It is gone.
        LogUnavailableError: They do not arrive.
    """
    live = store.live.find(live_key(stream.chat_id, stream.id))
    if live is None:
        raise LiveStreamNotFoundError(stream.chat_id, stream.id)
    reading, chunks = store.live.read(live.key), list[LiveChunk]()
    try:
        while len(chunks) < live.last.count:
            entries = reading.next(_WAIT_S)
            if not entries:
                msg = f"the chunks of live stream {stream.id!r} of chat {stream.chat_id!r} did not arrive; trying again is safe"
                raise LogUnavailableError(msg)
            for entry in entries:
                chunks += unpacked_chunks(entry)
    except LiveAbsentError:
        raise LiveStreamNotFoundError(stream.chat_id, stream.id) from None
    finally:
        reading.close()
    return chunks[: live.last.count]


def complete(store: StorePort, live: FoundLive) -> bool:
    """
    Append the message of a stream that was closed by a writer which died before it could; whether it is there then.

    A stream whose message cannot be appended is opened again, and left interrupted.
    """
    commit = live.last.commit
    if live.stream.status != "committing" or live.stream.idle_s <= SILENCE_S or commit is None:
        return live.stream.status == "committed"
    # Taken over first: its writer, should it live, must not open the stream again once the message is there.
    claimed = _added(store, live, msgspec.structs.replace(live.last, epoch=live.last.epoch + 1))
    if claimed is None:
        return False
    try:
        append_answer(store, live.stream, commit, is_again=True)
    except _REFUSALS:
        _added(store, claimed, msgspec.structs.replace(claimed.last, kind="leave", commit=None))
        return False
    ended = msgspec.structs.replace(claimed.last, kind="end", commit=msgspec.structs.replace(commit, draft=None))
    _added(store, claimed, ended)
    return True


def _added(store: StorePort, live: FoundLive, entry: LiveEntry) -> FoundLive | None:
    """Return the stream with one more entry; None where another writer was faster, or it is gone."""
    try:
        tail = store.live.add(live.key, live.tail, store.live.seal(live.key, live.tail.number + 1, entry))
    except (LiveChangedError, LiveAbsentError):
        return None
    return live._replace(last=entry, tail=tail)

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
from ..port import LedgerStore

_WAIT_S: Final = 10.0
_REFUSALS: Final = (InvalidValueError, NotFoundError, AlreadyExistsError, HeadConflictError)
"""Errors of an append that would be the same again."""


def append_answer(store: LedgerStore, stream: LiveStream, commit: LiveCommit, *, is_again: bool = False) -> Message:
    """
    Append the message of a stream, once: it has its id. Raises what `Ledger.append` raises.

    With `is_again` it may be on the log already; then it is returned, also where its branch has moved since.
    """
    draft = commit.draft
    if draft is None:
        draft = as_draft(text_message(stream.name, _text(store, stream), commit.message_id))
    given = Appending(
        [draft],
        branch=commit.branch,
        expected_head=commit.expected_heads[0] if commit.expected_heads else UNSET,
        skips_stored=False,
        chat_metadata=None,
    )
    try:
        return append_now(store, stream.chat_id, given)[0]
    except _REFUSALS:
        stored = _stored(store, stream.chat_id, check_message(draft, 0)) if is_again else None
        if stored is None:
            raise
        return stored


def _stored(store: LedgerStore, chat_id: str, message: Message) -> Message | None:
    with store.snapshot(ChatsToRead(chat_id)) as snapshot:
        found = snapshot.chat(chat_id).message(message.id)
    return found if found is not None and is_same_message(found, message) else None


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
        LogUnavailableError: They do not arrive.
    """
    found = store.live.find(live_key(stream.chat_id, stream.id))
    if found is None:
        raise LiveStreamNotFoundError(stream.chat_id, stream.id)
    reading, chunks = store.live.read(found.key), list[LiveChunk]()
    try:
        while len(chunks) < found.last.count:
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
    return chunks[: found.last.count]


def complete(store: LedgerStore, found: FoundLive) -> bool:
    """
    Append the message of a stream that was closed by a writer which died before it could; whether it is there then.

    A stream whose message cannot be appended is opened again, and left interrupted.
    """
    commit = found.last.commit
    if found.stream.status != "committing" or found.stream.idle_s <= SILENCE_S or commit is None:
        return found.stream.status == "committed"
    # Taken over first: its writer, should it live, must not open the stream again once the message is there.
    claimed = _added(store, found, msgspec.structs.replace(found.last, epoch=found.last.epoch + 1))
    if claimed is None:
        return False
    try:
        append_answer(store, found.stream, commit, is_again=True)
    except _REFUSALS:
        _added(store, claimed, msgspec.structs.replace(claimed.last, kind="leave", commit=None))
        return False
    ended = msgspec.structs.replace(claimed.last, kind="end", commit=msgspec.structs.replace(commit, draft=None))
    _added(store, claimed, ended)
    return True


def _added(store: LedgerStore, found: FoundLive, entry: LiveEntry) -> FoundLive | None:
    """Return the stream with one more entry; None where another writer was faster, or it is gone."""
    try:
        tail = store.live.add(found.key, found.tail, store.live.seal(found.key, found.tail.number + 1, entry))
    except (LiveChangedError, LiveAbsentError):
        return None
    return found._replace(last=entry, tail=tail)

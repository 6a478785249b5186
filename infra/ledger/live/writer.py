"""`LiveAnswer`: the writer of a live stream, and how one becomes a message: by its writer, or later in place of a writer that died."""

import contextlib
import threading
import time
import weakref
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from msgspec import UNSET, UnsetType

from chatledger.domain.chat.decide_messages import check_expected, check_message, is_same_message
from chatledger.domain.chat.live import (
    BEAT_S,
    SILENCE_S,
    LiveChunk,
    LiveCommit,
    LiveEntry,
    LiveStream,
    encode_live,
    live_key,
    unpacked_chunks,
)
from chatledger.domain.errors import (
    AlreadyExistsError,
    ChatledgerError,
    HeadConflictError,
    InvalidValueError,
    LedgerClosedError,
    LiveConflictError,
    LiveStreamNotFoundError,
    LogUnavailableError,
    NotFoundError,
    PayloadTooLargeError,
)
from chatledger.domain.values import Message
from chatledger.projections.log.kinds import CHATS

from ...log.live import FoundLive, LiveStreams
from ...log.live_storage import LiveAbsentError, LiveChangedError
from ...store.commands import ChatsToRead
from ..drafts import MessageLike, as_draft, text_message
from ..messages import Appending, stored_messages
from ..port import StorePort
from .pump import RECORD_BYTES, LivePump

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
        # Redacted again as a whole: what was held back of the stream may have been too short for a secret.
        draft = as_draft(text_message(stream.name, "".join(texts), commit.message_id))
        if store.redactor is not None:
            draft = store.redactor.message(draft)
    expected_head = commit.expected_heads[0] if commit.expected_heads else UNSET
    # A draft was redacted before the stream was closed with it.
    appending = Appending.of(draft, branch=commit.branch, expected_head=expected_head, redactor=None)
    try:
        written = store.execute(CHATS, stream.chat_id, appending.decide, kind=appending.kind)
        return stored_messages(store, stream.chat_id, appending.drafts, written)[0]
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


LINGER_S = 1.0
"""How long a dropped stream stays, so that its readers see the end."""
_JOIN_S: Final = 2 * BEAT_S


class LiveAnswer:
    """
    The writer of a live stream, such as an answer that grows token by token. Made by `Ledger.live`; use it with `with`.

    What is written can be read at once, by anybody who has the ledger. It ends with `commit`, which makes it one message, or
    `discard`. Left without either, also by an error, it is interrupted: its chunks can still be read, and somebody may take
    the stream over. Safe for threads.
    """

    def __init__(self, store: StorePort, stream: LiveStream, pump: LivePump, *, message_id: str) -> None:
        self._store, self._stream, self._pump, self._message_id = store, stream, pump, message_id
        self._ending = threading.Lock()
        self._commit: LiveCommit | None = None
        self._message: Message | None = None
        self._is_over = self._is_closed = self._is_uncertain = False
        # The thread of a writer that nobody has any more would let it seem alive for ever.
        weakref.finalize(self, pump.end)

    @property
    def chat_id(self) -> str:
        """The chat."""
        return self._stream.chat_id

    @property
    def id(self) -> str:
        """The id of the stream in its chat: what readers ask for."""
        return self._stream.id

    @property
    def epoch(self) -> int:
        """1 for the first writer of the stream, one more for each that took it over."""
        return self._pump.epoch

    @property
    def chunk_count(self) -> int:
        """The number of chunks that the stream has, with those of earlier writers and those that are about to be stored."""
        return self._pump.count

    def write(self, chunk: Any) -> None:
        """
        Add a chunk: text, bytes, or any other JSON value. It is stored within some milliseconds; `flush` waits for that.

        Raises:
            InvalidValueError: It is nothing of these, or larger than 256 KiB.
            PayloadTooLargeError: The log's server takes smaller messages only.
            LiveLimitError: The stream would exceed 64 MiB, or is a day old; what was written stays.
            LiveConflictError: It was taken over, or has ended.
            LiveStreamNotFoundError: It was dropped, or its chat deleted.
            LogUnavailableError: The log does not answer; this chunk was not taken in, and writing it again is safe.
        """
        self._pump.write(chunk)

    def write_nowait(self, chunk: Any) -> bool:
        """Do what `write` does if there is room at once; return whether there was."""
        return self._pump.write(chunk, may_wait=False)

    def flush(self) -> None:
        """Wait until everything that was written is stored. Raises what `write` raises."""
        self._pump.flush()

    def commit(self, message: MessageLike | None = None, *, expected_head: str | UnsetType | None = UNSET) -> Message:
        """
        End the stream as one message on its branch, and return that message.

        The stream is closed first, with the id of the message. If the process dies in between, taking the stream over or a
        `sweep` finishes it: there is one message in any case. Calling it again after an error is safe.

        Args:
            message: The message; None for the text that was written, in the role that the stream is named for. One without an
                id of its own gets that which readers were given, see `LiveReader.message_id`.
            expected_head: Only if the branch is still there, as in `append`. Of both arguments, in calls that follow one
                without an answer, those of the first count.

        Raises:
            InvalidValueError: No message is given, and chunks are not text; or it is none.
            PayloadTooLargeError: The message is too large to be closed with.
            LiveConflictError, LiveStreamNotFoundError: The stream was taken over, has ended, or is gone.
            HeadConflictError, BranchNotFoundError, ChatNotFoundError: As `append`; the stream is open as before.
            LogUnavailableError: No answer; call it again.
        """
        with self._ending:
            if self._message is not None:
                return self._message
            self._refuse_if_over()
            self._close_for(message, expected_head)
            assert self._commit is not None, "it was just set"
            try:
                self._message = append_answer(self._store, self._stream, self._commit, is_again=self._is_uncertain)
            except (LogUnavailableError, LedgerClosedError):
                self._is_uncertain = (
                    True  # the message may be on the log: the next call looks for it before it believes a refusal
                )
                raise
            except ChatledgerError:
                self._pump.send("open")
                self._commit, self._is_closed, self._is_uncertain = None, False, False
                self._pump.hold(is_held=False)
                raise
            self._is_over = True
            # The message is there: what goes wrong now is left to others.
            with contextlib.suppress(ChatledgerError):
                self._pump.send("end", commit=msgspec.structs.replace(self._commit, draft=None))
            self._pump.end()
            return self._message

    def _close_for(self, message: MessageLike | None, expected_head: str | UnsetType | None) -> None:
        """Close the stream for a message; for that of an earlier call, if its outcome is unknown."""
        if self._is_closed:
            return
        try:
            # Held before the flush, so that no chunk of another thread comes in between and is missing in the message.
            self._pump.hold()
            self._pump.flush()
            self._commit = self._commit or self._planned(message, expected_head)
        finally:
            self._pump.hold(is_held=self._commit is not None)
        self._pump.send("committing", commit=self._commit)
        self._is_closed = True

    def _planned(self, message: MessageLike | None, expected_head: str | UnsetType | None) -> LiveCommit:
        check_expected(expected_head, "expected_head")
        heads = () if isinstance(expected_head, UnsetType) else (expected_head,)
        if message is None:
            return LiveCommit(self._message_id, self._stream.branch, expected_heads=heads)
        draft = as_draft(message, default_id=self._message_id)
        if self._store.redactor is not None:
            draft = self._store.redactor.message(draft)
        if draft.id is None:
            msg = "a live stream becomes one message; append others by themselves"
            raise InvalidValueError(msg)
        plan = LiveCommit(draft.id, self._stream.branch, draft, heads)
        try:
            size = len(encode_live(LiveEntry("committing", 1, commit=plan))) + RECORD_BYTES
        except (TypeError, ValueError, msgspec.MsgspecError) as error:
            msg = f"the message cannot be stored: {error}"
            raise InvalidValueError(msg) from error
        limit = self._store.live.storage.max_entry_bytes
        if size > limit:
            raise PayloadTooLargeError(
                self.chat_id, size_bytes=size, limit_bytes=limit, what="the message of a live stream of chat"
            )
        return plan

    def discard(self) -> None:
        """
        End the stream without a message; its chunks are erased a second later. Calling it again does nothing.

        Raises:
            LiveConflictError: It was committed, or taken over.
            LogUnavailableError: No answer; call it again.
        """
        with self._ending:
            if self._is_over and self._message is None:
                return
            if self._message is not None or self._commit is not None:
                raise LiveConflictError(self.chat_id, self.id, status="committed")
            self._pump.drop_rest()
            with contextlib.suppress(
                LiveStreamNotFoundError
            ):  # its chat was deleted, or an attempt without an answer did it
                self._pump.send("end")
            self._is_over = True
            self._pump.end()
            dropping = threading.Thread(
                target=_drop_soon,
                args=(self._store.live, self._stream),
                name="chatledger-live-drop",
                daemon=True,
            )
            dropping.start()

    def close(self) -> None:
        """Leave the stream interrupted, unless it has ended; calling it again does nothing. What was written is stored first."""
        with self._ending:
            if self._is_over:
                return
            self._is_over = True
            self._pump.end()
            if self._pump.is_failed:
                return
            try:
                self._pump.flush()
                if self._commit is None:
                    self._pump.send("leave")
            finally:
                self._pump.join(_JOIN_S)

    def close_quietly(self) -> None:
        """Close, when there is something more important to report than a stream that could not be left properly."""
        with contextlib.suppress(ChatledgerError):
            self.close()

    def _refuse_if_over(self) -> None:
        if self._is_over:
            raise LiveConflictError(self.chat_id, self.id, status="closed here")

    def __enter__(self) -> Self:
        self._refuse_if_over()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.close_quietly()

    def __repr__(self) -> str:
        return f"<LiveAnswer {self.id!r} of {self.chat_id!r}, {self.chunk_count} chunks>"


def _drop_soon(streams: LiveStreams, stream: LiveStream) -> None:
    time.sleep(LINGER_S)
    with contextlib.suppress(ChatledgerError):
        streams.drop([live_key(stream.chat_id, stream.id)])

"""
The AI SDK, at `/api/chat`: what a route handler does for `loadChat`, `saveChat`, a turn of `useChat`, and resuming its stream.

A live stream is given as the UI message stream, version 1. A writer puts pieces of text on it, chunks of a UI message stream, or
both. Chunks, objects with a `type`, are passed on as they are. Pieces of text become a text part: `text-start`, `text-delta`,
`text-end`. Whatever else there is becomes a `data-chunk`. What the writer leaves out is added: `start` with the id that the message
will have, and `finish`, `abort` or `error` at the end.
"""

from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, Final, Literal

import msgspec
from starlette.responses import Response

from chatledger.domain.chat.live import LiveStatus
from chatledger.domain.context.messages import object_at
from chatledger.domain.errors import (
    AlreadyExistsError,
    ChatNotFoundError,
    ConflictError,
    LiveStreamNotFoundError,
    MessageNotFoundError,
    PayloadTooLargeError,
)
from chatledger.domain.values import Message
from chatledger.domain.wire import Value, encode_plain

from ....ledger.aio.live import AsyncLiveReader
from ....ledger.history import MessageHistory
from ....ledger.ledger import Ledger
from ....ledger.view import LedgerView
from ..contract import Contract
from ..routing import HttpCall, Limit, Route
from ..server_sent_events import EventStream, ServerSentEvent
from ..service import RUN_STREAM
from .saving import SavedChain, before, drafts_of, save_messages, shown

_HEADERS: Final = {"Cache-Control": "no-cache", "x-vercel-ai-ui-message-stream": "v1"}
_DONE: Final = ServerSentEvent(b"[DONE]")

_LAST: Final = frozenset({"finish", "abort", "error"})
_ENDS: Final[dict[LiveStatus, dict[str, str]]] = {
    "committing": {"type": "finish"},
    "committed": {"type": "finish"},
    "dropped": {"type": "abort"},
}
_LOST: Final = {"type": "error", "errorText": "the answer was interrupted: its writer is gone"}

UIMessages = Annotated[
    list[dict[str, Any]], msgspec.Meta(description="The AI SDK's `UIMessage[]`, the whole chat or its newest messages.")
]


class UseChatBody(msgspec.Struct, rename="camel"):
    """The body that `useChat` sends; a handler may send the newest messages alone."""

    messages: UIMessages = msgspec.field(default_factory=list[dict[str, Any]])
    trigger: Literal["submit-message", "regenerate-message", "resume-stream"] = "submit-message"
    message_id: str | None = None


class Saved(Value, frozen=True, kw_only=True):
    """
    The result of a save.

    Args:
        branch: The branch that has the messages.
        headMessageId: Its last message.
        ids: The ids under which the given messages are stored, in order: an edited one has another than it was given.
    """

    branch: str
    headMessageId: str | None  # noqa: N815 - as JavaScript writes it
    ids: list[str]


class TurnSaved(Saved, frozen=True, kw_only=True):
    """The stored messages of a turn, and all `messages` of the branch, which a model is to answer."""

    messages: list[dict[str, Any]]


def load_chat(
    call: HttpCall, chat_id: str, branch: str | None = None, limit: Limit | None = None
) -> list[dict[str, Any]]:
    """Read the messages of a chat as UIMessages, oldest first: those of the active branch, all or the newest ones."""
    return _shown(call.reader, chat_id, branch, limit)


def save_chat(call: HttpCall, chat_id: str, body: UIMessages) -> Saved:
    """
    Store the messages of a chat that are not there yet, and the chat, if it is not there.

    Saving the same messages again changes nothing. What is left out stays where it is.
    """
    saved = _saved(call, chat_id, body)
    return Saved(branch=saved.branch, headMessageId=saved.head_message_id, ids=saved.ids)


def take_turn(call: HttpCall, chat_id: str, body: UseChatBody) -> TurnSaved:
    """
    Store the messages of a turn, and return what the model is to answer.

    With the trigger `regenerate-message` a new branch begins before the answer that is to be replaced, and becomes the active
    one; the earlier answer stays on its branch. Doing it again before there is an answer changes nothing.
    """
    ledger = call.ledger
    saved = _saved(call, chat_id, body.messages)
    if body.trigger == "regenerate-message":
        with call.command("regenerate"):
            saved = _regenerated(ledger, chat_id, saved, body.message_id)
    messages = _shown(ledger, chat_id, saved.branch)
    return TurnSaved(branch=saved.branch, headMessageId=saved.head_message_id, ids=saved.ids, messages=messages)


def _shown(
    reader: Ledger | LedgerView, chat_id: str, branch: str | None, limit: int | None = None
) -> list[dict[str, Any]]:
    """The messages that count, as UIMessages: of an answer that grew its last state."""
    messages = MessageHistory(reader, chat_id, branch=branch).read(lambda history: history.newest(limit))
    if messages is None:
        raise ChatNotFoundError(chat_id)
    return [shown(message) for message in messages]


async def resume_stream(call: HttpCall, chat_id: str) -> Response:
    """
    Replay what is being written to a chat, from its beginning, as a UI message stream; 204 when nothing is.

    Of several live streams it is the one that was started last.
    """
    streams = [stream for stream in await call.async_ledger.list_live(chat_id) if stream.name != RUN_STREAM]
    active = [stream for stream in streams if stream.status in ("writing", "committing")]
    if not active:
        return Response(None, 204)
    reader = call.async_ledger.read_live(chat_id, active[-1].id)
    return EventStream(_replay(reader), stopping=call.service.stopping, headers=_HEADERS)


def _saved(call: HttpCall, chat_id: str, messages: list[dict[str, Any]]) -> SavedChain:
    drafts = drafts_of(messages)
    if call.ledger.get_chat(chat_id) is None:
        try:
            with call.command("create"):
                call.ledger.create_chat(chat_id, call.principal.owner)
        except AlreadyExistsError:  # made by another request at the same moment; or it is another user's
            if call.ledger.get_chat(chat_id) is None:
                raise
    with call.command("save"):
        return save_messages(call.ledger, chat_id, drafts)


def _regenerated(ledger: Ledger, chat_id: str, saved: SavedChain, message_id: str | None) -> SavedChain:
    """Return the branch on which a message is to be answered again."""
    # `useChat` takes the answer off its list before it asks for another one: the last message that it sends is the question.
    base = saved.ids[-1] if saved.ids else _question_of(ledger, chat_id, saved, message_id)
    if base == saved.head_message_id:
        return saved
    if base is not None:
        branch = ledger.fork(chat_id, base)
        return SavedChain(branch.name, base, saved.ids)
    # An answer that was the first message of the chat: there is no message to fork at.
    names = {branch.name for branch in ledger.list_branches(chat_id)}
    name = next(name for number in range(2, len(names) + 3) if (name := f"{saved.branch}-v{number}") not in names)
    ledger.create_branch(chat_id, name, None, activate=True)
    return SavedChain(name, None, saved.ids)


def _question_of(ledger: Ledger, chat_id: str, saved: SavedChain, message_id: str | None) -> str | None:
    """The id of the message that an answer follows; of any other message than an answer, its own."""
    sought = saved.head_message_id if message_id is None else message_id
    answer: Message | None = None if sought is None else ledger.get_message(sought)
    if answer is None or answer.chat_id != chat_id:
        raise MessageNotFoundError(sought or "", chat_id=chat_id)
    return before(ledger, answer) if answer.name == "assistant" else answer.id


class UIChunks:
    """
    Turns what is on a live stream into chunks of a UI message stream.

    Args:
        message_id: The id that the message will have; None where it is not known.
    """

    def __init__(self, message_id: str | None = None) -> None:
        self.message_id = message_id
        self._texts = 0
        self._is_started = self._is_text_open = self._is_over = False

    def take(self, data: Any) -> Iterator[dict[str, Any]]:
        """Return the chunks for one more piece of the stream."""
        chunk = dict(object_at(data))
        if not isinstance(chunk.get("type"), str):
            chunk = {}
        if not self._is_started:
            self._is_started = True
            start = {"type": "start"} | ({} if self.message_id is None else {"messageId": self.message_id})
            if chunk.get("type") == "start":
                chunk = start | chunk
            else:
                yield start
        if isinstance(data, str):
            yield from self._text(data)
            return
        yield from self._end_text()
        self._is_over = self._is_over or chunk.get("type") in _LAST
        yield chunk or {"type": "data-chunk", "data": b64encode(data).decode() if isinstance(data, bytes) else data}

    def end(self, status: LiveStatus | None) -> Iterator[dict[str, Any]]:
        """Return the chunks for the end of the stream."""
        yield from self._end_text()
        if not self._is_over:
            yield _LOST if status is None else _ENDS.get(status, _LOST)

    def _text(self, text: str) -> Iterator[dict[str, Any]]:
        if not self._is_text_open:
            self._texts += 1
            self._is_text_open = True
            yield {"type": "text-start", "id": self._text_id}
        yield {"type": "text-delta", "id": self._text_id, "delta": text}

    def _end_text(self) -> Iterator[dict[str, Any]]:
        if self._is_text_open:
            self._is_text_open = False
            yield {"type": "text-end", "id": self._text_id}

    @property
    def _text_id(self) -> str:
        return f"text-{self._texts}"


async def _replay(reader: AsyncLiveReader) -> AsyncIterator[ServerSentEvent]:
    """Yield a live stream from its beginning to its end as the events of a UI message stream."""
    chunks = UIChunks()
    try:
        async with reader:
            chunks.message_id = reader.message_id
            async for piece in reader:
                for chunk in chunks.take(piece.data):
                    yield _event(chunk)
        status = reader.status
    except LiveStreamNotFoundError:  # it ended, and was dropped, since it was found
        status = None
    for chunk in chunks.end(status):
        yield _event(chunk)
    yield _DONE


def _event(chunk: dict[str, Any]) -> ServerSentEvent:
    return ServerSentEvent(encode_plain(chunk))


_ROUTES: Final = [
    Route("GET", "/{chat_id}", load_chat, raises=[ChatNotFoundError]),
    Route("PUT", "/{chat_id}", save_chat, raises=[ConflictError, PayloadTooLargeError]),
    Route("POST", "/{chat_id}/messages", take_turn, raises=[ConflictError, MessageNotFoundError, PayloadTooLargeError]),
    Route("GET", "/{chat_id}/stream", resume_stream, is_strict=False),
]
AI_SDK: Final = Contract("/api/chat", _ROUTES)

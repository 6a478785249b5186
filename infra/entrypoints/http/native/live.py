"""Live streams: what is being written now, such as the tokens of an answer, for all to read while it grows."""

from itertools import islice
from typing import Annotated, Any, Final

import msgspec
from starlette.responses import Response

from chatledger.domain.chat.live import KEEP_S, MAX_LIVE_AGE_S, LiveChunk, LiveStream
from chatledger.domain.errors import (
    AlreadyExistsError,
    BranchNotFoundError,
    ChatNotFoundError,
    HeadConflictError,
    LiveConflictError,
    LiveLimitError,
    LiveStreamNotFoundError,
    MessageConflictError,
    PayloadTooLargeError,
)
from chatledger.domain.values import Message
from chatledger.domain.wire import Value

from ....ledger.live import LiveAnswer
from ..routing import IDEMPOTENCY_KEY, HttpCall, Limit, Route, existing, head_of
from ..server_sent_events import Events, event_of
from .chats import Deleted, get_chat
from .messages import MessageBody

Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1, description="Only chunks with larger numbers.")]


class NewLive(msgspec.Struct, forbid_unknown_fields=True):
    """
    A live stream to be started. `name` is the role of the message that it is to become, on `branch`.

    It is dropped when it was interrupted for `keep_s` seconds.
    """

    name: str = "assistant"
    id: str | None = None
    branch: str | None = None
    keep_s: Annotated[float, msgspec.Meta(gt=0, le=MAX_LIVE_AGE_S)] = KEEP_S


class Epoch(msgspec.Struct, forbid_unknown_fields=True):
    """The `epoch` of who writes, as the start or the take-over answered it: whoever took the stream over has a later one."""

    epoch: int


class Chunks(Epoch, forbid_unknown_fields=True):
    """Chunks to be added: texts, or other JSON values."""

    chunks: Annotated[list[Any], msgspec.Meta(min_length=1, max_length=10_000)]


class LiveEnd(Epoch, forbid_unknown_fields=True):
    """The message that a stream becomes; without one, the text that was written. A message without an `id` gets the id that readers know already."""

    message: MessageBody | None = None


class Written(Value, frozen=True):
    """A stream as its writer knows it: how many chunks it has, all of them stored."""

    chat_id: str
    id: str
    epoch: int
    chunk_count: int


def list_live(call: HttpCall, chat_id: str) -> list[LiveStream]:
    """List the live streams of a chat, the oldest first; also those that have just ended."""
    get_chat(call, chat_id)
    return call.ledger.list_live(chat_id)


def start_live(call: HttpCall, chat_id: str, body: NewLive | None = None) -> Written:
    """
    Start a live stream.

    The server writes it as long as requests come; after a minute without one the stream is interrupted. Where several processes
    serve, the requests that write one stream go to the one that started it, as those of one connection do.
    """
    new, key = body or NewLive(), call.header(IDEMPOTENCY_KEY)
    stream_id = call.named_by_key(chat_id) if new.id is None else new.id
    writers, user_id = call.service.writers, call.principal.user_id
    writers.check_room(user_id)
    try:
        writer = call.ledger.live(chat_id, name=new.name, id=stream_id, branch=new.branch, keep_s=new.keep_s)
    except AlreadyExistsError:
        # A request that is repeated, as its answer was lost, gets the stream that it began; of anybody else the id is taken.
        begun = None if key is None or stream_id is None else writers.begun(chat_id, stream_id, key)
        if begun is None:
            raise
        return _written(begun)
    writers.keep(writer, user_id, key)
    return _written(writer)


def get_live(call: HttpCall, chat_id: str, stream_id: str) -> LiveStream:
    """Read how a live stream stands."""
    return existing(call.ledger.get_live(chat_id, stream_id), LiveStreamNotFoundError, chat_id, stream_id)


def read_live(call: HttpCall, chat_id: str, stream_id: str, after: Number = 0, limit: Limit = 1000) -> list[LiveChunk]:
    """
    Read the chunks of a live stream.

    With `Accept: text/event-stream` they are streamed as they come, with their numbers as `id:`; `Last-Event-ID` goes on after
    it. The last event is `end`, with the stream as it stands: `committed`, `dropped`, or `interrupted`, when its writer went.
    """
    with call.ledger.read_live(chat_id, stream_id, after=after, follow=False) as reader:
        return list(islice(reader, limit))


async def stream_live(call: HttpCall, chat_id: str, stream_id: str, after: int = 0, limit: int = 0) -> Response:
    """Stream the chunks of a live stream as they come."""
    del limit
    reader = call.async_ledger.read_live(chat_id, stream_id, after=after if call.last_id is None else call.last_id)
    await reader.__aenter__()  # now, so that a stream that is not there is a 404, and not an event of a 200
    end = Events(
        reader,
        lambda chunk: event_of(chunk, id=chunk.number),
        close=reader.close,
        at_end=lambda: event_of({"status": reader.status, "position": reader.position}, name="end"),
    )
    return await call.stream(end)


def write_live(call: HttpCall, chat_id: str, stream_id: str, body: Chunks) -> Written:
    """Add chunks to a live stream. They are stored when this answers."""
    writers = call.service.writers
    writer = writers.writer(call.ledger, chat_id, stream_id, body.epoch)
    writers.write(writer, body.chunks, call.header(IDEMPOTENCY_KEY))
    return _written(writer)


def commit_live(call: HttpCall, chat_id: str, stream_id: str, body: LiveEnd) -> Message:
    """
    End a live stream as one message. Repeating it answers the same message.

    With `If-Match: "<message id>"` only if that message is at the head of the branch now; otherwise the stream stays open.
    """
    writers = call.service.writers
    writer = writers.writer(call.ledger, chat_id, stream_id, body.epoch)
    message = writer.commit(None if body.message is None else body.message.new(), expected_head=head_of(call))
    writers.end(writer)
    return message


def discard_live(call: HttpCall, chat_id: str, stream_id: str, body: Epoch) -> Deleted:
    """End a live stream without a message; its chunks are erased."""
    writers = call.service.writers
    writer = writers.writer(call.ledger, chat_id, stream_id, body.epoch)
    writer.discard()
    writers.end(writer)
    return Deleted(deleted=True)


def take_over_live(call: HttpCall, chat_id: str, stream_id: str, body: Epoch) -> Written:
    """
    Go on with a live stream whose writer died or went.

    `epoch` is that of the stream as it was read; of several who try, one succeeds. The answer has the new one.
    """
    writers, user_id = call.service.writers, call.principal.user_id
    return _written(writers.take_over(call.ledger, chat_id, stream_id, body.epoch, user_id))


def _written(writer: LiveAnswer) -> Written:
    return Written(writer.chat_id, writer.id, writer.epoch, writer.chunk_count)


_NOT_FOUND: Final = (ChatNotFoundError, LiveStreamNotFoundError)
_PATH: Final = "/chats/{chat_id}/live"
_ONE: Final = _PATH + "/{stream_id}"

ROUTES: Final = {
    "live": [
        Route("GET", _PATH, list_live, has_moment=False, raises=[ChatNotFoundError]),
        Route(
            "POST",
            _PATH,
            start_live,
            status=201,
            raises=[ChatNotFoundError, BranchNotFoundError, AlreadyExistsError],
            statuses=[429],
        ),
        Route("GET", _ONE, get_live, has_moment=False, raises=[LiveStreamNotFoundError]),
        Route(
            "GET", _ONE + "/chunks", read_live, stream=stream_live, has_moment=False, raises=[LiveStreamNotFoundError]
        ),
        Route(
            "POST",
            _ONE + "/chunks",
            write_live,
            raises=[*_NOT_FOUND, LiveConflictError, LiveLimitError, PayloadTooLargeError],
        ),
        Route(
            "POST",
            _ONE + "/commit",
            commit_live,
            has_head=True,
            raises=[
                *_NOT_FOUND,
                BranchNotFoundError,
                LiveConflictError,
                HeadConflictError,
                MessageConflictError,
                PayloadTooLargeError,
            ],
        ),
        Route("POST", _ONE + "/discard", discard_live, raises=[*_NOT_FOUND, LiveConflictError]),
        Route("POST", _ONE + "/take-over", take_over_live, raises=[*_NOT_FOUND, LiveConflictError], statuses=[429]),
    ],
}

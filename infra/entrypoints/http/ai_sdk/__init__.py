"""
The AI SDK, at `/api/chat`: what a route handler does for `loadChat`, `saveChat`, a turn of `useChat`, and resuming its stream.

A live stream is given as the UI message stream, version 1. A writer puts pieces of text on it, chunks of a UI message stream, or
both. Chunks, objects with a `type`, are passed on as they are. Pieces of text become a text part: `text-start`, `text-delta`,
`text-end`. Whatever else there is becomes a `data-chunk`. What the writer leaves out is added: `start` with the id that the message
will have, and `finish`, `abort` or `error` at the end.

Saving a whole chat of the AI SDK: of the messages that a client holds, those are stored that are not there yet.

A client has one list and replaces what it edits. Here messages never change: what follows an earlier message than the last one,
or takes the place of a stored one, goes to a new branch, which becomes the active one. An edited message keeps its id at the client;
its stored id has a hash of its content behind it, so that the same list, saved again, is found again.

An answer that grows, as where tools run in the browser, is no edit: its next state follows the one before it, in whose place it stands.
"""

from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, cast
from uuid import uuid4

import msgspec
import xxhash
from msgspec import UNSET
from starlette.responses import Response

from chatledger.domain.chat.live import LiveStatus
from chatledger.domain.chat.save import Save
from chatledger.domain.context.messages import is_ui_message
from chatledger.domain.errors import (
    AlreadyExistsError,
    ChatNotFoundError,
    ConflictError,
    HeadConflictError,
    InvalidValueError,
    LiveStreamNotFoundError,
    MessageNotFoundError,
    PayloadTooLargeError,
)
from chatledger.domain.forms.plain import object_at
from chatledger.domain.forms.reading import ui_message_of
from chatledger.domain.limits import check_id
from chatledger.domain.packing import ordered_json
from chatledger.domain.values import UI, Branch, Message, NewMessage
from chatledger.domain.wire import Value, encode_plain

from ....ledger.aio.live import AsyncLiveReader
from ....ledger.history import Commit, MessageHistory
from ....ledger.ledger import Ledger
from ....ledger.view import LedgerView
from ..contract import Contract
from ..routing import HttpCall, Limit, Route
from ..server_sent_events import EventStream, ServerSentEvent
from ..service import RUN_STREAM

_ROLES: Final = ("system", "user", "assistant")
_FINAL: Final = ("output-available", "output-error", "output-denied")
"""The states of parts of tools that have a result."""


class SavedChain(NamedTuple):
    """The stored form of a list of messages: the branch that has them, and their ids there, in order."""

    branch: str
    head_message_id: str | None
    ids: list[str]


def shown(message: Message) -> dict[str, Any]:
    """Return a stored message as a UIMessage, under the id that it is stored with."""
    return ui_message_of(message.form, message.data, message.name, message.id)


def drafts_of(messages: Sequence[Mapping[str, Any]]) -> list[NewMessage]:
    """Return UIMessages as they are to be stored; refuse what is none, and an id that is given twice."""
    drafts: list[NewMessage] = []
    for position, message in enumerate(messages):
        message_id: Any = message.get("id")
        if not is_ui_message(message) or message["role"] not in _ROLES or not isinstance(message_id, str):
            msg = f"message {position} is no UIMessage: it needs an `id`, a `role` of {', '.join(_ROLES)}, and `parts`"
            raise InvalidValueError(msg)
        drafts.append(NewMessage(message["role"], dict(message), UI, id=check_id(message_id, "message id")))
    if len({draft.id for draft in drafts}) < len(drafts):
        msg = "messages have ids of their own; one of these is given twice"
        raise InvalidValueError(msg)
    return drafts


def save_messages(ledger: Ledger, chat_id: str, drafts: Sequence[NewMessage]) -> SavedChain:
    """Store the messages that are not there yet: one commit, all or nothing."""
    branch = ledger.get_active_branch(chat_id)
    if branch is None:
        raise ChatNotFoundError(chat_id)
    ids = _stored_ids(ledger, chat_id, drafts)
    rest = drafts[len(ids) :]
    if not rest:
        return SavedChain(branch.name, branch.head_message_id, ids)
    head = None if branch.head_message_id is None else ledger.get_message(branch.head_message_id)
    if head is not None and _is_earlier(ledger, head, rest[0], ids):
        return _grown(ledger, branch, head, rest, ids)
    is_behind = head is not None and _is_left_out(head) and _follows(ledger, head, ids)
    is_elsewhere = bool(ids) and ids[-1] != branch.head_message_id and not is_behind
    save = Save(
        drafts=tuple(rest),
        spare_ids=tuple(_spare_id(draft) for draft in rest),
        branch=branch.name,
        read_head=branch.head_message_id,
        on_conflict="raise",
        branch_id=str(uuid4()),
        after=ids[-1] if is_elsewhere else UNSET,
    )
    result = ledger.save(chat_id, save)
    return SavedChain(result.branch, result.head_message_id, ids + result.message_ids)


def _stored_ids(ledger: Ledger, chat_id: str, drafts: Sequence[NewMessage]) -> list[str]:
    """The ids under which the first messages are stored, as many as follow one another in the order of the client's list."""
    ids: list[str] = []
    for draft in drafts:
        stored = next((each for each in _candidates(ledger, chat_id, draft) if _follows(ledger, each, ids)), None)
        if stored is None:
            break
        ids.append(stored.id)
    return ids


def _candidates(ledger: Ledger, chat_id: str, draft: NewMessage) -> list[Message]:
    messages = [ledger.get_message(message_id) for message_id in (str(draft.id), _spare_id(draft))]
    return [
        message
        for message in messages
        if message is not None and message.chat_id == chat_id and _content(shown(message)) == _content(draft.data)
    ]


def _follows(ledger: Ledger, message: Message, ids: Sequence[str]) -> bool:
    return not ids or before(ledger, message) == ids[-1]


def before(ledger: Ledger | LedgerView, message: Message) -> str | None:
    """Return the message before one, without those that are hidden, and earlier states of an answer."""
    at = message.parent_id
    while at is not None and (earlier := ledger.get_message(at)) is not None and _is_left_out(earlier):
        at = earlier.parent_id
    return at


def _is_left_out(message: Message) -> bool:
    annotation = message.annotation
    return annotation is not None and (annotation.hidden or annotation.replaced_by is not None)


def _is_earlier(ledger: Ledger, head: Message, draft: NewMessage, ids: Sequence[str]) -> bool:
    """Whether the last message of a branch is an earlier state of an answer that a client sends."""
    if draft.name != "assistant" or head.id.partition("~")[0] != draft.id or not _follows(ledger, head, ids):
        return False
    stored, now = shown(head), draft.data
    if {**stored, "id": "", "parts": [], "metadata": None} != {**now, "id": "", "parts": [], "metadata": None}:
        return False
    pairs = list(zip(stored["parts"], now["parts"], strict=False))
    return len(pairs) == len(stored["parts"]) and all(_goes_on(earlier, other) for earlier, other in pairs)


def _goes_on(part: Any, later: Any) -> bool:
    """Whether a part is an earlier state of another one: the same, a text that is still written, or a call that has no result yet."""
    old, new = object_at(part), object_at(later)
    if ordered_json(_settled(part)) == ordered_json(_settled(later)):
        return True
    if old.get("type") != new.get("type"):
        return False
    if "toolCallId" in old:
        is_open = old.get("state") not in _FINAL
        return is_open and old["toolCallId"] == new.get("toolCallId") and old.get("toolName") == new.get("toolName")
    return old.get("state") == "streaming" and str(new.get("text")).startswith(str(old.get("text")))


def _grown(ledger: Ledger, branch: Branch, head: Message, drafts: Sequence[NewMessage], ids: list[str]) -> SavedChain:
    """Append the next state of an answer, which takes the place of the one before, and the other messages after it."""
    grown = msgspec.structs.replace(drafts[0], id=_spare_id(drafts[0]))

    def grow(commit: Commit) -> list[str]:
        # Whether this state is the next one was judged by the head that was read; after another one it may be an edit.
        if commit.head() != head.id:
            raise HeadConflictError(branch.chat_id, branch.name, expected=head.id, actual=commit.head())
        added = commit.append(commit.with_free_ids([grown, *drafts[1:]]))
        commit.annotate([head.id], replaced_by=added[0].id)
        return [message.id for message in added]

    added = MessageHistory(ledger, branch.chat_id, branch=branch.name).commit(grow)
    if added is None:  # carried out before, under the key of the request
        added = [grown.id or "", *(str(draft.id) for draft in drafts[1:])]
    return SavedChain(branch.name, added[-1], ids + added)


def _content(message: Mapping[str, Any]) -> bytes:
    """The content by which messages are compared, without the id."""
    # A part's state `done` is no content: clients add it at the end of a stream, and stored messages do not have it.
    parts = [_settled(part) for part in cast("list[Any]", message["parts"])]
    return ordered_json({**message, "id": "", "parts": parts})


def _settled(part: Any) -> Any:
    fields = object_at(part)
    return {key: value for key, value in fields.items() if key != "state"} if fields.get("state") == "done" else part


def _spare_id(draft: NewMessage) -> str:
    message_id, digest = str(draft.id), xxhash.xxh3_64_hexdigest(_content(draft.data))
    return f"{message_id}~{digest}"


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
    """Turns what is on a live stream into chunks of a UI message stream."""

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

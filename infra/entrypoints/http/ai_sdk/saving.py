"""
Saving a whole chat of the AI SDK: of the messages that a client holds, those are stored that are not there yet.

A client has one list and replaces what it edits. Here messages never change: what follows an earlier message than the last one,
or takes the place of a stored one, goes to a new branch, which becomes the active one. An edited message keeps its id at the client;
its stored id has a hash of its content behind it, so that the same list, saved again, is found again.

An answer that grows, as where tools run in the browser, is no edit: its next state follows the one before it, in whose place it stands.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast
from uuid import uuid4

import msgspec
import xxhash
from msgspec import UNSET

from chatledger.domain.chat.save import Save
from chatledger.domain.context.messages import is_ui_message, object_at
from chatledger.domain.errors import ChatNotFoundError, HeadConflictError, InvalidValueError
from chatledger.domain.forms.reading import ui_message_of
from chatledger.domain.limits import check_id
from chatledger.domain.packing import ordered_json
from chatledger.domain.values import UI, Branch, Message, NewMessage

from ....ledger.history import Commit, MessageHistory
from ....ledger.ledger import Ledger
from ....ledger.view import LedgerView

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
    """
    Return UIMessages as they are to be stored.

    Raises:
        InvalidValueError: One of them is no UIMessage, or an id is given twice.
    """
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
    """
    Store the messages that are not there yet: one commit, all or nothing.

    Raises:
        ChatNotFoundError: There is no such chat.
        HeadConflictError: Another writer changed the branch at the same moment; trying again is safe.
    """
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

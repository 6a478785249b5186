"""
Saving a whole chat of the AI SDK: of the messages that a client holds, those are stored that are not there yet.

A client has one list and replaces what it edits. Here messages never change: what follows an earlier message than the last one,
or takes the place of a stored one, goes to a new branch, which becomes the active one. An edited message keeps its id at the client;
its stored id has a hash of its content behind it, so that the same list, saved again, is found again.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast
from uuid import uuid4

import msgspec
import xxhash
from msgspec import UNSET

from chatledger.domain.chat.save import Save
from chatledger.domain.context.formats.stored import as_ui_message
from chatledger.domain.context.messages import is_ui_message, object_at
from chatledger.domain.errors import ChatNotFoundError, InvalidValueError
from chatledger.domain.limits import check_id
from chatledger.domain.values import UI, Message, NewMessage

from ....ledger.ledger import Ledger

_ROLES: Final = ("system", "user", "assistant")


class Kept(NamedTuple):
    """The stored form of a list of messages: the branch that has them, and their ids there, in order."""

    branch: str
    head_message_id: str | None
    ids: list[str]


def shown(message: Message) -> dict[str, Any]:
    """Return a stored message as a UIMessage, under the id that it is stored with."""
    return {**as_ui_message(message.name, message.data, message.form), "id": message.id}


def drafts_of(given: Sequence[Mapping[str, Any]]) -> list[NewMessage]:
    """
    Return UIMessages as they are to be stored.

    Raises:
        InvalidValueError: One of them is no UIMessage, or an id is given twice.
    """
    drafts = [_draft_of(message, position) for position, message in enumerate(given)]
    if len({draft.id for draft in drafts}) < len(drafts):
        msg = "messages have ids of their own; one of these is given twice"
        raise InvalidValueError(msg)
    return drafts


def save_messages(ledger: Ledger, chat_id: str, drafts: Sequence[NewMessage]) -> Kept:
    """
    Store the messages that are not there yet: one commit, all or nothing.

    Raises:
        ChatNotFoundError: There is no such chat.
        HeadConflictError: Somebody else wrote to the branch at the same moment; trying again is safe.
    """
    branch = ledger.get_active_branch(chat_id)
    if branch is None:
        raise ChatNotFoundError(chat_id)
    ids = _stored_ids(ledger, chat_id, drafts)
    rest = drafts[len(ids) :]
    if not rest:
        return Kept(branch.name, branch.head_message_id, ids)
    is_elsewhere = bool(ids) and ids[-1] != branch.head_message_id
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
    return Kept(result.branch, result.head_message_id, ids + result.message_ids)


def _draft_of(given: Mapping[str, Any], position: int) -> NewMessage:
    message_id: Any = given.get("id")
    if not is_ui_message(given) or given["role"] not in _ROLES or not isinstance(message_id, str):
        msg = f"message {position} is no UIMessage: it needs an `id`, a `role` of {', '.join(_ROLES)}, and `parts`"
        raise InvalidValueError(msg)
    return NewMessage(given["role"], dict(given), UI, id=check_id(message_id, "message id"))


def _stored_ids(ledger: Ledger, chat_id: str, drafts: Sequence[NewMessage]) -> list[str]:
    """The ids under which the first messages are stored, as many as follow one another as they are given."""
    ids: list[str] = []
    for draft in drafts:
        found = next((each for each in _candidates(ledger, chat_id, draft) if _follows(each, ids)), None)
        if found is None:
            break
        ids.append(found.id)
    return ids


def _candidates(ledger: Ledger, chat_id: str, draft: NewMessage) -> list[Message]:
    found = [ledger.get_message(message_id) for message_id in (str(draft.id), _spare_id(draft))]
    return [
        message
        for message in found
        if message is not None and message.chat_id == chat_id and _content(shown(message)) == _content(draft.data)
    ]


def _follows(message: Message, ids: Sequence[str]) -> bool:
    return not ids or message.parent_id == ids[-1]


def _content(message: Mapping[str, Any]) -> bytes:
    """The content by which messages are compared: without the id, and whether or not a client has seen all parts to their end."""
    parts = [_settled(part) for part in cast("list[Any]", message["parts"])]
    return msgspec.json.encode({**message, "id": "", "parts": parts}, order="deterministic")


def _settled(part: Any) -> Any:
    fields = object_at(part)
    return {key: value for key, value in fields.items() if key != "state"} if fields.get("state") == "done" else part


def _spare_id(draft: NewMessage) -> str:
    message_id, digest = str(draft.id), xxhash.xxh3_64_hexdigest(_content(draft.data))
    return f"{message_id}~{digest}"

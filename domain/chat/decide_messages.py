"""Decisions on messages. Messages never change: an id that is stored already is either the same message or refused."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import UNSET, UnsetType

from ..errors import (
    BranchNotFoundError,
    ChatledgerError,
    ChatNotFoundError,
    HeadConflictError,
    InvalidValueError,
    MessageConflictError,
    MessageNotFoundError,
    ParentNotFoundError,
    SelfParentError,
    WrongChatError,
)
from ..forms.detect import form_of, is_of_form
from ..limits import check_id, check_time, data_copy, json_copy, same_json
from ..packing import pack
from ..values import OWNER, UI, AnyHead, Branch, Message, NewMessage
from .decide_chats import decide_update_chat, require_chat
from .events import Body, MessagesAppended
from .redaction import redaction_in
from .state import ChatState


def decide_append(
    state: ChatState,
    now: int,
    *,
    drafts: Sequence[NewMessage],
    branch: str | None,
    expected_head: str | UnsetType | None,
    skips_stored: bool = False,
    chat_metadata: dict[str, Any] | None = None,
) -> list[Body]:
    """
    Messages chained onto the head of a branch, which moves to the last of them; and metadata merged over the chat's.

    Drafts have ids. Nothing when all of them are stored already, one after the other, on the branch's chain: so a call
    that is repeated, because its answer was lost, changes nothing. With `skips_stored` each that is on the chain is left out.

    Raises:
        ChatNotFoundError, BranchNotFoundError: There is no such chat or branch.
        HeadConflictError: The branch is not at `expected_head`, or not at the parent that the first message names.
        ParentNotFoundError, WrongChatError: That parent is not stored, or in another chat.
        MessageConflictError: An id is stored with other content or elsewhere.
        InvalidValueError: A value breaks a rule.
    """
    if expected_head is not UNSET:
        check_expected(expected_head, "expected_head")
    messages = [check_message(draft, now) for draft in drafts]
    target = find_branch(state, branch)
    if len(messages) > 1:
        state.look_up(message.id for message in messages)
    # Looked for once: whether a message repeats a stored one, and whether its id is taken, are the same question.
    stored = {message.id: state.message(message.id) for message in messages}
    if skips_stored:
        messages = [message for message in messages if not _is_stored_chain(state, [message], stored, target)]
    described = [] if chat_metadata is None else decide_update_chat(state, merged_metadata=chat_metadata)
    if not drafts:
        return described
    if not messages or (stored[messages[0].id] is not None and _is_stored_chain(state, messages, stored, target)):
        return []
    head = parent_id = target.head_message_id
    if expected_head is not UNSET and expected_head != head:
        raise HeadConflictError(state.chat_id, target.name, expected=expected_head, actual=head)
    chained: list[Message] = []
    for message in messages:
        if message.parent_id == message.id:
            raise SelfParentError(message.id)
        if stored[message.id] is not None:
            raise MessageConflictError(message.id, chat_id=state.chat_id)
        if state.is_elsewhere(message.id):
            raise MessageConflictError(message.id, chat_id=state.chat_id, other_chat=True)
        if message.parent_id is not None and message.parent_id != parent_id:
            if not chained:
                raise _misplaced(state, message.id, message.parent_id, target)
            msg = (
                f"message {message.id!r} names the parent {message.parent_id!r}, but is appended behind {parent_id!r}; "
                "messages with parents of their own are added, not appended"
            )
            raise InvalidValueError(msg)
        if message.reply_to is not None or message.merged_from:
            check_references(state, message, stored)
        chained.append(msgspec.structs.replace(message, parent_id=parent_id))
        stored[message.id] = message  # for the next ones of the call: an id that is given twice is a conflict, too
        parent_id = message.id
    return [MessagesAppended(tuple(chained), target.number, head, parent_id), *described]


def check_expected(head: Any, what: str) -> None:
    """Raise `InvalidValueError` unless it is the id of a message, None for an empty branch, or says that any will do."""
    if not isinstance(head, str | UnsetType | AnyHead | None):
        hint = "; give its id" if isinstance(head, Message) else ""
        msg = f"{what} must be the id of a message, or None for an empty branch, not {type(head).__name__}{hint}"
        raise InvalidValueError(msg)


def _misplaced(state: ChatState, message_id: str, parent_id: str, target: Branch) -> ChatledgerError:
    """The error about a message to append that names another parent than the head."""
    if not state.has_message(parent_id):
        if state.is_elsewhere(parent_id):
            return WrongChatError(parent_id, chat_id=state.chat_id)
        return ParentNotFoundError(message_id, parent_id=parent_id, chat_id=state.chat_id)
    return HeadConflictError(
        state.chat_id,
        target.name,
        expected=parent_id,
        actual=target.head_message_id,
        advice="appending goes on from the head: read it again if it moved, fork, or add the message instead, for another parent",
    )


def decide_add_messages(state: ChatState, drafts: Sequence[NewMessage], *, now: int) -> list[Body]:
    """
    Messages with explicit parents, moving no head. Those that are stored already with equal content are left out.

    Raises:
        ChatNotFoundError: There is no such chat.
        SelfParentError, ParentNotFoundError: A parent is the message itself, or stored neither in this chat nor earlier
            in the call.
        MessageConflictError: An id is stored with other content, or in another chat.
        InvalidValueError: A value breaks a rule.
    """
    require_chat(state)
    added = missing_messages(state, drafts, now=now)
    return [MessagesAppended(tuple(added))] if added else []


def missing_messages(state: ChatState, drafts: Sequence[NewMessage], *, now: int) -> list[Message]:
    """Return the messages that the chat does not have yet, checked as by `decide_add_messages`."""
    added: dict[str, Message] = {}
    messages = [check_message(draft, now) for draft in drafts]
    state.look_up(message.id for message in messages)
    for message in messages:
        if message.parent_id == message.id:
            raise SelfParentError(message.id)
        # The earlier ones of this call too: a message that is given twice is one message.
        stored = added.get(message.id) or state.message(message.id)
        if stored is not None:
            if stored.parent_id != message.parent_id or not is_same_message(stored, message):
                raise MessageConflictError(message.id, chat_id=state.chat_id)
            continue
        if state.is_elsewhere(message.id):
            raise MessageConflictError(message.id, chat_id=state.chat_id, other_chat=True)
        parent_id = message.parent_id
        if parent_id is not None and parent_id not in added and not state.has_message(parent_id):
            raise ParentNotFoundError(message.id, parent_id=parent_id, chat_id=state.chat_id)
        if message.reply_to is not None or message.merged_from:
            check_references(state, message, added)
        added[message.id] = message
    return list(added.values())


def check_message(draft: Any, now: int, *, is_owned: bool = False) -> Message:
    """The message that a draft describes, checked and copied, its data unless they are owned; without its chat and with the parent as given."""
    if not isinstance(draft, NewMessage):
        msg = f"expected a NewMessage, not {type(draft).__name__}; chatledger.user(text) makes one from text"
        raise InvalidValueError(msg)
    message_id = check_id(draft.id, "message id")
    what = f"message {message_id!r}"
    if draft.sender_id is not None and draft.agent_id is not None:
        msg = f"{what} has both sender_id and agent_id; it comes from a human or from an agent"
        raise InvalidValueError(msg)
    for field in ("parent_id", "type", "sender_id", "agent_id", "reply_to", "copied_from"):
        value = getattr(draft, field)
        if value is not None and value != "message":  # the type of nearly all
            check_id(value, f"{field} of {what}")
    data: Any = draft.data
    form = form_of(data) if draft.form is UNSET else draft.form
    if not is_of_form(data, form):
        msg = f"data of {what} must be an object, as the form {form!r} has it, not {type(data).__name__}"
        raise InvalidValueError(msg)
    if form is not None:
        check_id(form, f"form of {what}")
    notes = None if draft.metadata is None else _notes_of(draft.metadata, what)
    return Message(
        id=message_id,
        parent_id=draft.parent_id,
        name=check_id(draft.name, f"name of {what}"),
        type=draft.type,
        data=data if is_owned else data_copy(data, f"data of {what}"),
        created_at=now if draft.created_at is None else check_time(draft.created_at, f"created_at of {what}"),
        sender_id=draft.sender_id,
        agent_id=draft.agent_id,
        reply_to=draft.reply_to,
        copied_from=draft.copied_from,
        merged_from=check_merged(draft.merged_from, what) if draft.merged_from else (),
        form=form,
        notes=notes,
        redacted=None if notes is None else redaction_in(notes),
    )


def check_merged(parents: Any, what: str) -> tuple[str, ...]:
    """Return the further parents of a message. Raises `InvalidValueError` unless they are different ids."""
    if not isinstance(parents, tuple | list):
        msg = f"merged_from of {what} must be a tuple of message ids, not {type(parents).__name__}"
        raise InvalidValueError(msg)
    ids = tuple(check_id(parent, f"merged_from of {what}") for parent in cast("Sequence[Any]", parents))
    if len(set(ids)) < len(ids):
        msg = f"merged_from of {what} names a message twice"
        raise InvalidValueError(msg)
    return ids


def _notes_of(metadata: Any, what: str) -> dict[str, Any] | None:
    if not isinstance(metadata, dict):
        msg = f"metadata of {what} must be an object, not {type(metadata).__name__}"
        raise InvalidValueError(msg)
    return json_copy(cast("dict[str, Any]", metadata), f"metadata of {what}") or None


def is_same_message(a: Message, b: Message) -> bool:
    """Whether name, type, form, data, attribution and the notes of the writer are equal; parent and time are not looked at."""
    ours = (a.name, a.type, a.form, a.sender_id, a.agent_id, a.reply_to, a.merged_from)
    theirs = (b.name, b.type, b.form, b.sender_id, b.agent_id, b.reply_to, b.merged_from)
    # The form counts: equal data in two forms are read as two different messages.
    # Content that is gone cannot be compared, and its form went with it.
    if a.redacted is not None or b.redacted is not None:
        return ours[:2] + ours[3:] == theirs[:2] + theirs[3:]
    if ours != theirs or not same_json(notes_of_writer(a), notes_of_writer(b)):
        return False
    if pack(a.data) == pack(b.data):
        return True
    if a.form != UI:
        return same_json(a.data, b.data)
    # The id of a UIMessage is the id of the message: one that was stored under another is told under that.
    return same_json(*({key: value for key, value in message.data.items() if key != "id"} for message in (a, b)))


def notes_of_writer(message: Message) -> dict[str, Any]:
    """Notes of the writer of a message, without those of this library."""
    return {key: value for key, value in (message.notes or {}).items() if key != OWNER}


def find_branch(state: ChatState, name: str | None) -> Branch:
    """The branch of that name, the active one for None. Raises `ChatNotFoundError` or `BranchNotFoundError`."""
    record = state.record
    if record is None:
        raise ChatNotFoundError(state.chat_id)
    name = record.active_branch if name is None else check_id(name, "branch")
    stored = state.branch(name)
    if stored is None:
        raise BranchNotFoundError(state.chat_id, name)
    return stored


def _is_stored_chain(
    state: ChatState, messages: Sequence[Message], stored: Mapping[str, Message | None], branch: Branch
) -> bool:
    """Whether these messages follow one another on the branch's chain already; `stored` has what the chat has under their ids."""
    previous: Message | None = None
    for message in messages:
        same = stored[message.id]
        if same is None or not is_same_message(same, message):
            return False
        if message.parent_id is not None and message.parent_id != same.parent_id:
            return False
        if previous is not None and same.parent_id != previous.id:
            return False
        previous = same
    head = branch.head_message_id
    return previous is not None and head is not None and state.is_ancestor(previous.id, head)


def check_references(state: ChatState, message: Message, earlier: Mapping[str, Message | None]) -> None:
    """
    Look whether the chat has what a message answers and what it merges, or the call `earlier`.

    A message comes after all its parents, so no order of merges makes a circle.

    Raises:
        MessageNotFoundError: The chat has no such message.
        SelfParentError: It merges itself.
    """
    if message.id in message.merged_from:
        raise SelfParentError(message.id)
    for target in (message.reply_to, *message.merged_from):
        if target is not None and earlier.get(target) is None and not state.has_message(target):
            raise MessageNotFoundError(target, chat_id=state.chat_id)

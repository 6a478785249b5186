"""Saves: what one is asked for and says, and the decision which messages are new, which are edits, and where they are chained."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import msgspec
from msgspec import UNSET, UnsetType

from ..context.fitting import Omitted
from ..errors import (
    AmbiguousEditError,
    HeadConflictError,
    InvalidValueError,
    MessageConflictError,
    MessageNotFoundError,
    WrongChatError,
)
from ..limits import check_choice, check_id, check_ids
from ..values import UI, Branch, Chat, Message, NewMessage
from ..wire import Value
from .decide_branches import check_target
from .decide_messages import check_expected, check_message, check_references, find_branch, is_same_message
from .events import Body, BranchCreated, MessagesAppended
from .fork import next_name
from .state import ChatState, next_branch_number

OnConflict = Literal["rebase", "fork", "raise"]
"""The action of a save when the branch moved since it was read: go on from its present head, branch off from the old one, or refuse."""


class Save(msgspec.Struct, frozen=True, kw_only=True):
    """
    Messages to save on a branch.

    Args:
        drafts: New and edited messages in order, each with an id, no id twice.
        spare_ids: For each draft the id that it gets if it is an edit, whose own id is taken.
        branch: The name of the branch.
        read_head: The head that the writer has seen, None for an empty branch; UNSET when any will do.
        on_conflict: What to do when the head is another one now.
        branch_id: The id of the branch, if one is made.
        after: A stored message that the drafts follow on a new branch, None for a new root. UNSET for the head of `branch`.
    """

    drafts: tuple[NewMessage, ...]
    spare_ids: tuple[str, ...]
    branch: str
    read_head: str | UnsetType | None = UNSET
    on_conflict: OnConflict = "rebase"
    branch_id: str
    after: str | UnsetType | None = UNSET


class SaveResult(Value, frozen=True, kw_only=True):
    """
    The result of a save.

    Args:
        head_message_id: The head of the branch now; None when it is empty.
        branch: The branch that was written to: another than before when messages were edited.
        message_ids: The ids of the given messages as they are stored, in order; of skipped ones too, which were stored before.
        id_map: From the id that was given to the id that it is stored under, of each message that got another one.
    """

    head_message_id: str | None
    branch: str
    message_ids: list[str]
    id_map: dict[str, str]


class SavePreview(Value, frozen=True, kw_only=True):
    """
    The chain as it would be after a save; `saved` of its messages, the last ones, are not stored yet.

    `for_model` are those of it that a model gets: without hidden ones, and with others in place of replaced ones. `read_head` is the head that the branch of the save has at this moment.

    Where the chain was to fit a model, both begin with the window that does, `omitted` says what comes before it, `tokens`
    are those of its messages if there was a limit of them, and `uncounted` the parts whose tokens only a provider knows.
    """

    read_head: str | None
    branch: str
    head_message_id: str | None
    messages: list[Message]
    for_model: list[Message]
    saved: int
    omitted: Omitted | None = None
    tokens: int | None = None
    uncounted: int = 0


class Foreseen(Value, frozen=True, kw_only=True):
    """
    The messages that a save would add, without the chain that it adds to.

    Args:
        chat: The chat as it is.
        read_head: The head that the branch of the save has at this moment.
        base: The id of the stored message that the first new one follows; None for a new root.
        new: The messages that are not stored yet, as they would be.
    """

    chat: Chat
    read_head: str | None
    base: str | None
    new: list[Message]


def decide_save(state: ChatState, save: Save, *, now: int, target: Branch | None = None) -> list[Body]:
    """
    One commit for a whole save; messages never change, so an edit makes a branch.

    A draft whose id is stored on the branch's chain with equal content is skipped: nothing when that holds for all. One
    that is stored with other content is an edit: it gets its spare id, and the save goes to one new branch, which begins
    at the parent of the earliest edited message and becomes the active one. With `after`, it goes to a new branch there, or
    where an earlier message is edited. Everything else is chained onto the head.
    `target` is the branch of the save in this state, if it was read.

    Raises:
        ChatNotFoundError, BranchNotFoundError: There is no such chat or branch.
        AmbiguousEditError: The edited messages, and `after`, do not lie on one chain.
        HeadConflictError: The branch moved since it was read, and `on_conflict` is `raise`.
        WrongChatError: An id is used in another chat.
        MessageConflictError: A spare id is taken.
        MessageNotFoundError: `after`, a `reply_to`, or with `fork` the head that was read, is not in the chat.
        InvalidValueError: A value breaks a rule.
    """
    _check_save(save)
    target = target or find_branch(state, save.branch)
    heads = [target.head_message_id]
    if save.after is not UNSET:
        check_target(state, save.after)
        heads.append(save.after)
    edits: list[Message] = []
    fresh: list[Message] = []
    new_ids: dict[str, str] = {}
    for draft, spare_id in zip(save.drafts, save.spare_ids, strict=True):
        message = check_message(draft, now)
        stored = state.message(message.id)
        if stored is None:
            if state.is_elsewhere(message.id):
                raise WrongChatError(message.id, chat_id=state.chat_id)
        else:
            if not _says_the_same(stored, message):
                edits.append(stored)
            elif any(head is not None and state.is_ancestor(message.id, head) for head in heads):
                continue
            # An edit, or a message of another branch: its own id is taken.
            new_ids[message.id] = spare_id
            message = msgspec.structs.replace(message, id=spare_id)
            if state.has_message(spare_id) or state.is_elsewhere(spare_id):
                raise MessageConflictError(spare_id, chat_id=state.chat_id)
        fresh.append(message)
    if not fresh:
        return []
    expected, actual = save.read_head, target.head_message_id
    if save.on_conflict == "raise" and expected is not UNSET and expected != actual:
        raise HeadConflictError(target.chat_id, target.name, expected=expected, actual=actual)
    created = _new_branch(state, save, target, edits, now=now)
    branch = target if created is None else created
    chained = _chained(state, fresh, branch.head_message_id, new_ids)
    appended = MessagesAppended(tuple(chained), branch.number, branch.head_message_id, chained[-1].id)
    return [appended] if created is None else [created, appended]


def save_result(save: Save, bodies: Iterable[Body], *, head_message_id: str | None) -> SaveResult:
    """Return the result of a save from its events; `head_message_id` is that of its branch, for a save without events."""
    bodies = list(bodies)
    appended = [body for body in bodies if isinstance(body, MessagesAppended)]
    created = next((body for body in bodies if isinstance(body, BranchCreated)), None)
    stored = {message.id for body in appended for message in body.messages}
    new_ids = {
        str(draft.id): spare_id if spare_id in stored else str(draft.id)
        for draft, spare_id in zip(save.drafts, save.spare_ids, strict=True)
    }
    return SaveResult(
        head_message_id=appended[-1].to_head if appended else head_message_id,
        branch=save.branch if created is None else created.shown_name,
        message_ids=list(new_ids.values()),
        id_map={old_id: new_id for old_id, new_id in new_ids.items() if old_id != new_id},
    )


def _says_the_same(stored: Message, message: Message) -> bool:
    """Whether this is the stored message, with or without its reminders."""
    if is_same_message(stored, message):
        return True
    from ..context.reminders import strip_reminders

    stripped = strip_reminders(stored.data) if stored.form == UI else stored.data
    return stripped is not stored.data and is_same_message(msgspec.structs.replace(stored, data=stripped), message)


def _check_save(save: Save) -> None:
    check_choice(save.on_conflict, get_args(OnConflict), "on_conflict")
    check_id(save.branch_id, "branch_id")
    check_ids(save.spare_ids, "spare_ids")
    check_expected(save.read_head, "read_head")
    drafts: Any = save.drafts
    if not isinstance(drafts, tuple | list):
        msg = f"drafts must be a tuple of messages, not {type(drafts).__name__}"
        raise InvalidValueError(msg)
    if len(save.spare_ids) != len(save.drafts):
        msg = f"a save of {len(save.drafts)} drafts needs as many spare ids, not {len(save.spare_ids)}"
        raise InvalidValueError(msg)
    ids: set[str] = set()
    for draft in save.drafts:
        message_id = check_id(getattr(draft, "id", None), "message id")
        if message_id in ids:
            msg = f"message {message_id!r} is given twice in one save; give its last form only"
            raise InvalidValueError(msg)
        ids.add(message_id)


def _new_branch(
    state: ChatState, save: Save, target: Branch, edits: Sequence[Message], *, now: int
) -> BranchCreated | None:
    """Return the new branch that the save goes to; None if it stays on its own."""
    if save.after is not UNSET:
        head = save.after if not edits else _earlier(state, save.after, _earliest(state, edits))
    elif edits:
        head = _earliest(state, edits).parent_id
    elif save.on_conflict == "fork" and save.read_head is not UNSET and save.read_head != target.head_message_id:
        head = save.read_head
        if head is not None and not state.has_message(head):
            raise MessageNotFoundError(head, chat_id=state.chat_id)
    else:
        return None
    name = next_name(
        target.name, named_after=state.branches_named_after, is_taken=lambda name: state.branch(name) is not None
    )
    return BranchCreated(next_branch_number(state), save.branch_id, name, head, now, is_active=True)


def _earliest(state: ChatState, edits: Sequence[Message]) -> Message:
    """Return the edited message nearest to the root; all of them must lie on one chain."""
    earliest = deepest = edits[0]
    for edit in edits[1:]:
        if state.is_ancestor(deepest.id, edit.id):
            deepest = edit
        elif not state.is_ancestor(edit.id, deepest.id):
            msg = (
                f"messages {deepest.id!r} and {edit.id!r} of chat {state.chat_id!r} are edited in one save, but do not lie "
                "on one chain; save the edits one by one"
            )
            raise AmbiguousEditError(msg)
        if state.is_ancestor(edit.id, earliest.id):
            earliest = edit
    return earliest


def _earlier(state: ChatState, after: str | None, edit: Message) -> str | None:
    """Return where a save begins that goes on after a message and edits another one, both on one chain."""
    begin = edit.parent_id
    if after is None or begin is None:
        return None
    if state.is_ancestor(after, begin):
        return after
    if state.is_ancestor(edit.id, after):
        return begin
    msg = (
        f"message {edit.id!r} of chat {state.chat_id!r} is edited in one save with what goes on after message {after!r}, but "
        "they do not lie on one chain; save the edit by itself"
    )
    raise AmbiguousEditError(msg)


def _chained(state: ChatState, messages: Iterable[Message], head: str | None, new_ids: dict[str, str]) -> list[Message]:
    """The messages, each the parent of the next, with answers to edited messages following them to their new ids."""
    earlier: dict[str, Message] = {}
    chained: list[Message] = []
    for message in messages:
        reply_to = message.reply_to
        if reply_to is not None and new_ids.get(reply_to) in earlier:
            reply_to = new_ids[reply_to]
        message = msgspec.structs.replace(message, parent_id=head, reply_to=reply_to)  # noqa: PLW2901 - the same message
        check_references(state, message, earlier)
        chained.append(message)
        head = message.id
        earlier[message.id] = message
    return chained

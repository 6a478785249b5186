"""Decisions on merges: what a branch came to is brought to another one, whose next message names it as a further parent."""

from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET
from msgspec.structs import replace

from ..errors import HeadConflictError, InvalidValueError
from ..values import Message, NewMessage
from ..wire import Value
from .decide_branches import decide_move_head
from .decide_messages import decide_append, find_branch
from .events import Body
from .interchange import draft_of
from .runs import copy_id
from .state import ChatState

MergeHow = Literal["summary", "pick", "rebase"]
"""The messages that a merge appends: a summary of the other branch, copies of chosen messages of it, or copies of all its messages."""


class PlannedMerge(Value, frozen=True, kw_only=True):
    """
    A merge to be decided.

    Args:
        id: A new id, from which those of the copies follow.
        source_head: The message to merge, with its chain.
        into: The name of the branch that goes on.
        how: What is appended.
        summary: The message to append, for `summary`.
        summed_up_behind: The message behind which the summary begins; None where it begins with the root of the chain.
        pick: The ids of the messages to copy, in order, for `pick`.
    """

    id: str
    source_head: str
    into: str
    how: MergeHow
    summary: NewMessage | None = None
    summed_up_behind: str | None = None
    pick: tuple[str, ...] = ()


def decide_merge(state: ChatState, now: int, merge: PlannedMerge) -> list[Body]:
    """
    Messages behind the head of a branch, the last of which names the head of another one in `merged_from`.

    A rebase of a branch that only goes on from the head moves that. Nothing where the branch has all of the other one already: so a
    call that is repeated, because its answer was lost, changes nothing.

    Raises:
        ChatNotFoundError, BranchNotFoundError: There is no such chat or branch.
        HeadConflictError: A part of what was summed up was merged meanwhile.
        InvalidValueError: A message to pick is not among those to be merged, or there is none to copy; or a value breaks a rule.
    """
    head = find_branch(state, merge.into).head_message_id
    source = merge.source_head
    base = merged_up_to(state, source, head)
    if base == source:
        return []
    if merge.how == "summary":
        if base != merge.summed_up_behind:
            advice = "a part of what was summed up was merged meanwhile; merge again"
            raise HeadConflictError(
                state.chat_id, merge.into, expected=merge.summed_up_behind, actual=base, advice=advice
            )
        assert merge.summary is not None, "a summary is planned with its message"
        drafts = [merge.summary]
    elif merge.how == "rebase" and (head is None or state.is_ancestor(head, source)):
        return decide_move_head(state, merge.into, source, expected=head)
    else:
        tail = unmerged(state, source, base)
        if merge.how == "rebase" and head is not None and tail:
            # What was copied there from this branch, by a merge the other way, would come back as a copy of a copy.
            tail = [
                message
                for message in tail
                if (original := message.copied_from) is None
                or not state.has_message(original)
                or state.merge_base(original, head) != original
            ]
            if not tail:
                return []
        drafts = _copies(state, tail, merge)
    others = (parent for parent in drafts[-1].merged_from if parent != source)  # which a summary may name by itself
    drafts[-1] = replace(drafts[-1], merged_from=(source, *others))
    return decide_append(state, now, drafts=drafts, branch=merge.into, expected_head=UNSET)


def merged_up_to(state: ChatState, source_head: str, head: str | None) -> str | None:
    """Return the last message of a chain that another head is, or comes after by way of its chain and its merges."""
    return None if head is None else state.merge_base(source_head, head, is_on_chain=True)


def unmerged(state: ChatState, source_head: str, base: str | None) -> list[Message]:
    """Return the messages of a chain behind one of its messages, oldest first, without those that are hidden."""
    depth = -1 if base is None else state.depth(base)
    return [message for message in state.chain(source_head, state.depth(source_head) - depth) if not message.is_hidden]


def _copies(state: ChatState, tail: Sequence[Message], merge: PlannedMerge) -> list[NewMessage]:
    originals = {message.id: message for message in tail}
    ids = merge.pick if merge.how == "pick" else tuple(originals)
    for message_id in ids:
        if message_id not in originals:
            msg = (
                f"message {message_id!r} is not among the {len(originals)} that branch {merge.into!r} of chat {state.chat_id!r} does not have "
                "yet and that are not hidden; pick of these"
            )
            raise InvalidValueError(msg)
    if not ids:
        msg = (
            f"all that could be copied to branch {merge.into!r} of chat {state.chat_id!r} is hidden; sum it up instead"
        )
        raise InvalidValueError(msg)
    new_ids = {message_id: copy_id(merge.id, message_id) for message_id in ids}
    return [
        replace(
            draft_of(original := originals[message_id]),
            id=new_id,
            parent_id=None,
            reply_to=None if original.reply_to is None else new_ids.get(original.reply_to, original.reply_to),
            copied_from=message_id,
            merged_from=(),
        )
        for message_id, new_id in new_ids.items()
    ]

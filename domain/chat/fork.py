"""Forks: names of new branches, and a new chat that begins with the messages of another one up to a message."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ..errors import ChatExistsError
from ..limits import MAX_ID_BYTES, check_metadata
from ..values import MAIN, Message
from .decide_import import decide_import
from .events import Body
from .interchange import ImportedBranch, ImportedChat, ImportedMessage, renamed
from .redaction import notes_of_copy
from .state import ChatState

_ROOM: Final = 24  # `-v` and the digits of any number
_GENERATED: Final = re.compile(r"(-v\d+)+$")
_TWICE_GENERATED: Final = re.compile(r"(.+?)(-v\d+){2,}", re.DOTALL)


def bases_of(name: str) -> list[str]:
    """The names for which a branch `name` counts when the next automatic name is chosen: itself, and each part before `-v`."""
    bases = [name]
    at = name.find("-v", 1)
    while at != -1:
        bases.append(name[:at])
        at = name.find("-v", at + 1)
    return bases


def next_name(base: str, *, named_after: Callable[[str], int], is_taken: Callable[[str], bool]) -> str:
    """
    The name of the next branch made from branch `base`: `<base>-v<N+1>`, or the next free number.

    N counts the branches that are named `base` or start with `<base>-v`, with those that were renamed or deleted since: so
    the number is free as a rule, and no name is given twice. From a base with two generated endings (`main-v2-v2`) counting
    goes on at its first name (`main-v7`), so that names stay short. A base that is too long to extend is cut.
    """
    twice = _TWICE_GENERATED.fullmatch(base)
    if twice is not None:
        base = twice[1]
    if len(base.encode()) + _ROOM > MAX_ID_BYTES:
        base = _GENERATED.sub("", base).encode()[: MAX_ID_BYTES - _ROOM].decode(errors="ignore")
    number = named_after(base) + 1
    while is_taken(name := f"{base}-v{number}"):
        number += 1
    return name


BRANCHED_FROM: Final = "branched_from"
BRANCHED_FROM_CHAT: Final = "branched_from_chat"
"""The metadata entries of a forked chat: the message up to which it was copied, and the chat of that."""


class PlannedFork(msgspec.Struct, frozen=True, kw_only=True):
    """A fork to be made: the `chain` of a message of the chat `source_id`, and the new chat with its owner."""

    source_id: str
    chain: Sequence[Message]
    user_id: str
    title: str | None
    metadata: dict[str, Any] | None = None

    @property
    def links(self) -> dict[str, Any]:
        """The metadata of the new chat about its origin."""
        return {BRANCHED_FROM: self.chain[-1].id, BRANCHED_FROM_CHAT: self.source_id}


def decide_fork_chat(
    state: ChatState, fork: PlannedFork, *, new_ids: Mapping[str, str], branch_id: str, now: int
) -> list[Body]:
    """
    The new chat with copies of the messages and of their annotations. Nothing when this fork was made already.

    What a copy says of messages that are not copied is left out: a reply, the heads that it merges, or the message that replaces it.

    `new_ids`: for each message the id of its copy. `now`: the time in ms.

    Raises:
        ChatExistsError: There is another chat of that id.
        InvalidValueError: A value breaks a rule.
    """
    metadata = {**(check_metadata(fork.metadata) or {}), **fork.links}
    profile = state.profile
    if profile is not None:
        stored = profile.metadata or {}
        # A call that is repeated, because its answer was lost, finds its own chat: the same owner and the same origin.
        if profile.user_id == fork.user_id and all(stored.get(name) == value for name, value in fork.links.items()):
            return []
        raise ChatExistsError(state.chat_id)
    chat = ImportedChat(
        id=state.chat_id,
        user_id=fork.user_id,
        title=fork.title,
        metadata=metadata,
        messages=tuple(_copied(message, new_ids) for message in fork.chain),
        branches=(ImportedBranch(name=MAIN, head_message_id=fork.chain[-1].id),),  # active, as the only one
    )
    copy = renamed(chat, state.chat_id, new_ids)
    originals = {copy_id: original_id for original_id, copy_id in new_ids.items()}
    messages = [msgspec.structs.replace(message, copied_from=originals[message.id]) for message in copy.messages]
    return decide_import(state, msgspec.structs.replace(copy, messages=tuple(messages)), ids=[branch_id], now=now)


def _copied(message: Message, new_ids: Mapping[str, str]) -> ImportedMessage:
    annotation = message.annotation
    if annotation is not None and annotation.replaced_by not in new_ids:
        annotation = msgspec.structs.replace(annotation, replaced_by=None)
    return ImportedMessage(
        id=message.id,
        parent_id=message.parent_id,
        name=message.name,
        data=message.data,
        type=message.type,
        created_at=message.created_at,
        sender_id=message.sender_id,
        agent_id=message.agent_id,
        reply_to=message.reply_to if message.reply_to in new_ids else None,
        merged_from=tuple(parent for parent in message.merged_from if parent in new_ids),
        annotation=annotation,
        form=message.form,
        notes=notes_of_copy(message),
    )

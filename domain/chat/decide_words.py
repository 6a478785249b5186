"""The decision to take earlier words of a chat out of the log: titles, metadata, annotations, names, that others took the place of."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from ..errors import InvalidValueError
from .decide_chats import require_chat
from .decide_redact import MAX_TARGETS, check_reason
from .events import (
    Body,
    BranchActivated,
    BranchCreated,
    BranchDeleted,
    BranchRenamed,
    ChatCreated,
    ChatUpdated,
    CheckpointDeleted,
    CheckpointSet,
    ContentRedacted,
    HeadMoved,
    MessagesAnnotated,
    Recorded,
    RunChanged,
    RunRecorded,
    stand_in,
)
from .redaction import HEAD_CONTENT
from .state import ChatState

WORDY: Final[tuple[type[Body], ...]] = (
    *(ChatCreated, ChatUpdated, MessagesAnnotated, RunRecorded, RunChanged),
    *(BranchCreated, BranchActivated, BranchRenamed, BranchDeleted, HeadMoved),
    *(CheckpointSet, CheckpointDeleted),
)
"""The events that have such words."""

_Thing = tuple[str, str]
"""The subject of words, which stand until another event says something about the same."""


def decide_redact_words(state: ChatState, events: Iterable[Recorded], *, reason: str | None) -> list[Body]:
    """
    Words of a chat that others took the place of are taken away. Nothing when there are none.

    What stands is written anew first where an event has it beside what was replaced: they are in one slot, which goes as a whole.

    `events`: those of the chat with words, in their order, up to now or shortly before: what was replaced then is so now.
    `reason`: why, in words that may stay.

    Raises:
        ChatNotFoundError: There is no such chat.
        InvalidValueError: The reason breaks a rule, or a branch is called as one whose name goes would be.
    """
    record = require_chat(state)
    check_reason(reason)
    wordy = [
        recorded
        for recorded in events
        if recorded.version >= record.first_version and HEAD_CONTENT not in recorded.event.redacted
    ]
    said_anew, described = _described(state, wordy)
    renamed, named = _named(state, wordy)
    dropped = [
        recorded.version
        for recorded in wordy
        if isinstance(body := recorded.body, CheckpointSet | CheckpointDeleted)
        and (body.name is None or state.checkpoint(body.name) is None)
    ]
    versions = sorted((*described, *named, *dropped))
    bodies = [*said_anew, *renamed]
    for start in range(0, len(versions), MAX_TARGETS):
        targets = tuple((version, (HEAD_CONTENT,)) for version in versions[start : start + MAX_TARGETS])
        bodies.append(ContentRedacted((), targets, "request", None, reason))
    return bodies


def _described(state: ChatState, wordy: Sequence[Recorded]) -> tuple[list[Body], list[int]]:
    """Return the versions that lose what describes the chat, its messages and runs, and the event that says anew what stands of it."""
    profile = state.profile
    assert profile is not None, "a chat with a record has a profile"
    last = {thing: recorded.version for recorded in wordy for thing in _words(recorded.body)}
    things_by_version = {
        recorded.version: things
        for recorded in wordy
        if (things := [thing for thing, words in _words(recorded.body).items() if words])
    }
    of_chat: dict[str, Any] = {"user_id": profile.user_id, "title": profile.title, "metadata": profile.metadata}
    anew: list[Body] = []
    for version, things in things_by_version.items():
        if things[0][0] == "chat" and len({last[thing] == version for thing in things}) > 1:
            anew = [ChatUpdated(of_chat)]
    if anew:
        last |= {("chat", name): wordy[-1].version + 1 for name in of_chat}
    # A note that was put on several messages at once stays as long as it stands for one of them.
    return anew, [
        version for version, things in things_by_version.items() if all(last[thing] > version for thing in things)
    ]


def _words(body: Body) -> dict[_Thing, Any]:
    """The words of an event, by what they are about; None where it takes others away."""
    if isinstance(body, ChatCreated):
        return {("chat", name): getattr(body, name) for name in body.CONTENT}
    if isinstance(body, ChatUpdated):
        return {("chat", name): body.changes[name] for name in body.CONTENT if name in body.changes}
    if isinstance(body, MessagesAnnotated) and "metadata" in body.changes:
        return {("message", message_id): body.changes["metadata"] for message_id in body.message_ids}
    if isinstance(body, RunRecorded):
        return {("run", body.run.run_id): body.metadata}
    return (
        {("run", body.run_id): body.changes["metadata"]}
        if isinstance(body, RunChanged) and "metadata" in body.changes
        else {}
    )


def _named(state: ChatState, wordy: Sequence[Recorded]) -> tuple[list[Body], list[int]]:
    """
    Return the versions that lose names which no branch has any more, and the events that say anew what branches are called.

    Raises:
        InvalidValueError: A branch has a name that stands for one which goes.
    """
    versions: list[int] = []
    last_lost: dict[int, bool] = {}
    """Whether the event that named a branch last loses its words."""
    for recorded in wordy:
        body = recorded.body
        match body:
            case BranchRenamed(number=number, name=name, new_name=new_name):
                names = {name, new_name}
            case BranchCreated(number=number, name=name) | BranchActivated(number=number, name=name):
                names = {name}
            case BranchDeleted(number=number, name=name) | HeadMoved(number=number, branch=name):
                names = {name}
            case _:
                continue
        branch = state.numbered_branch(number)
        is_lost = branch is None or names != {branch.name}
        if is_lost:
            versions.append(recorded.version)
        if isinstance(body, BranchCreated | BranchRenamed):
            last_lost[number] = is_lost
    for number in last_lost:
        if state.branch(stand_in(number)) is not None:
            msg = (
                f"branch {stand_in(number)!r} of chat {state.chat_id!r} has the name that stands for an erased one in earlier moments; "
                "rename it first, and call again"
            )
            raise InvalidValueError(msg)
    branches = [state.numbered_branch(number) for number, is_lost in last_lost.items() if is_lost]
    return [
        BranchRenamed(branch.number, branch.name, branch.name) for branch in branches if branch is not None
    ], versions

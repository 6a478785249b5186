"""
Appending a batch of entries to the chat of a transcript, in one commit.

A turn follows the turn that its `parentUuid` leads to. Where that is the head of a branch, the branch goes on; elsewhere a new
branch begins, which becomes the active one: that is how edits, rewinds and compactions look in a transcript. Calls that ran
in parallel draw forks too, which are none: their parts stand one after the other. Bookkeeping goes to a branch of its own, and
each of its messages replies to the turn that it belongs to.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from chatledger.domain.context.messages import object_at
from chatledger.domain.errors import InvalidValueError, PayloadTooLargeError
from chatledger.domain.limits import check_metadata
from chatledger.domain.values import Message

from ....ledger.history import Commit
from .entries import BOOKKEEPING_BRANCH, EntryDraft, answer_id, entry_of, is_bookkeeping, is_result, title_in, uuid_of

SUMMARY: Final = "claude_summary"
"""The key in the metadata of a chat of its summary, and of the number of messages that the chat had then."""
_MOST_STEPS: Final = 500

Fold = Callable[[Mapping[str, Any] | None, Sequence[Mapping[str, Any]]], dict[str, Any]]
"""The state of a summary, None for the first, and further entries, to the state after them."""


class EntryBatch(NamedTuple):
    """Entries to append to a transcript: their drafts, the metadata of its chat, and what folds its summary."""

    drafts: Sequence[EntryDraft]
    metadata: Mapping[str, Any]
    fold: Fold | None

    def append(self, commit: Commit) -> None:
        """Append the entries that are not there yet, by their uuids, and describe the chat."""
        commit.state.look_up(draft.message.id or "" for draft in self.drafts)
        added: dict[str, EntryDraft] = {}
        for number, draft in enumerate(self.drafts):
            message_id = draft.message.id or str(number)
            if message_id not in added and (draft.uuid is None or not commit.has(message_id)):
                added[message_id] = draft
        if not added:
            return
        drafts = list(added.values())
        title, metadata = self._title(commit, drafts), self._described(commit, drafts)
        is_new = commit.begin(title=title, metadata=metadata)
        for draft in drafts:
            _append(commit, draft)
        if not is_new:
            commit.describe(metadata=metadata, title=UNSET if title is None else title)

    def _described(self, commit: Commit, added: Sequence[EntryDraft]) -> dict[str, Any]:
        metadata, state = dict(self.metadata), commit.state
        if self.fold is not None:
            before = object_at({} if state.profile is None else state.profile.metadata, SUMMARY)
            count = 0 if state.record is None else state.record.message_count
            # A summary of fewer messages than there are was left behind by whatever else wrote.
            is_current = before.get("messages") == count
            if is_current or not count:
                folded = self.fold(before["data"] if is_current else None, [draft.entry for draft in added])
                summary = {SUMMARY: {"data": folded, "messages": count + len(added)}}
                with contextlib.suppress(InvalidValueError, PayloadTooLargeError):  # the SDK makes another one then
                    metadata |= check_metadata(summary) or {}
        return metadata

    def _title(self, commit: Commit, added: Sequence[EntryDraft]) -> str | None:
        """The title that the chat gets: the last that was given, or its first prompt."""
        titles = [(title, is_named) for title, is_named in map(title_in, added) if title is not None]
        names = [title for title, is_named in titles if is_named]
        has_title = commit.state.profile is not None and commit.state.profile.title is not None
        return names[-1] if names else titles[0][0] if titles and not has_title else None


def _append(commit: Commit, draft: EntryDraft) -> None:
    """Chain an entry to where it belongs, on the chat as it is after those before it."""
    parent = _parent(commit, draft)
    if draft.is_turn:
        commit.append([draft.message], branch=_branch_of(commit, draft, parent))
        return
    # Beside the turns: readers of the active branch see what was said, and nothing else.
    if not commit.has_branch(BOOKKEEPING_BRANCH):
        commit.create_branch(None, name=BOOKKEEPING_BRANCH, activate=False)
    commit.append([msgspec.structs.replace(draft.message, reply_to=parent)], branch=BOOKKEEPING_BRANCH)


def _parent(commit: Commit, draft: EntryDraft) -> str | None:
    """The turn that an entry follows: the newest where it names none, or one that is not known."""
    if "parentUuid" not in draft.entry:
        return commit.head()
    uuid = draft.entry["parentUuid"]
    if uuid is None:
        return None
    message = commit.message(f"{commit.state.chat_id}:{uuid}")
    if message is not None:
        return message.reply_to if is_bookkeeping(message) else message.id
    at = commit.head()
    for _ in range(_MOST_STEPS):  # something else wrote it: looked for near the end of the active branch
        message = None if at is None else commit.message(at)
        if message is None or uuid_of(message) == uuid:
            break
        at = message.parent_id
    else:
        at = None
    return at or commit.head()


def _branch_of(commit: Commit, draft: EntryDraft, parent: str | None) -> str:
    """The branch that a turn goes to, which is made if there is none."""
    active, head = commit.active_branch, commit.head()
    if not draft.is_aside and (parent == head or _is_parallel(commit, draft, parent, head)):
        return active
    if draft.is_aside and parent == head and head is None:
        return active
    name = None if parent is None else commit.branch_ending_at(parent)
    if name is None or (name == active and draft.is_aside):
        return commit.create_branch(parent, activate=not draft.is_aside)
    if not draft.is_aside:
        commit.activate(name)
    return name


def _is_parallel(commit: Commit, draft: EntryDraft, parent: str | None, head: str | None) -> bool:
    """Whether only results of tools, and parts of the same answer, stand between the parent of an entry and the head."""
    if parent is None or head is None:
        return False
    # Entries of one answer have its id, whatever their `parentUuid` says while calls run side by side.
    above = commit.message(parent)
    answers = {answer_id(draft.entry), answer_id((entry_of(above) if above else None) or {})} - {None}
    at: str | None = head
    for _ in range(_MOST_STEPS):
        if at == parent:
            return True
        message: Message | None = None if at is None else commit.message(at)
        entry = None if message is None else entry_of(message)
        if message is None or entry is None or not (is_result(entry) or answer_id(entry) in answers):
            return False
        at = message.parent_id
    return False

"""The decision to take a whole conversation in, of whose messages some are stored and the others are about to be."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import count, islice

import msgspec

from ..errors import InvalidValueError, MessageNotFoundError
from ..limits import check_id, check_metadata, check_optional_id, check_time
from ..values import MAIN, MAIN_NUMBER, Annotation, Branch
from .decide_chats import decide_create_chat, require_chat
from .decide_messages import missing_messages
from .events import (
    Body,
    BranchCreated,
    BranchDeleted,
    ChatCreated,
    CheckpointSet,
    HeadMoved,
    MessagesAnnotated,
    MessagesAppended,
    RegenerationBegun,
    RunRecorded,
)
from .history import annotation_events
from .import_versions import Settled, original_id
from .interchange import ImportedBranch, ImportedChat, ImportedMessage, ImportResult, draft_of
from .members import members_of_new
from .runs import RUN_STATUSES, MessageRun
from .state import ChatState, next_branch_number

KnownParents = dict[str, str | None]
"""The messages of an import, parents first, with their parents."""


class Lineage:
    """
    The ancestors of the messages of an import.

    All questions together take time in proportion to the number of messages, however long the chains are; where the import has
    merges, each question that chains alone do not answer does.
    """

    def __init__(self, state: ChatState, messages: Iterable[ImportedMessage]) -> None:
        self._state = state
        self._parents: KnownParents = {}
        self._merged: dict[str, tuple[str, ...]] = {}
        for message in messages:
            self._parents[message.id] = message.parent_id
            if message.merged_from:
                self._merged[message.id] = message.merged_from
        self._stored: dict[str | None, str | None] = {}

    def descends(self, message_id: str, ancestor_id: str) -> bool:
        """Whether a message of the import is another one, or follows it, by what was merged too."""
        if not self._state.has_message(ancestor_id):
            start, end = self._spans.get(ancestor_id, (0, 0))
            if start <= self._spans[message_id][0] < end:
                return True
            return ancestor_id in self._merged_into(message_id)[0]
        at = self._nearest_stored(message_id)
        if at is not None and self._state.is_ancestor(ancestor_id, at):
            return True
        stored = self._merged_into(message_id)[1] if self._merged else [at]
        return any(end is not None and self._state.merge_base(end, ancestor_id) == ancestor_id for end in stored)

    def _merged_into(self, message_id: str) -> tuple[set[str], set[str]]:
        """A message with those before it by all parents: those that are not stored, and the stored ones that come first."""
        new: set[str] = set()
        stored: set[str] = set()
        above: list[str | None] = [message_id]
        while above:
            at = above.pop()
            if at is None or at in new:
                continue
            if self._state.has_message(at):
                stored.add(at)
            else:
                new.add(at)
                above += self._parents.get(at), *self._merged.get(at, ())
        return new, stored

    def _nearest_stored(self, message_id: str) -> str | None:
        # What was walked is remembered for each message on the way, so that long chains are walked once.
        path: list[str | None] = []
        at: str | None = message_id
        while at is not None and at not in self._stored and not self._state.has_message(at):
            path.append(at)
            at = self._parents.get(at)
        nearest = self._stored.get(at, at)
        self._stored.update(dict.fromkeys(path, nearest))
        return nearest

    @cached_property
    def _spans(self) -> dict[str, tuple[int, int]]:
        """For each message a range of numbers, which contains those of all that follow from it."""
        sizes = dict.fromkeys(self._parents, 1)
        for message_id, parent_id in reversed(self._parents.items()):
            if parent_id in sizes:
                sizes[parent_id] += sizes[message_id]
        spans: dict[str, tuple[int, int]] = {}
        free: dict[str | None, int] = {None: 0}
        for message_id, parent_id in self._parents.items():
            place = parent_id if parent_id in sizes else None
            start, end = free[place], free[place] + sizes[message_id]
            spans[message_id], free[place], free[message_id] = (start, end), end, start + 1
        return spans


def decide_import(
    state: ChatState,
    chat: ImportedChat | Settled,
    *,
    ids: Sequence[str],
    now: int,
    limit: int | None = None,
    branches_before: int | None = None,
) -> list[Body]:
    """
    Return the events for everything that a chat lacks of an imported one: the chat, messages, branches, checkpoints, annotations, runs.

    What is there stays: a branch that exists only moves forward, when the imported head descends from its head; the active
    branch of an existing chat, its title, its end, its members, its checkpoints, annotations and runs are not touched. So a repeated import
    has nothing to do. A new chat has the imported branches alone, `main` only if it is among them.

    Args:
        state: The chat as it is, if it is.
        chat: As an importer read it; or with its changed messages settled, then branches that end in what new versions
            take the place of move on to these.
        ids: New ids for branches, checkpoints and runs that have none: one for each event, and one more.
        now: The time, in milliseconds.
        limit: Decide on so many events at most; the rest is decided when called again.
        branches_before: The chat is what `rest_of` left, so its messages are there and all of it was checked, and so many
            branches came before.

    Raises:
        ChatNotFoundError: The chat was deleted before the rest of it came.
        MessageConflictError: A message is stored with other content, or in another chat.
        ParentNotFoundError, SelfParentError: A message does not fit to what is stored.
        MessageNotFoundError: A branch, checkpoint, annotation or run names a message that the import does not have.
        InvalidValueError: A value breaks a rule.
    """
    new_ids = iter(ids)
    settled = Settled(chat) if isinstance(chat, ImportedChat) else chat
    chat = settled.chat
    parents = {message.id: message.parent_id for message in chat.messages}
    if branches_before is not None:
        require_chat(state)
        rest = list(islice(_pointers(state, settled, parents, new_ids, now, first=branches_before), limit))
        # Pointers to messages that went with the chat which they were for: it was deleted, and begun anew by others.
        for body in rest:
            if isinstance(body, BranchCreated):
                at = body.head_message_id
            elif isinstance(body, HeadMoved):
                at = body.to_head
            elif isinstance(body, CheckpointSet):
                at = body.message_id
            else:
                continue
            if at is not None and not state.has_message(at):
                raise MessageNotFoundError(at, chat_id=state.chat_id)
        return rest
    is_new = state.record is None
    main = next((branch for branch in chat.branches if is_new and branch.name == MAIN), None)
    bodies: list[Body] = _create(state, chat, main, new_ids) if is_new else []
    # Only where the chat is new: an old export would bring back members who were removed since.
    bodies += members_of_new(chat.id, chat.user_id, chat.members) if is_new else []
    added = missing_messages(state, [draft_of(message) for message in chat.messages], now=now)
    main_head = None if main is None else main.head_message_id
    if added:
        changed_at = _optional_time(chat.updated_at, "updated_at")
        bodies.append(MessagesAppended(tuple(added), MAIN_NUMBER if main_head else None, None, main_head, changed_at))
    pointers = list(_pointers(state, settled, parents, new_ids, now))
    created = bodies[0] if is_new else None
    first = pointers[0] if pointers else None
    if isinstance(created, ChatCreated) and main is None and isinstance(first, BranchCreated) and first.is_active:
        # A chat that was exported without it. After the active one, as the active branch of a chat cannot be deleted.
        pointers.insert(1, BranchDeleted(MAIN_NUMBER, MAIN))
    return [*bodies, *pointers[: None if limit is None else max(limit - len(bodies), 0)]]


def rest_of(chat: ImportedChat, written: Sequence[Body]) -> ImportedChat:
    """Return the part of an imported chat that is left to decide on after these events of it, all and in order."""
    names = {body.name for body in written if isinstance(body, BranchCreated)}
    names |= {body.branch for body in written if isinstance(body, HeadMoved)}
    branches = sorted(chat.branches, key=_is_passive)
    done = max((at for at, branch in enumerate(branches, 1) if branch.name in names), default=0)
    checkpoints = {body.name for body in written if isinstance(body, CheckpointSet)}
    runs = {body.run.run_id for body in written if isinstance(body, RunRecorded)}
    return msgspec.structs.replace(
        chat,
        branches=tuple(branches[done:]),
        checkpoints=tuple(checkpoint for checkpoint in chat.checkpoints if checkpoint.name not in checkpoints),
        runs=tuple(run for run in chat.runs if run.run_id not in runs),
    )


def _is_passive(branch: ImportedBranch) -> bool:
    return not branch.is_active


def _pointers(
    state: ChatState,
    settled: Settled,
    parents: KnownParents,
    new_ids: Iterator[str],
    now: int,
    *,
    first: int = 0,
) -> Iterator[Body]:
    """Yield the missing branches, checkpoints, annotations and runs."""
    chat = settled.chat
    is_new = state.record is None
    lineage = Lineage(state, chat.messages)
    numbers = count(next_branch_number(state))
    # The active branch comes first, so that it is active also when the rest waits for another commit.
    for number, branch in enumerate(sorted(chat.branches, key=_is_passive), first):
        check_id(branch.name, "branch name")
        _check_imported(chat, parents, branch.head_message_id)
        if is_new and branch.name == MAIN:
            continue
        existing = state.branch(branch.name)
        if existing is None:
            # A ms later for each, so that the branches keep their order.
            created_at = now + number
            if branch.created_at is not None:
                created_at = check_time(branch.created_at, "created_at of a branch")
            branch_id, is_active = branch.id or next(new_ids), is_new and branch.is_active
            yield BranchCreated(next(numbers), branch_id, branch.name, branch.head_message_id, created_at, is_active)
        elif _moves_on(state, existing, branch, lineage, settled):
            yield HeadMoved(existing.number, existing.name, existing.head_message_id, branch.head_message_id)
    yield from _checkpoints(state, chat, parents, new_ids, now)
    yield from missing_annotations(state, chat, parents)
    yield from missing_runs(state, chat, parents, new_ids)


def import_result(settled: Settled, bodies: Sequence[Body]) -> ImportResult:
    """Return the changes that these events of the import of a chat made."""
    versions = set(settled.new_ids.values())
    added = [message for body in bodies if isinstance(body, MessagesAppended) for message in body.messages]
    return ImportResult(
        chat_id=settled.chat.id,
        is_new=any(isinstance(body, ChatCreated) for body in bodies),
        messages_added=len(added),
        versions_added=sum(message.id in versions for message in added),
        branches_added=sum(isinstance(body, ChatCreated | BranchCreated) for body in bodies)
        - sum(isinstance(body, BranchDeleted) for body in bodies),
        heads_moved=sum(isinstance(body, HeadMoved) for body in bodies),
        checkpoints_set=sum(isinstance(body, CheckpointSet) for body in bodies),
        messages_annotated=sum(len(body.message_ids) for body in bodies if isinstance(body, MessagesAnnotated)),
        runs_added=sum(isinstance(body, RunRecorded) for body in bodies),
        regenerations_added=sum(isinstance(body, RegenerationBegun) for body in bodies),
    )


def _create(state: ChatState, chat: ImportedChat, main: ImportedBranch | None, new_ids: Iterator[str]) -> list[Body]:
    return decide_create_chat(
        state,
        user_id=chat.user_id,
        title=chat.title,
        metadata=chat.metadata,
        branch_id=(main.id if main is not None else None) or next(new_ids),
        created_at=chat.created_at,
        expires_at=chat.expires_at,
        updated_at=_optional_time(chat.updated_at, "updated_at"),
        branch_created_at=None if main is None else _optional_time(main.created_at, "created_at of a branch"),
    )


def _moves_on(state: ChatState, existing: Branch, imported: ImportedBranch, lineage: Lineage, settled: Settled) -> bool:
    """Whether the imported head descends from the head that the branch has, or is or descends from another version of that."""
    head, at = existing.head_message_id, imported.head_message_id
    if at is None or at == head:
        return False
    if head is None or lineage.descends(at, head):
        return True
    original = original_id(state, head)
    version = settled.new_ids.get(original, original)
    if version == head or (at == original and at in settled.skipped):
        return False
    return lineage.descends(at, version)


def _optional_time(value: int | None, what: str) -> int | None:
    return None if value is None else check_time(value, what)


def _checkpoints(
    state: ChatState, chat: ImportedChat, parents: KnownParents, new_ids: Iterator[str], now: int
) -> Iterator[Body]:
    for checkpoint in chat.checkpoints:
        check_id(checkpoint.name, "checkpoint name")
        _check_imported(chat, parents, checkpoint.message_id)
        if state.checkpoint(checkpoint.name) is None:
            created_at = (
                now
                if checkpoint.created_at is None
                else check_time(checkpoint.created_at, "created_at of a checkpoint")
            )
            yield CheckpointSet(checkpoint.id or next(new_ids), checkpoint.name, checkpoint.message_id, created_at)


def missing_annotations(state: ChatState, chat: ImportedChat, parents: KnownParents) -> list[MessagesAnnotated]:
    """Annotations of messages that have none here; one event for all that say the same."""
    missing: list[tuple[str, Annotation]] = []
    for message in chat.messages:
        annotation = message.annotation
        if annotation is None or state.annotation(message.id) is not None:
            continue
        if annotation.replaced_by is not None:
            _check_imported(chat, parents, annotation.replaced_by)
            if annotation.replaced_by == message.id:
                msg = f"message {message.id!r} cannot be replaced by itself"
                raise InvalidValueError(msg)
        metadata = check_metadata(annotation.metadata) or {}
        missing.append((message.id, msgspec.structs.replace(annotation, metadata=metadata)))
    return annotation_events(missing)


def missing_runs(state: ChatState, chat: ImportedChat, parents: KnownParents, new_ids: Iterator[str]) -> Iterator[Body]:
    """Regenerations and runs whose ids the chat does not have, as they were; the runs in their order."""
    for regeneration in chat.regenerations:
        if state.regeneration(check_id(regeneration.id, "regeneration id")) is not None:
            continue
        for message_id in regeneration.message_ids:
            _check_imported(chat, parents, message_id)
        yield RegenerationBegun(
            regeneration.id,
            regeneration.edited_message_id,
            regeneration.new_message_id,
            regeneration.runs,
            regeneration.approved,
            _optional_time(regeneration.created_at, "created_at of a regeneration"),
            regeneration.carries,
        )
    for run in chat.runs:
        if state.run(check_id(run.run_id, "run_id")) is not None:
            continue
        check_run(run)
        for message_id in (run.trigger_message_id, run.message_id, *run.references):
            _check_imported(chat, parents, message_id)
        record = msgspec.structs.replace(run.recorded, id=run.id or next(new_ids), chat_id="")
        yield RunRecorded(record, run.metadata or None)


def check_run(run: MessageRun) -> None:
    """Raise `InvalidValueError` when a value of a run breaks a rule; the messages that it names are not looked for."""
    check_id(run.run_id, "run_id")
    for name in ("thread_id", "assistant_id", "runtime"):
        check_id(getattr(run, name), name)
    for name in ("checkpoint_id", "repeats", "regeneration_id"):
        check_optional_id(getattr(run, name), name)
    for name in ("created_at", "updated_at"):
        check_time(getattr(run, name), f"{name} of a run")
    if run.status not in RUN_STATUSES:
        msg = f"the status of run {run.run_id!r} is {run.status!r}, not one of {', '.join(RUN_STATUSES)}"
        raise InvalidValueError(msg)
    check_metadata(run.metadata, "the metadata of a run")


def _check_imported(chat: ImportedChat, parents: KnownParents, message_id: str | None) -> None:
    if message_id is not None and message_id not in parents:
        raise MessageNotFoundError(message_id, chat_id=chat.id)

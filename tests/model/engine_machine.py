"""Context engines on one chat as a few dictionaries: what each call shows, stores and refuses, in the plainest words."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from tests.model.ledger_model import RefusedError, refuse

from chatledger import HeadConflictError, InvalidValueError, LogUnavailableError
from chatledger.errors import (
    AmbiguousEditError,
    BranchNotFoundError,
    CheckpointNotFoundError,
    EmptyChatError,
    MessageNotFoundError,
    WrongChatError,
)

HEAD: Final = "the head"
"""Of an engine that goes on from the head of its branch, as all do unless they regenerate."""

NewIds = Callable[[], str]
"""Gives the ids of the messages that were stored, in the order of the log."""


@dataclass
class Said:
    """A message that is stored: its parent, and what it says."""

    parent: str | None
    role: str
    text: str


@dataclass(eq=False)
class Waiting:
    """A message that waits for a save; without an id while it is lazy, or while only the engine knows its new one."""

    id: str | None
    role: str
    text: str
    is_lazy: bool = False


@dataclass
class Saved:
    """The result of a save."""

    head: str | None
    branch: str
    ids: list[str]
    id_map: dict[str, str]


@dataclass
class Trial:
    """A save whose outcome the engine does not know; `saved` is the outcome, None while nothing is stored."""

    entries: list[Waiting]
    pending: list[Waiting]
    branch: str
    read_head: str | None
    on_conflict: str
    after: str | None
    saved: Saved | None = None


@dataclass
class ModelEngine:
    """The state of an engine."""

    branch: str | None = None
    read_head: str | None = None
    pending: list[Waiting] = field(default_factory=list[Waiting])
    trial: Trial | None = None
    after: str | None = HEAD

    def forget(self) -> None:
        """Forget what is pending, as `discard` does, and each move to another branch."""
        self.pending, self.trial, self.after = [], None, HEAD


@dataclass
class Plan:
    """Where a save goes, and what is new in it; a new id is None before it is stored. `created` says whether the branch is new."""

    branch: str
    head: str | None
    fresh: list[tuple[str | None, Waiting]]
    created: bool


class EngineModel:
    """One chat, and the engines on it. `foreign` are the ids of messages of other chats."""

    def __init__(self, foreign: Iterable[str]) -> None:
        self.foreign = frozenset(foreign)
        self.messages: dict[str, Said] = {}
        self.branches: dict[str, str | None] = {"main": None}
        self.active = "main"
        self.checkpoints: dict[str, str] = {}

    # The chat

    def chain(self, head: str | None) -> list[str]:
        found: list[str] = []
        while head is not None:
            found.append(head)
            head = self.messages[head].parent
        return found[::-1]

    def reachable(self) -> set[str]:
        """The messages that some branch has."""
        return {message_id for head in self.branches.values() for message_id in self.chain(head)}

    def new_name(self, base: str) -> str:
        stem, _, endings = base.partition("-v")
        base = stem if "-v" in endings else base
        number = 1 + sum(name == base or name.startswith(f"{base}-v") for name in self.branches)
        while f"{base}-v{number}" in self.branches:
            number += 1
        return f"{base}-v{number}"

    # Engines

    def ready(self, engine: ModelEngine) -> str:
        if engine.branch is None:
            self.refresh(engine)
        assert engine.branch is not None
        return engine.branch

    def refresh(self, engine: ModelEngine) -> None:
        engine.branch, engine.read_head = self.active, self.branches[self.active]

    def move_to(self, engine: ModelEngine, branch: str) -> str:
        engine.branch, engine.read_head = branch, self.branches[branch]
        engine.forget()
        self.active = branch
        return branch

    def rewind(self, engine: ModelEngine, message_id: str) -> str:
        base = self.ready(engine)
        if message_id not in self.messages:
            raise refuse(WrongChatError if message_id in self.foreign else MessageNotFoundError)
        name = self.new_name(base)
        self.branches[name] = message_id
        return self.move_to(engine, name)

    def regenerate(self, engine: ModelEngine, message_id: str | None) -> str | None:
        """The question, from which the engine goes on."""
        head = self.branches[self.ready(engine)]
        if engine.pending:
            raise refuse(InvalidValueError)
        last = head if message_id is None else message_id
        if last is None:
            raise refuse(EmptyChatError)
        if last not in self.messages:
            raise refuse(WrongChatError if last in self.foreign else MessageNotFoundError)
        chain = self.chain(last)
        while chain and self.messages[chain[-1]].role == "assistant":
            chain.pop()
        question = chain[-1] if chain else None
        engine.after = HEAD if question == head else question
        return question

    def btw(self, engine: ModelEngine) -> str:
        base = self.ready(engine)
        if self.branches[base] is None:
            raise refuse(EmptyChatError)
        name = self.new_name(base)
        self.branches[name] = self.branches[base]
        return name

    def switch(self, engine: ModelEngine, name: str) -> str:
        self.ready(engine)
        if name not in self.branches:
            raise refuse(BranchNotFoundError)
        return self.move_to(engine, name)

    def checkpoint(self, engine: ModelEngine, name: str) -> str:
        head = self.branches[self.ready(engine)]
        if head is None:
            raise refuse(EmptyChatError)
        self.checkpoints[name] = head
        return head

    def restore(self, engine: ModelEngine, name: str) -> str:
        self.ready(engine)
        if name not in self.checkpoints:
            raise refuse(CheckpointNotFoundError)
        return self.rewind(engine, self.checkpoints[name])

    # Reading

    def shown(self, engine: ModelEngine) -> list[tuple[str, str]]:
        """Role and text of each message as `resolve` gives them: as they would be after a save."""
        branch = self.ready(engine)
        plan = self.plan(self.resolved(engine), branch, self.branches[branch], "rebase", engine.after)
        engine.read_head = self.branches[branch]
        stored = [self.messages[message_id] for message_id in self.chain(plan.head)]
        return [(one.role, one.text) for one in stored] + [(one.role, one.text) for _, one in plan.fresh]

    # Saving

    def resolved(self, engine: ModelEngine) -> list[Waiting]:
        """The queue with lazy messages resolved, and the last one of each id at the place of the first."""
        kept: list[Waiting] = []
        for entry in engine.pending:
            one = replace(entry, id=self.corrected(engine, entry)) if entry.is_lazy else entry
            place = next((at for at, known in enumerate(kept) if one.id is not None and known.id == one.id), None)
            if place is None:
                kept.append(one)
            else:
                kept[place] = one
        return kept

    def corrected(self, engine: ModelEngine, lazy: Waiting) -> str | None:
        """The id of the most recent answer when the correction was set, pending or stored."""
        assert engine.branch is not None
        before = itertools.takewhile(lambda entry: entry is not lazy, engine.pending)
        pending = [entry.id for entry in before if entry.role == "assistant" and not entry.is_lazy]
        chain = self.chain(self.branches[engine.branch])
        stored = [message_id for message_id in chain if self.messages[message_id].role == "assistant"]
        return (pending or stored or [None])[-1]

    def plan(
        self, entries: list[Waiting], branch: str, read_head: str | None, on_conflict: str, after: str | None
    ) -> Plan:
        head = self.branches[branch]
        known = {*self.chain(head), *self.chain(None if after == HEAD else after)}
        fresh: list[tuple[str | None, Waiting]] = []
        edits: list[str] = []
        for entry in entries:
            if entry.id in self.foreign:
                raise refuse(WrongChatError)
            stored = None if entry.id is None else self.messages.get(entry.id)
            if stored is None:
                fresh.append((entry.id, entry))
                continue
            assert entry.id is not None
            is_same = (stored.role, stored.text) == (entry.role, entry.text)
            if is_same and entry.id in known:
                continue
            if not is_same:
                edits.append(entry.id)
            fresh.append((None, entry))
        if not fresh:
            return Plan(branch, head if after == HEAD else after, [], created=False)
        if on_conflict == "raise" and read_head != head:
            raise refuse(HeadConflictError)
        if edits:
            begin = self.begin(after, self.earliest(edits))
            return Plan(self.new_name(branch), begin, fresh, created=True)
        if after != HEAD:
            return Plan(self.new_name(branch), after, fresh, created=True)
        if on_conflict == "fork" and read_head != head:
            return Plan(self.new_name(branch), read_head, fresh, created=True)
        return Plan(branch, head, fresh, created=False)

    def earliest(self, edits: list[str]) -> str:
        """The one nearest to the root, if all lie on one chain."""
        longest = max((self.chain(edit) for edit in edits), key=len)
        if not set(edits) <= set(longest):
            raise refuse(AmbiguousEditError)
        return min(edits, key=longest.index)

    def begin(self, after: str | None, edit: str) -> str | None:
        """The one nearer to the root of the parent of an edited message and where a question is answered again."""
        parent = self.messages[edit].parent
        if HEAD == after or parent is None:
            return parent
        if after is None or after in self.chain(parent):
            return after
        if edit not in self.chain(after):
            raise refuse(AmbiguousEditError)
        return parent

    def carry_out(self, plan: Plan, entries: list[Waiting], new_ids: NewIds) -> Saved:
        """Store what is new, under the ids that the engine gave."""
        ids = {id(entry): entry.id for entry in entries}
        head = plan.head
        for wanted, entry in plan.fresh:
            new = new_ids()
            assert new == wanted if wanted is not None else new not in self.messages
            self.messages[new] = Said(head, entry.role, entry.text)
            ids[id(entry)] = head = new
        if plan.fresh:
            self.branches[plan.branch] = head
        if plan.created:
            self.active = plan.branch
        stored = [ids[id(entry)] for entry in entries]
        renamed = {entry.id: new for entry, new in zip(entries, stored, strict=True) if entry.id not in {None, new}}
        return Saved(
            self.branches[plan.branch],
            plan.branch,
            [str(message_id) for message_id in stored],
            {str(old): str(new) for old, new in renamed.items()},
        )

    def save(self, engine: ModelEngine, on_conflict: str, failures: list[str], new_ids: NewIds) -> Saved:
        """`failures` holds how the next append fails, `before` or `after` writing; it is emptied by the one that does."""
        self.ready(engine)
        settled = None if engine.trial is None else self.attempt(engine, engine.trial, failures, new_ids)
        assert engine.branch is not None
        if not engine.pending:
            if settled is not None:
                return settled
            engine.read_head = self.branches[engine.branch]
            return Saved(engine.read_head, engine.branch, [], {})
        entries = self.resolved(engine)
        trial = Trial(entries, list(engine.pending), engine.branch, engine.read_head, on_conflict, engine.after)
        saved = self.attempt(engine, trial, failures, new_ids)
        if settled is None:
            return saved
        return Saved(saved.head, saved.branch, settled.ids + saved.ids, {**settled.id_map, **saved.id_map})

    def attempt(self, engine: ModelEngine, trial: Trial, failures: list[str], new_ids: NewIds) -> Saved:
        if trial.saved is None:
            engine.trial = None
            plan = self.plan(trial.entries, trial.branch, trial.read_head, trial.on_conflict, trial.after)
            failure = failures.pop() if plan.fresh and failures else None
            if failure is not None:
                engine.trial = trial
            if failure == "before":
                raise refuse(LogUnavailableError)
            trial.saved = self.carry_out(plan, trial.entries, new_ids)
            if failure == "after":
                raise refuse(LogUnavailableError)
        engine.trial = None
        if trial.saved.branch != trial.branch:
            engine.after = HEAD
        engine.branch, engine.read_head = trial.saved.branch, trial.saved.head
        engine.pending = [entry for entry in engine.pending if entry not in trial.pending]
        return trial.saved


__all__ = ["EngineModel", "ModelEngine", "RefusedError", "Saved", "Waiting"]

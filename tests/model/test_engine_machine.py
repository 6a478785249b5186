"""
Context engines on one chat, whatever they do, in whatever order and whatever fails, agree with a few dictionaries.

`CHATLEDGER_SOAK=1` runs it for longer. A failure prints the steps; `@reproduce_failure` repeats them.
"""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.model.engine_machine import EngineModel, ModelEngine, RefusedError, Saved, Waiting
from tests.support.engine_world import EngineWorld, FailingLog
from tests.support.ledger_world import check_chat, snapshot
from tests.support.soak import IS_SOAK

from chatledger import ChatledgerError, ContextEngine, Message, SaveResult, assistant, user
from chatledger.forms import translate
from chatledger.fragments import last_assistant_message

ENGINES, CHECKPOINTS, FOREIGN = 3, 3, 2
OWNER = "ada"

numbers = st.integers(0, 2**16)
engines = st.integers(0, ENGINES - 1)
texts = st.sampled_from(["one", "two", "three", ""])
roles = st.sampled_from(["user", "assistant"])
ways_out = st.sampled_from(["rebase", "rebase", "fork", "raise"])
failures = st.sampled_from([None, None, None, "before", "after"])


class EngineMachine(RuleBasedStateMachine):
    """Three engines show, store and refuse what the model says, after each step."""

    world: ClassVar[EngineWorld]
    log: ClassVar[FailingLog]

    def __init__(self) -> None:
        super().__init__()
        self.name = uuid.uuid4().hex
        self.world.chat = f"chat {self.name}"
        self.log.failures = 0  # an example that failed may have left one
        self.counter = 0
        self.model = EngineModel(f"foreign{number} {self.name}" for number in range(FOREIGN))
        self.stored: dict[str, Message] = {}

    @initialize(length=st.integers(0, 5))
    def begin(self, length: int) -> None:
        other = self.world.engine(f"other {self.name}", OWNER)
        other.set(*(user("foreign", id=one) for one in sorted(self.model.foreign))).save()
        self.real: list[ContextEngine] = [self.world.engine() for _ in range(ENGINES)]
        self.held = [ModelEngine() for _ in range(ENGINES)]
        for number in range(length):
            self.set_new(0, "assistant" if number % 2 else "user", f"text {number}")
        self.save(0, "rebase", None, is_looking=False)

    # What steps are made of

    def both(self, number: int, real: Callable[[ContextEngine], Any], model: Callable[[ModelEngine], Any]) -> Any:
        """The same call on an engine and on its model has the same answer, or the same error."""
        try:
            answer, error = real(self.real[number]), None
        except ChatledgerError as refusal:
            answer, error = None, type(refusal).__name__
        self.world.ledger.sync()
        try:
            expected, refused = model(self.held[number]), None
        except RefusedError as refusal:
            expected, refused = None, str(refusal)
        assert error == refused
        assert answer == expected
        return answer

    def pick(self, number: int) -> str | None:
        known = list(self.model.messages)
        return known[number % len(known)] if known else None

    def pick_or_other(self, number: int) -> str:
        """A message of the chat, now and then another one."""
        if number % 10 == 0:
            return [*sorted(self.model.foreign), "nowhere"][number // 10 % (FOREIGN + 1)]
        return self.pick(number) or "nowhere"

    def enqueue(self, number: int, message_id: str, role: str, text: str) -> None:
        fragment = user(text, id=message_id) if role == "user" else assistant(text, message_id)
        self.real[number].set(fragment)
        self.held[number].pending.append(Waiting(message_id, role, text))

    # Setting

    @rule(engine=engines, role=roles, text=texts)
    def set_new(self, engine: int, role: str, text: str) -> None:
        self.counter += 1
        self.enqueue(engine, f"m{self.counter} {self.name}", role, text)

    @rule(engine=engines, number=numbers, role=roles, text=texts)
    def set_edit(self, engine: int, number: int, role: str, text: str) -> None:
        """Any stored message, on whatever branch; sometimes it says the same."""
        message_id = self.pick(number)
        if message_id is not None:
            self.enqueue(engine, message_id, role, text)

    @rule(engine=engines, number=numbers)
    def set_identical(self, engine: int, number: int) -> None:
        message_id = self.pick(number)
        if message_id is not None:
            said = self.model.messages[message_id]
            self.enqueue(engine, message_id, said.role, said.text)

    @rule(engine=engines, number=numbers, role=roles, text=texts)
    def set_again(self, engine: int, number: int, role: str, text: str) -> None:
        """A message that waits already, of this engine or of another."""
        waiting = [entry.id for held in self.held for entry in held.pending if entry.id is not None]
        if waiting:
            self.enqueue(engine, waiting[number % len(waiting)], role, text)

    @rule(engine=engines, text=texts)
    def set_correction(self, engine: int, text: str) -> None:
        self.real[engine].set(last_assistant_message(text))
        self.held[engine].pending.append(Waiting(None, "assistant", text, is_lazy=True))

    @rule(engine=engines, chance=st.integers(0, 5), number=numbers)
    def set_foreign(self, engine: int, chance: int, number: int) -> None:
        if not chance:
            foreign = sorted(self.model.foreign)
            self.enqueue(engine, foreign[number % FOREIGN], "user", "foreign")

    # Saving and reading

    @rule(
        engine=engines,
        changes=st.lists(st.tuples(numbers, roles, texts), min_size=1, max_size=3),
        is_edit=st.booleans(),
        on_conflict=ways_out,
        failure=failures,
        is_looking=st.booleans(),
    )
    def set_and_save(
        self,
        engine: int,
        changes: list[tuple[int, str, str]],
        is_edit: bool,  # noqa: FBT001 - drawn by name
        on_conflict: str,
        failure: str | None,
        is_looking: bool,  # noqa: FBT001 - as above
    ) -> None:
        """Do as most turns do: set some messages, and save."""
        for number, role, text in changes:
            if is_edit and self.model.messages:
                self.set_edit(engine, number, role, text)
            else:
                self.set_new(engine, role, text)
        self.save(engine, on_conflict, failure, is_looking)

    @rule(engine=engines, on_conflict=ways_out, failure=failures, is_looking=st.booleans())
    def save(self, engine: int, on_conflict: Any, failure: str | None, is_looking: bool) -> None:  # noqa: FBT001 - drawn by name
        trial = self.held[engine].trial
        # A save of unknown outcome is settled first, on the branch that it was meant for.
        own = {self.held[engine].branch, None if trial is None else trial.branch}
        others = {name: head for name, head in self.model.branches.items() if name not in own}
        pending = self.real[engine].pending
        is_settled = self.held[engine].trial is None
        looked = self.look(engine) if is_looking else None
        if failure is not None:
            self.log.fail(failure)
        result: SaveResult | None = self.both(
            engine,
            lambda one: one.save(on_conflict=on_conflict),
            lambda one: self.expected(one, on_conflict, failure),
        )
        self.log.failures = 0
        for name, head in others.items():
            branch = self.world.ledger.get_branch(self.world.chat, name)
            assert branch is not None
            assert name == self.real[engine].branch or branch.head_message_id == head
        if result is None:
            assert self.real[engine].pending == pending[len(pending) - len(self.held[engine].pending) :]
            return
        assert self.real[engine].pending == []
        if looked is not None and is_settled and on_conflict == "rebase":
            assert self.look(engine) == looked

    def expected(self, engine: ModelEngine, on_conflict: str, failure: str | None) -> SaveResult:
        """The model's messages, with the ids that the engine made."""
        graph = self.world.ledger.graph(self.world.chat)
        news = [node.id for node in graph.nodes if node.id not in self.model.messages]
        queue = iter(news)
        saved: Saved = self.model.save(engine, on_conflict, [failure] if failure else [], lambda: next(queue))
        assert next(queue, None) is None
        return SaveResult(head_message_id=saved.head, branch=saved.branch, message_ids=saved.ids, id_map=saved.id_map)

    @rule(first=engines, second=engines, text=texts, number=numbers, on_conflict=ways_out, failure=failures)
    def contend(self, first: int, second: int, text: str, number: int, on_conflict: str, failure: str | None) -> None:
        """One engine saves while another, which has read the branch, is about to; its save may have failed before."""
        for engine in (first, second):
            self.refresh(engine)
        self.set_new(first, "user", text)
        if number % 3 == 0:
            self.set_edit(first, number, "assistant", text)
        if failure is not None:
            self.save(first, on_conflict, failure, is_looking=False)
        self.set_new(second, "user", text)
        self.save(second, "rebase", None, is_looking=False)
        if number % 2:
            self.set_new(first, "assistant", text)
        self.save(first, on_conflict, None, is_looking=False)

    @rule(engine=engines)
    def resolve(self, engine: int) -> None:
        self.look(engine)

    def look(self, engine: int) -> list[tuple[str, str]] | None:
        """Role and text of what `resolve` shows; None if it refuses, as a save would."""
        shown: list[tuple[str, str]] | None = self.both(
            engine,
            lambda one: [(one["role"], one["parts"][0]["text"]) for one in one.resolve().messages],
            self.model.shown,
        )
        return shown

    # Moving

    @rule(engine=engines, number=numbers)
    def rewind(self, engine: int, number: int) -> None:
        message_id = self.pick_or_other(number)
        self.both(engine, lambda one: one.rewind(message_id).name, lambda one: self.model.rewind(one, message_id))

    @rule(engine=engines, number=numbers)
    def regenerate(self, engine: int, number: int) -> None:
        """The last answer, or any message; what is pending is dropped first, now and then it is refused."""
        if number % 4:
            self.drop(engine)
        message_id = None if number % 3 else self.pick_or_other(number // 3)

        def real(one: ContextEngine) -> str | None:
            question = one.regenerate(message_id)
            return None if question is None else question.id

        self.both(engine, real, lambda one: self.model.regenerate(one, message_id))

    @rule(engine=engines)
    def btw(self, engine: int) -> None:
        self.both(engine, lambda one: one.btw().name, self.model.btw)

    @rule(engine=engines, number=numbers)
    def switch_branch(self, engine: int, number: int) -> None:
        known = [*self.model.branches, "nowhere"]
        name = known[number % len(known)]
        self.both(engine, lambda one: one.switch_branch(name).name, lambda one: self.model.switch(one, name))

    @rule(engine=engines)
    def refresh(self, engine: int) -> None:
        def model(held: ModelEngine) -> str:
            self.model.refresh(held)
            return self.model.active

        self.both(engine, lambda one: one.refresh().name, model)

    @rule(engine=engines, number=st.integers(0, CHECKPOINTS - 1))
    def checkpoint(self, engine: int, number: int) -> None:
        name = f"checkpoint {number}"
        self.both(engine, lambda one: one.checkpoint(name).message_id, lambda one: self.model.checkpoint(one, name))

    @precondition(lambda self: self.model.checkpoints)
    @rule(engine=engines, number=st.integers(0, CHECKPOINTS - 1))
    def restore(self, engine: int, number: int) -> None:
        name = f"checkpoint {number}"
        self.both(engine, lambda one: one.restore(name).name, lambda one: self.model.restore(one, name))

    @rule(engine=engines, chance=st.integers(0, 3))
    def discard(self, engine: int, chance: int) -> None:
        if not chance:
            self.drop(engine)

    def drop(self, engine: int) -> None:
        dropped = self.real[engine].discard()
        assert [one.id for one in dropped] == [entry.id for entry in self.held[engine].pending]
        self.held[engine].forget()

    @rule(engine=engines)
    def begin_anew(self, engine: int) -> None:
        """A restart: another engine takes the place of this one, whose queue is lost."""
        self.real[engine], self.held[engine] = self.world.engine(), ModelEngine()

    @precondition(lambda self: self.model.messages)
    @rule(chance=st.integers(0, 4))
    def rebuild(self, chance: int) -> None:
        """An index built anew gives the same answers."""
        if chance:
            return
        before = snapshot(self.world.ledger, [self.world.chat])
        self.world.ledger.rebuild()

        assert snapshot(self.world.ledger, [self.world.chat]) == before

    # Promises

    @invariant()
    def promises_hold(self) -> None:
        ledger, chat = self.world.ledger, self.world.chat
        if ledger.get_chat(chat) is None:
            return
        messages = {message.id: message for message in check_chat(ledger, chat).messages}
        assert all(messages[message_id] == message for message_id, message in self.stored.items())
        self.stored = messages
        said = {one: (m.parent_id, m.name, m.data["parts"][0]["text"]) for one, m in messages.items()}
        assert said == {one: (m.parent, m.role, m.text) for one, m in self.model.messages.items()}
        # What is stored stays as it came, and is told under its id.
        assert all([one.id] == [told["id"] for told in translate([one], "ui").messages] for one in messages.values())
        branches = {branch.name: branch for branch in ledger.list_branches(chat)}
        assert {name: branch.head_message_id for name, branch in branches.items()} == self.model.branches
        assert [name for name, branch in branches.items() if branch.is_active] == [self.model.active]
        assert {one.name: one.message_id for one in ledger.list_checkpoints(chat)} == self.model.checkpoints
        # Nothing that was stored is on no branch: old branches keep their heads.
        assert set(messages) == self.model.reachable()
        for real, held in zip(self.real, self.held, strict=True):
            assert real.branch == held.branch
            assert [(one.id, one.name) for one in real.pending] == [(one.id, one.role) for one in held.pending]

    def teardown(self) -> None:
        """An index built from the log says the same in the end; what waits can be saved, or is refused for a reason."""
        if not hasattr(self, "real"):
            return
        for engine in range(ENGINES):
            self.save(engine, "rebase", None, is_looking=True)
            self.promises_hold()
        before = snapshot(self.world.ledger, [self.world.chat])
        self.world.ledger.rebuild()
        assert snapshot(self.world.ledger, [self.world.chat]) == before
        for chat in (self.world.chat, f"other {self.name}"):
            self.world.ledger.delete_chat(chat)


@pytest.mark.soak
@pytest.mark.timeout(3600 if IS_SOAK else 180)
@pytest.mark.parametrize(
    ("kind", "location", "examples", "soaked"),
    [("sync", "memory:", 15, 2400), ("async", "memory:", 8, 800), ("sync", "a directory", 5, 300)],
)
def test_engines_agree_with_the_model(
    kind: str, location: str, examples: int, soaked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three engines on one chat, appends that fail, restarts and rebuilds: all promises hold."""
    with EngineWorld(kind, location if location == "memory:" else tmp_path / "data") as world:
        machine: Any = type("Machine", (EngineMachine,), {"world": world, "log": FailingLog(world.ledger, monkeypatch)})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=soaked if IS_SOAK else examples,
                stateful_step_count=40,
                deadline=None,
                print_blob=True,
                database=None,
                phases=[Phase.generate],  # shrinking takes minutes on a real server; the steps are short enough to read
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
            ),
        )

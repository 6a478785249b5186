"""A cascade reads as a conversation: what followed the edited message is carried over, and stale answers are replaced."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.ledger_world import stored, text
from tests.support.soak import examples

import chatledger
from chatledger import Ledger, NewMessage
from chatledger.runs import Regeneration, RegenerationStep

numbers = count()


@pytest.fixture(scope="module")
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as ledger:
        yield ledger


class Slot:
    """A place in a conversation: a message that is kept, or the answer of a run. `needs` are the messages of a run, by number."""

    def __init__(
        self, message: int | None, agent: str | None = None, needs: Sequence[int] = (), tools: int = 0
    ) -> None:
        self.message, self.agent, self.needs, self.tools = message, agent, needs, tools


@st.composite
def conversations(draw: st.DrawFn) -> list[Slot]:
    """Questions, each answered by some agents, which refer to anything said before; some use tools, some never answer."""
    slots: list[Slot] = []
    said: list[int] = []
    for _ in range(draw(st.integers(1, 4))):
        question = len(said)
        slots.append(Slot(question))
        said.append(question)
        for number in range(draw(st.integers(0, 2))):
            references = draw(st.lists(st.sampled_from(said), max_size=2))
            is_answered = draw(st.integers(0, 5)) > 0 or number > 0
            answer = len(said) if is_answered else None
            if not is_answered:
                references = [one for one in references if one < question]
            tools = draw(st.integers(0, 2)) if is_answered else 0
            slots.append(Slot(answer, f"agent{len(slots)}", [question, *references], tools))
            if answer is not None:
                said.append(answer)
    return slots


class World:
    """A conversation on a ledger, the edit of one of its questions, and what is to become of it."""

    def __init__(self, ledger: Ledger, slots: list[Slot], edited: int) -> None:
        self.ledger, self.slots, self.chat = ledger, slots, f"chat {next(numbers)}"
        self.stale = stale_runs(slots, edited)
        ledger.create_chat(self.chat, "ada")
        for slot in slots:
            if slot.agent is None:
                assert slot.message is not None
                ledger.append(self.chat, [text(f"question {slot.message}", id=self.id(slot.message))])
            else:
                self.answer(slot, slot.agent)
        self.before = ledger.get_messages(self.chat)
        at = next(n for n, message in enumerate(self.before) if message.id == self.id(edited))
        new = NewMessage("user", "edited", id=f"{self.chat} edited", parent_id=self.before[at].parent_id)
        ledger.add_messages(self.chat, [new])
        plan = ledger.plan_regeneration(self.chat, self.id(edited), 100)
        ledger.begin_regeneration(plan, new_message_id=f"{self.chat} edited", regeneration_id="g")
        self.edited, self.order = edited, list[str]()

    def id(self, message: int) -> str:
        return f"{self.chat} {message}"

    def answer(self, slot: Slot, agent: str) -> None:
        trigger, *references = map(self.id, slot.needs)
        self.ledger.record_run(
            self.chat, agent, thread_id="t", assistant_id=agent, trigger_message_id=trigger, references=references
        )
        if slot.message is None:
            return
        for number in range(slot.tools):
            name = "tool" if number % 2 else "assistant"
            self.ledger.append(self.chat, [NewMessage(name, f"tools of {agent}", agent_id=agent)])
        answer = NewMessage("assistant", f"answer of {agent}", id=self.id(slot.message))
        self.ledger.complete_run(self.chat, agent, answer=answer)

    @property
    def regeneration(self) -> Regeneration:
        found = self.ledger.get_regeneration(self.chat, "g")
        assert found is not None
        return found

    def built(self) -> list[str]:
        branch = self.regeneration.branch
        return [message.data for message in self.ledger.get_messages(self.chat, branch=branch)]

    def expected(self) -> list[str]:
        """The branch as it is to be in the end; answers that stand next to each other in the order in which they were completed."""
        places: list[tuple[str, list[str]]] = []
        is_after = False
        for slot in self.slots:
            if slot.message == self.edited:
                is_after = True
                places.append(("edited", []))
            elif slot.agent is None:
                places.append((f"question {slot.message}", []))
            elif is_after and slot.agent in self.stale:
                # A run that never answered stands after its question, as one that did and stands first.
                at = len(places) if slot.message is not None else self.place_of(places, slot.needs[0])
                places[at - 1][1].append(f"new answer of {slot.agent}")
            elif slot.message is not None:
                places += [(f"tools of {slot.agent}", []) for _ in range(slot.tools)]
                places.append((f"answer of {slot.agent}", []))
        return [one for kept, answers in places for one in (kept, *sorted(answers, key=self.order.index))]

    def place_of(self, places: list[tuple[str, list[str]]], question: int) -> int:
        name = "edited" if question == self.edited else f"question {question}"
        return next(n for n, place in enumerate(places, 1) if place[0] == name)

    def repeat(self, step: RegenerationStep, *, fails: bool) -> None:
        ledger, chat = self.ledger, self.chat
        run = ledger.repeat_run(chat, "g", step.repeats.run_id)
        assert run.trigger_message_id is not None
        self.check_context(run.trigger_message_id)
        if fails:
            built = self.built()
            ledger.fail_run(chat, run.run_id)
            assert built == self.built()
            run = ledger.repeat_run(chat, "g", step.repeats.run_id)
        said = f"new answer of {step.repeats.assistant_id}"
        answer = NewMessage("assistant", said, id=f"{chat} {said}")
        self.order.append(said)
        ledger.complete_run(chat, run.run_id, answer=answer)
        position = ledger.position
        ledger.complete_run(chat, run.run_id, answer=answer)
        assert position == ledger.position

    def check_context(self, trigger: str) -> None:
        """The trigger stands on the branch, and nothing stale comes before it."""
        context = [message.data for message in self.ledger.get_context(self.chat, trigger)]
        built = self.built()
        assert context == built[: len(context)]
        assert context[-1] == stored(self.ledger, trigger).data
        assert f"question {self.edited}" not in context
        assert not {f"{what} of {agent}" for agent in self.stale for what in ("answer", "tools")} & set(context)


def stale_runs(slots: list[Slot], edited: int) -> set[str]:
    """The agents whose runs are stale after an edit, in the order of a conversation."""
    stale, reached = set[str](), {edited}
    for slot in slots:
        if slot.agent is not None and reached & set(slot.needs):
            stale.add(slot.agent)
            if slot.message is not None:
                reached.add(slot.message)
    return stale


@settings(max_examples=examples(100), deadline=None)
@given(conversations(), st.data())
def test_the_branch_of_an_edit_reads_as_a_conversation(ledger: Ledger, slots: list[Slot], data: st.DataObject) -> None:
    """Whatever runs refer to, and in whatever order they are repeated: the branch grows in order, up to the model's."""
    questions = [slot.message for slot in slots if slot.agent is None and slot.message is not None]
    world = World(ledger, slots, data.draw(st.sampled_from(questions)))
    seen = [world.built()]
    while ready := world.regeneration.ready:
        world.repeat(data.draw(st.sampled_from(ready)), fails=data.draw(st.integers(0, 4)) == 0)
        seen.append(world.built())

    assert world.regeneration.is_done
    assert world.expected() == seen[-1]
    assert all(built == seen[-1][: len(built)] for built in seen)
    kept = ledger.get_messages(world.chat, branch="main")
    assert [(one.id, one.data) for one in world.before] == [(one.id, one.data) for one in kept]
    check_copies(world)
    check_next_plans(world, questions)


def check_copies(world: World) -> None:
    """Each copy says what its original said, and names it; runs of copies name copies and new messages."""
    ledger, chat = world.ledger, world.chat
    built = ledger.get_messages(chat, branch=world.regeneration.branch)
    ids = {message.id for message in built}
    for message in built:
        if message.copied_from is not None:
            original = stored(ledger, message.copied_from)
            assert (original.data, original.agent_id, original.created_at) == (
                message.data, message.agent_id, message.created_at,
            )  # fmt: skip
            assert len(ledger.runs(chat, message_id=original.id)) == len(ledger.runs(chat, message_id=message.id))
        assert message.reply_to is None or message.reply_to in ids
        for run in ledger.runs(chat, message_id=message.id):
            assert ids >= {run.trigger_message_id, *run.references}


def check_next_plans(world: World, questions: list[int]) -> None:
    """The next edit, on the new branch, finds there what it would have found on the old one."""
    ledger, chat = world.ledger, world.chat
    copies = {
        message.copied_from: message.id for message in ledger.get_messages(chat, branch=world.regeneration.branch)
    }
    for question in questions:
        if world.id(question) in copies:
            plan = ledger.plan_regeneration(chat, copies[world.id(question)])
            answered = {slot.agent for slot in world.slots if slot.message is not None or slot.agent in world.stale}
            assert {run.assistant_id for run in plan.runs} == stale_runs(world.slots, question) & answered


names = st.sampled_from([f"m{n}" for n in range(6)])
graphs = st.lists(st.tuples(st.none() | names, st.none() | names, st.lists(names, max_size=2)), max_size=8)


@settings(max_examples=examples(100), deadline=None)
@given(graphs, st.integers(0, 5), st.integers(0, 5), st.data())
def test_whatever_refers_to_what(ledger: Ledger, graph: Any, edited: int, fork: int, data: st.DataObject) -> None:
    """Circles, answers before their triggers, runs on other branches: it comes to its end, and nothing is lost or doubled."""
    chat = f"chat {next(numbers)}"
    ledger.create_chat(chat, "ada")
    for n in range(6):
        ledger.append(chat, [text("said", id=f"{chat} m{n}")])
        if n == fork and n < 5:
            ledger.fork(chat, f"{chat} m{n}")
    for number, (trigger, made, references) in enumerate(graph):
        ledger.record_run(
            chat, f"R{number}", thread_id="t", assistant_id="a", trigger_message_id=trigger and f"{chat} {trigger}",
            references=[f"{chat} {one}" for one in references], message_id=made and f"{chat} {made}",
        )  # fmt: skip
    chain = ledger.get_messages(chat, branch="main-v2") if fork < 5 else ledger.get_messages(chat)
    ids = [message.id for message in chain]
    old = f"{chat} m{edited}"
    new = NewMessage("user", "edited", id=f"{chat} new", parent_id=stored(ledger, old).parent_id)
    ledger.add_messages(chat, [new])
    plan = ledger.plan_regeneration(chat, old, 100)
    regeneration = ledger.begin_regeneration(plan, new_message_id=f"{chat} new", regeneration_id="g")
    answers: list[str] = []
    while ready := regeneration.ready:
        step = data.draw(st.sampled_from(ready))
        run = ledger.repeat_run(chat, "g", step.repeats.run_id)
        answers.append(f"{chat} new {len(answers)}")
        ledger.complete_run(chat, run.run_id, answer=NewMessage("user", "answer", id=answers[-1]))
        found = ledger.get_regeneration(chat, "g")
        assert found is not None
        regeneration = found

    assert regeneration.is_done
    follows = ids[ids.index(old) + 1 :] if old in ids else ids_after(ledger, chat, old)
    built = ledger.get_messages(chat, branch=regeneration.branch)
    kept = [one for one in follows if one not in plan.stale_message_ids]
    assert kept == [one.copied_from for one in built if one.copied_from is not None]
    placed = [step for step in regeneration.steps if stands(step, {old, *follows}, follows)]
    answering = [step for step in regeneration.steps if step.repeats.trigger_message_id == old]
    if not any(step in placed for step in answering):
        placed += answering[-1:]
    made = [step.run.message_id for step in placed if step.run is not None]
    assert sorted(filter(None, made)) == sorted(one.id for one in built if one.id in answers)


def stands(step: RegenerationStep, triggers: set[str], follows: list[str]) -> bool:
    """Whether the run that is repeated has a place on the branch."""
    trigger, made = step.repeats.trigger_message_id, step.repeats.message_id
    return trigger is None or (made is None and trigger in triggers) or made in follows


def ids_after(ledger: Ledger, chat: str, message_id: str) -> list[str]:
    """The messages that follow a message on `main`, the only branch that has it."""
    ids = [message.id for message in ledger.get_messages(chat, branch="main")]
    return ids[ids.index(message_id) + 1 :]

"""A cascade reads as a conversation: what followed the edited message is carried over, and stale answers are replaced."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cases import case
from tests.support.run_stories import RunStory, answer_of
from tests.support.soak import examples
from tests.support.stories import CHAT, user

from chatledger.domain.chat.carry_over import lay_out
from chatledger.domain.chat.decide_branches import decide_fork
from chatledger.domain.chat.decide_runs import decide_carry_on
from chatledger.domain.chat.events import (
    BranchCreated,
    MessagesAnnotated,
    MessagesAppended,
    RegenerationBegun,
    RunChanged,
    RunRecorded,
)
from chatledger.domain.chat.history import for_model
from chatledger.domain.chat.runs import CarryOver, PlannedRun, RegenerationStep, Stretch, copy_id
from chatledger.domain.errors import InvalidValueError, MessageConflictError
from chatledger.domain.values import Annotation, Message, NewMessage

# Where messages and answers stand


def a_message(message_id: str, **rest: Any) -> Message:
    return Message(**{"id": message_id, "name": "user", "data": "", "created_at": 1, **rest})


def a_run(run_id: str, trigger: str | None, message_id: str | None, *references: str, agent: str = "a") -> PlannedRun:
    return PlannedRun(
        run_id=run_id, assistant_id=agent, runtime="python", trigger_message_id=trigger, message_id=message_id,
        checkpoint_id=None, depth=1, cause="trigger", thread_id="t", references=list(references),
    )  # fmt: skip


def laid_out(chain: str | Sequence[Message], *runs: PlannedRun, produced: Sequence[str] = ()) -> str:
    """The stretches after an edit of `q`, such as `R1 | m1 m2 R2`: the first and the last message, and the runs."""
    messages: list[Message] = []
    for message in map(a_message, chain.split()) if isinstance(chain, str) else chain:
        parent_id = messages[-1].id if messages else "q"
        messages.append(msgspec.structs.replace(message, parent_id=parent_id))
    stretches = lay_out("q", messages, runs, produced)
    assert all((one.first is None) == (one.last is None) and one != Stretch() for one in stretches)
    return " | ".join(" ".join(dict.fromkeys(filter(None, [one.first, one.last, *one.run_ids]))) for one in stretches)


def test_answers_stand_where_they_stood() -> None:
    """Neighbours in one stretch, in the order of the runs; what is not stale stands between them."""
    r1, r2, r3 = a_run("R1", "q", "a1"), a_run("R2", "m1", "a2", "a1"), a_run("R3", "q", "a3")
    for chain, runs, expected in [
        ("", [], ""),
        ("m1 m2 m3", [], "m1 m3"),
        ("a1", [r1], "R1"),
        ("a1 m1 a2 m2", [r1, r2], "R1 | m1 R2 | m2"),
        ("a1 a3 m1", [r1, r3], "R1 R3 | m1"),
        ("a3 a1 m1", [r1, r3], "R3 R1 | m1"),
        ("m1 a1 m2 m3", [r1], "m1 R1 | m2 m3"),
    ]:  # fmt: skip
        with case(chain):
            assert expected == laid_out(chain, *runs)


def test_an_answer_from_elsewhere_stands_here_unless_its_agent_goes_on_without_it() -> None:
    """What an agent says after an edit that it had not answered on this branch, it says without memory of an answer."""
    elsewhere = a_run("R1", "q", "a1")
    question, answer = a_message("m1"), a_message("a2", name="assistant", agent_id="a")

    assert "R1 | m1 a2" == laid_out([question, msgspec.structs.replace(answer, agent_id="b")], elsewhere)
    assert "m1 a2" == laid_out([question, answer], elsewhere)
    assert "R1 | m1 R2" == laid_out([question, answer], elsewhere, a_run("R2", "m1", "a2", "q"))


def test_an_answer_never_stands_before_what_it_needs() -> None:
    """It is left out where it stood, and follows what it refers to or is triggered by, however far that is behind."""
    for chain, runs, expected in [
        ("m1 a1 m2 a2", [a_run("R2", "q", "a2"), a_run("R1", "m1", "a1", "a2")], "m1 | m2 R2 R1"),
        ("a1 m2 a2", [a_run("R2", "q", "a2"), a_run("R1", "a2", "a1")], "m2 R2 R1"),
        ("a1 a3 m2 a2", [a_run("R2", "q", "a2"), a_run("R1", "a2", "a1"), a_run("R3", "a1", "a3")], "m2 R2 R1 R3"),
        ("m1 a1 m2 m3 a2", [a_run("R2", "q", "a2"), a_run("R1", "m1", "a1", "q", "a2", "m3")], "m1 | m2 m3 R2 R1"),
        ("a1 m1 a2", [a_run("R2", "q", "a2"), a_run("Rx", "a2", "x"), a_run("R1", "q", "a1", "x")], "m1 R2 R1"),
    ]:  # fmt: skip
        with case(chain):
            assert expected == laid_out(chain, *runs)


def test_a_message_that_several_runs_produced_stands_behind_the_last_of_them() -> None:
    late = a_run("R2", "q", "a2")
    twice = [late, a_run("R1", "q", "a1", "a2"), a_run("R1 again", "q", "a1")]

    assert "m1 R2 R1 | m2 R3" == laid_out("a1 m1 a2 m2 a3", *twice[:2], a_run("R3", "m2", "a3", "a1"))
    assert "R1 again | m1 R2 R1 R3 | m2" == laid_out("a1 m1 a3 a2 m2", *twice, a_run("R3", "m1", "a3", "a1"))


def test_a_run_without_an_answer_stands_after_its_trigger() -> None:
    """Or after the last message that it refers to, where nothing triggered it; nowhere if that is on another branch."""
    for run, expected in [
        (a_run("R", "q", None), "R | m1 m2"),
        (a_run("R", "m1", None, "q"), "m1 R | m2"),
        (a_run("R", "m1", None, "m2"), "m1 R | m2"),
        (a_run("R", None, None, "m1", "q"), "m1 R | m2"),
        (a_run("R", None, None, "q", "elsewhere"), "R | m1 m2"),
        (a_run("R", "elsewhere", None, "m1"), "m1 m2"),
        (a_run("R", None, None), "m1 m2"),
    ]:  # fmt: skip
        with case(run.trigger_message_id, run.references):
            assert expected == laid_out("m1 m2", run)


def test_an_answer_to_the_edited_message_on_another_branch() -> None:
    """An agent that answered it only there answers here with its last run; one that answered here too, as here."""
    here, there = a_run("R1", "q", "a1"), [a_run("X1", "q", "x1"), a_run("X2", "q", "x2")]
    other = a_run("Y", "q", "y", agent="b")
    for chain, runs, expected in [
        ("m1", there, "X2 | m1"),
        ("a1 m1", [here, *there], "R1 | m1"),
        ("a1 m1", [*there, here], "R1 | m1"),
        ("a1 m1", [here, other], "Y R1 | m1"),
        ("m1", [*there, other], "X2 Y | m1"),
        ("m1", [a_run("X1", "m1", "x1", "q")], "m1"),
        ("m1", [a_run("X", "q", "x", agent="b"), a_run("R", "q", None, "x")], "R X | m1"),
        ("m1 a1 m2", [a_run("R1", "m1", "a1", "q"), a_run("X", "q", "x", "a1", agent="b")], "m1 R1 X | m2"),
    ]:  # fmt: skip
        with case(chain, runs):
            assert expected == laid_out(chain, *runs)


def test_a_run_that_produced_the_edited_message_has_no_place() -> None:
    """What it produced is the new message. Neither does what depends on it wait for it."""
    circle = [a_run("R1", "q", "a1"), a_run("R2", "a1", "q"), a_run("R3", "m1", "a3", "q")]

    assert "R1 | m1 R3" == laid_out("a1 m1 a3", *circle)


def test_what_an_agent_said_on_the_way_goes_with_its_answer() -> None:
    """Calls of tools and their results, right before a stale answer, of the same agent or of nobody, that no run produced."""
    call, result = a_message("call", name="assistant"), a_message("result", name="tool")
    for on_the_way, expected in [
        ([call, result], "m1 R | m2"),
        ([a_message("call", name="tool", agent_id="a"), a_message("result", name="tool", agent_id="signed")], "m1 R | m2"),
        ([a_message("call", name="tool", agent_id="other"), result], "m1 call R | m2"),
        ([call, a_message("question")], "m1 question R | m2"),
        ([call, a_message("produced", name="tool")], "m1 produced R | m2"),
    ]:  # fmt: skip
        with case(on_the_way):
            chain = [
                a_message("m1"),
                *on_the_way,
                a_message("a1", name="assistant", agent_id="signed"),
                a_message("m2"),
            ]
            assert expected == laid_out(chain, a_run("R", "q", "a1"), produced=["produced", "a1"])
    assert "m1 call" == laid_out([a_message("m1"), call])


def test_calls_that_a_run_produced_are_no_part_of_another_answer() -> None:
    told = RunStory("q")
    told.append(NewMessage("tool", "", id="call"))
    told.record("rt", message_id="call")
    told.record("ra", "q", answer=answer_of("a1"))
    told.add(user("new"))
    told.begin(told.plan("q"), "new")
    record = told.chat().regeneration("g")

    assert record is not None
    assert (Stretch(first="call", last="call", run_ids=("ra",)),) == (record.carries and record.carries.stretches)


# The branch that is built


def talk(*, elsewhere: Sequence[str] = ()) -> RunStory:
    """q1 -> ra -> a1, q2 -> rb -> a2, q3 with a1 -> rc -> a3; and `new`, which is to replace q1."""
    told = RunStory(elsewhere=elsewhere)
    for question, answer, run_id, references in [
        ("q1", "a1", "ra", []),
        ("q2", "a2", "rb", []),
        ("q3", "a3", "rc", ["a1"]),
    ]:
        told.append(user(question))
        told.record(run_id, question, *references, answer=answer_of(answer))
    told.add(user("new"))
    return told


def built(
    told: RunStory, edited: str = "q1", new: str = "new", *, branch: str | None = None
) -> tuple[str | None, bool]:
    """Begin; return the name of the branch that is built, and whether it was created."""
    bodies = told.begin(told.plan(edited), new, branch=branch)
    return told.regeneration().branch, any(isinstance(body, BranchCreated) for body in bodies)


def test_the_branch_that_is_built() -> None:
    """The one named, which may have grown; else the one seen last that ends with the new message; else a new one there."""
    told = talk()
    assert ("main-v2", True) == built(told)
    told = talk()
    told.add(user("remark", parent_id="new"))
    told.write([BranchCreated(1, "b1", "empty", None, 9), BranchCreated(2, "b2", "named", "remark", 1)])
    assert ("main-v2", True) == built(told)
    told = talk()
    told.add(user("remark", parent_id="new"))
    told.write(
        [
            BranchCreated(1, "b2", "named", "remark", 1),
            BranchCreated(2, "b3", "there", "new", 2),
            BranchCreated(3, "b4", "later", "new", 3),
        ]
    )
    told.begin(told.plan("q1"), "new", branch="named", regeneration_id="h")
    told.repeat("ra", "ra anew", regeneration_id="h")
    told.complete("ra anew", answer_of("a1 anew"))
    assert ["new", "remark", "a1 anew", "q2'", "a2'", "q3'"] == told.read("named")
    assert ("later", False) == built(told)
    assert ["new"] == told.read("later")
    told.add(user("a2 edited", parent_id="q2"), user("more", parent_id="a2 edited"))
    told.write([BranchCreated(4, "b5", "grown", "more", 4)])
    told.begin(told.plan("a2"), "a2 edited", branch="grown", regeneration_id="j")
    assert ["q1", "a1", "q2", "a2 edited", "more", "q3'", "a3'"] == told.read("grown")
    told.write([BranchCreated(5, "b6", "empty", None, 9)])
    with pytest.raises(InvalidValueError, match="'empty'"):
        told.begin(told.plan("q1"), "new", branch="empty", regeneration_id="i")


def test_the_branch_seen_last_that_has_the_edited_message_is_carried_over() -> None:
    """The new branch is named after it; after the active one where no branch has the message."""
    told = talk()
    told.add(
        user("aside", parent_id="q2"), user("loose"), user("answer", parent_id="loose"), user("changed", parent_id="a1")
    )
    told.write([BranchCreated(1, "b1", "empty", None, 9), BranchCreated(2, "b2", "side", "aside", 1, is_active=True)])
    assert ("side-v2", True) == built(told, "q2", "changed")
    told.repeat("rb", "rb anew")
    told.complete("rb anew", answer_of("a2 anew"))
    assert ["q1", "a1", "changed", "a2 anew", "aside'"] == told.read("side-v2")

    told = talk()
    told.add(user("loose"), user("answer", parent_id="loose"), user("changed"))
    told.write([BranchCreated(1, "b1", "side", "answer", 1)])
    assert ("side-v2", True) == built(told, "loose", "changed")
    assert ["changed", "answer'"] == told.read("side-v2")

    told = talk()
    told.add(user("loose"), user("answer", parent_id="loose"), user("changed"))
    told.write([BranchCreated(1, "b1", "side", "new", 1, is_active=True)])
    assert ("side-v2", True) == built(told, "loose", "changed")
    assert ["changed"] == told.read("side-v2")


def test_a_branch_is_not_carried_over_to_itself() -> None:
    """It ends with the edited message, whose answers are repeated there: the conversation is on another one."""
    told = talk()
    told.write([BranchCreated(1, "b1", "side", "q2", 1, is_active=True)])
    assert ("side", False) == built(told, "q2", "q2")
    told.repeat("rb", "rb anew")
    told.complete("rb anew", answer_of("a2 anew"))
    assert ["q1", "a1", "q2", "a2 anew", "q3'", "a3'"] == told.read("side")


def test_nothing_is_carried_over_behind_the_edited_message() -> None:
    """A correction that comes later stands after the conversation already; its answers go where answers go."""
    told = talk()
    told.append(user("later"))
    assert (None, False) == built(told, "q1", "later")
    record = told.chat().regeneration("g")
    assert record is not None
    assert record.carries is None
    told.repeat("ra", "ra anew")
    assert [MessagesAppended, RunChanged, MessagesAnnotated] == [
        type(body) for body in told.complete("ra anew", answer_of("a1 anew"))
    ]
    assert ["later", "a1 anew"] == told.read("main")[-2:]


# Copies


def test_copies_say_the_same() -> None:
    """What is hidden stays hidden; a message stays as it came; who said it, when, and to whom stays, in the words of the branch."""
    told = talk()
    ui = {"id": "ui", "role": "user", "parts": []}
    told.append(NewMessage("user", ui, id="ui", type="t", sender_id="ada", reply_to="a1", created_at=5))
    told.annotate("ui", hidden=True, metadata={"by": "ada"})
    told.annotate("a2", replaced_by="q2")
    told.annotate("q3", replaced_by="ui", stale=True)
    told.begin(told.plan("q1"), "new")
    told.repeat("ra", "ra anew")
    appended = [body for body in told.complete("ra anew", answer_of("a1 anew")) if isinstance(body, MessagesAppended)]
    assert all(message.annotation is None for body in appended for message in body.messages)
    told.repeat("rc", "rc anew")
    told.complete("rc anew")
    copies = {message.copied_from: message for message in told.chat().messages}
    copy = copies["ui"]

    assert Message(
        id=copy_id("g", "ui"), chat_id=CHAT, parent_id=copies["q3"].id, name="user", type="t", data=ui, form="ui",
        created_at=5, sender_id="ada", reply_to="a1 anew", copied_from="ui", annotation=Annotation(hidden=True, metadata={"by": "ada"}),
    ) == copy  # fmt: skip
    assert Annotation(replaced_by=copies["q2"].id) == copies["a2"].annotation
    assert Annotation(replaced_by="ui", stale=True) == copies["q3"].annotation  # it was not copied then


def test_runs_of_copies_refer_to_what_is_on_the_branch() -> None:
    """To copies, what is new, or what both branches have. They were not executed; they name the run that they are copies of."""
    told = talk()
    told.append(user("q4"))
    told.record(
        "rd",
        "q4",
        "a1",
        "q3",
        "a2",
        answer=answer_of("a4"),
        metadata={"k": 1},
        checkpoint_id="cp",
        regeneration_id="old",
    )
    told.record("re", message_id="a4")
    told.add(user("a2 anew", parent_id="q2"))
    told.write([BranchCreated(1, "b", "built", "a2 anew", 1)])
    stretches = (Stretch(first="q3", last="a4"),)
    told.write([RegenerationBegun("g", "a2", "a2 anew", (), (), carries=CarryOver(branch_id="b", stretches=stretches))])
    _, third, fourth, fifth = decide_carry_on(told.chat(), "g")
    runs = [
        RunRecorded(
            msgspec.structs.replace(
                run.recorded, id=copy_id("g", run.id), run_id=copy_id("g", run.run_id), chat_id="", trigger_message_id=trigger,
                references=references, message_id=copy_id("g", answer), repeats=run.run_id, regeneration_id=None,
            ),
            metadata,
        )
        for run_id, trigger, references, answer, metadata in [
            ("rc", copy_id("g", "q3"), ["a1"], "a3", None),
            ("rd", copy_id("g", "q4"), ["a1", copy_id("g", "q3"), "a2 anew"], "a4", {"k": 1}),
            ("re", None, [], "a4", None),
        ]
        if (run := told.chat().run(run_id)) is not None
    ]  # fmt: skip

    assert runs == [third, fourth, fifth]


def test_a_commit_that_is_full_leaves_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs and annotations count; the rest follows in order, and steps behind it wait for it."""
    monkeypatch.setattr("chatledger.domain.chat.carry_over._MAX_EVENTS", 2)
    told = talk()
    told.annotate("q3", hidden=True)
    told.append(user("thanks"), user("bye"))
    told.begin(told.plan("q1"), "new")
    told.repeat("ra", "ra anew")
    told.complete("ra anew", answer_of("a1 anew"))
    assert ["new", "a1 anew", "q2'", "a2'", "q3'"] == told.read("main-v2")
    assert "ready" == told.regeneration().steps[1].status

    told = talk()
    told.annotate("q2", hidden=True)
    told.begin(told.plan("q1"), "new")
    told.repeat("ra", "ra anew")
    told.complete("ra anew", answer_of("a1 anew"))
    assert ["new", "a1 anew", "q2'", "a2'"] == told.read("main-v2")
    assert "waiting" == told.regeneration().steps[1].status
    told.decided(decide_carry_on(told.chat(), "g"))
    assert ["new", "a1 anew", "q2'", "a2'", "q3'"] == told.read("main-v2")
    assert "ready" == told.regeneration().steps[1].status
    assert [] == decide_carry_on(told.chat(), "g")


def test_what_cannot_be_copied_is_left_out() -> None:
    """Where an import brought only a part of the chat, or another order, the branch stays as it is."""
    for first, last, expected in [
        (None, None, []), ("q2", None, []), (None, "q3", []), ("none", "q3", []), ("q2", "none", []), ("q3", "q2", []), ("new", "q2", []),
        ("q2", "q2", ["q2'"]), ("q2", "q3", ["q2'", "a2'", "q3'"]), ("q1", "a1", ["q1'", "a1'"]),
    ]:  # fmt: skip
        with case(first, last):
            told = talk()
            stretches = (Stretch(first=first, last=last), Stretch(run_ids=("ra",)), Stretch(first="a3", last="a3"))
            begun = RegenerationBegun("g", "q1", "new", (), (), carries=CarryOver(branch_id="b", stretches=stretches))
            told.write([BranchCreated(1, "b", "built", "new", 1), begun])
            told.decided(decide_carry_on(told.chat(), "g"))
            assert ["new", *expected] == told.read("built")


def test_an_id_that_is_taken() -> None:
    """A message of another chat is refused; a run that was recorded under that id is the copy."""
    told = talk(elsewhere=[copy_id("g", "q3")])
    told.record(copy_id("g", "rb"))
    told.begin(told.plan("q1"), "new")
    told.repeat("ra", "ra anew")
    with pytest.raises(MessageConflictError, match="used in another chat") as caught:
        told.complete("ra anew", answer_of("a1 anew"))
    assert (copy_id("g", "q3"), CHAT) == (caught.value.message_id, caught.value.chat_id)

    told = talk()
    told.record(copy_id("g", "rb"))
    told.begin(told.plan("q1"), "new")
    told.repeat("ra", "ra anew")
    assert not any(isinstance(body, RunRecorded) for body in told.complete("ra anew", answer_of("a1 anew")))


# The branch of an edit


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
    """A conversation, the edit of one of its questions, and what is to become of it."""

    def __init__(self, slots: list[Slot], edited: int) -> None:
        self.told, self.slots = RunStory(), slots
        self.stale = stale_runs(slots, edited)
        for slot in slots:
            if slot.agent is None:
                self.told.append(user(str(slot.message), f"question {slot.message}"))
            else:
                self.answer(slot, slot.agent)
        self.before = self.chain("main")
        at = next(n for n, message in enumerate(self.before) if message.id == str(edited))
        self.told.add(user("new", "edited", parent_id=self.before[at].parent_id))
        self.told.begin(self.told.plan(str(edited)), "new")
        self.edited, self.order = edited, list[str]()

    def answer(self, slot: Slot, agent: str) -> None:
        self.told.record(agent, *map(str, slot.needs))
        if slot.message is None:
            return
        for number in range(slot.tools):
            name = "tool" if number % 2 else "assistant"
            self.told.append(NewMessage(name, f"tools of {agent}", id=f"{agent} {number}", agent_id=agent))
        self.told.complete(agent, answer_of(str(slot.message), f"answer of {agent}"))

    def chain(self, branch: str) -> list[Message]:
        chat = self.told.chat()
        head = chat.branch(branch)
        assert head is not None
        return [] if head.head_message_id is None else chat.get_chain(head.head_message_id)

    def built(self) -> list[Any]:
        return [message.data for message in self.chain("main-v2")]

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
        told, run_id = self.told, f"{step.repeats.run_id}b"
        told.repeat(step.repeats.run_id, run_id)
        assert step.trigger_message_id is not None
        self.check_context(step.trigger_message_id)
        if fails:
            built = self.built()
            told.fail(run_id)
            assert built == self.built()
            run_id = f"{step.repeats.run_id}c"
            told.repeat(step.repeats.run_id, run_id)
        said = f"new answer of {step.repeats.assistant_id}"
        self.order.append(said)
        told.complete(run_id, answer_of(said, said))
        assert [] == told.complete(run_id, answer_of(said, said))

    def check_context(self, trigger: str) -> None:
        """The trigger stands on the branch, and nothing stale comes before it."""
        chat = self.told.chat()
        context = [message.data for message in for_model(chat, chat.get_chain(trigger), always=trigger)]
        assert context == self.built()[: len(context)]
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


@settings(max_examples=examples(400), deadline=None)
@given(conversations(), st.data())
def test_the_branch_of_an_edit_reads_as_a_conversation(slots: list[Slot], data: st.DataObject) -> None:
    """Whatever runs refer to, and in whatever order they are repeated: the branch grows in order, up to the model's."""
    questions = [slot.message for slot in slots if slot.agent is None and slot.message is not None]
    world = World(slots, data.draw(st.sampled_from(questions)))
    seen = [world.built()]
    while ready := world.told.regeneration().ready:
        world.repeat(data.draw(st.sampled_from(ready)), fails=data.draw(st.integers(0, 4)) == 0)
        seen.append(world.built())

    assert world.told.regeneration().is_done
    assert world.expected() == seen[-1]
    assert all(built == seen[-1][: len(built)] for built in seen)
    assert [(one.id, one.data) for one in world.before] == [(one.id, one.data) for one in world.chain("main")]
    check_copies(world)
    check_next_plans(world, questions)


def check_copies(world: World) -> None:
    """Each copy says what its original said, and names it; runs of copies name copies and new messages."""
    chat, built = world.told.chat(), world.chain("main-v2")
    ids = {message.id for message in built}
    for message in built:
        if message.copied_from is not None:
            original = chat.message(message.copied_from)
            assert original is not None
            assert (original.data, original.agent_id, original.created_at) == (
                message.data, message.agent_id, message.created_at,
            )  # fmt: skip
            assert len(chat.runs(message_id=original.id)) == len(chat.runs(message_id=message.id))
        assert message.reply_to is None or message.reply_to in ids
        for run in chat.runs(message_id=message.id):
            assert ids >= {run.trigger_message_id, *run.references}


def check_next_plans(world: World, questions: list[int]) -> None:
    """The next edit, on the new branch, finds there what it would have found on the old one."""
    copies = {message.copied_from: message.id for message in world.chain("main-v2")}
    for question in questions:
        if str(question) in copies:
            plan = world.told.plan(copies[str(question)])
            answered = {slot.agent for slot in world.slots if slot.message is not None or slot.agent in world.stale}
            assert {run.assistant_id for run in plan.runs} == stale_runs(world.slots, question) & answered


def test_no_run_is_held_up_by_one_that_waits_for_it() -> None:
    """All of one agent: R1 waits for what R0 says, R0 for R2, which stands before it on the branch and behind both in the plan."""
    told = RunStory()
    for n in range(3):
        told.append(user(f"m{n}"))
    for run_id, trigger, made in [("R0", "m0", "m2"), ("R1", "m2", "m0"), ("R2", "m0", None)]:
        told.record(run_id, trigger, assistant_id="a", message_id=made)
    told.add(user("new", "edited"))
    told.begin(told.plan("m0"), "new")

    repeated: list[str] = []
    while ready := told.regeneration().ready:
        repeated.append(ready[0].repeats.run_id)
        told.repeat(repeated[-1], f"again {repeated[-1]}")
        told.complete(f"again {repeated[-1]}", answer_of(f"again {repeated[-1]}"))

    assert ["R2", "R0", "R1"] == repeated
    assert told.regeneration().is_done


names = st.sampled_from([f"m{n}" for n in range(6)])
graphs = st.lists(st.tuples(st.none() | names, st.none() | names, st.lists(names, max_size=2)), max_size=8)


@settings(max_examples=examples(400), deadline=None)
@given(graphs, st.integers(0, 5), st.integers(0, 5), st.data())
def test_whatever_refers_to_what(graph: Any, edited: int, fork: int, data: st.DataObject) -> None:
    """Circles, answers before their triggers, runs on other branches: it comes to its end, and nothing is lost or doubled."""
    told = RunStory()
    for n in range(6):
        told.append(user(f"m{n}"))
        if n == fork and n < 5:
            told.decided(decide_fork(told.chat(), f"m{n}", activate=True, branch_id="fork", created_at=told.time))
    for number, (trigger, made, references) in enumerate(graph):
        told.record(f"R{number}", trigger, *references, assistant_id="a", message_id=made)
    old = f"m{edited}"
    on_main = told.read("main")
    shown = told.read("main-v2") if fork < 5 else on_main
    edited_message = told.chat().message(old)
    assert edited_message is not None
    told.add(user("new", "edited", parent_id=edited_message.parent_id))
    plan = told.plan(old)
    told.begin(plan, "new")
    answers: list[str] = []
    while ready := told.regeneration().ready:
        step = data.draw(st.sampled_from(ready))
        answers.append(f"new {len(answers)}")
        told.repeat(step.repeats.run_id, answers[-1])
        told.complete(answers[-1], answer_of(answers[-1]))

    regeneration = told.regeneration()
    assert regeneration.is_done
    chain = shown if old in shown else on_main
    follows = chain[chain.index(old) + 1 :]
    assert regeneration.branch is not None
    built = told.read(regeneration.branch)
    kept = [f"{one}'" for one in follows if one not in plan.stale_message_ids]
    assert kept == [one for one in built if one.endswith("'")]
    placed = [step for step in regeneration.steps if stands(step, {old, *follows}, follows)]
    answering = [step for step in regeneration.steps if step.repeats.trigger_message_id == old]
    if not any(step in placed for step in answering):
        placed += answering[-1:]
    made = [step.run.message_id for step in placed if step.run is not None]
    assert sorted(filter(None, made)) == sorted(one for one in built if one in answers)


def stands(step: RegenerationStep, triggers: set[str], follows: list[str]) -> bool:
    """Whether the run that is repeated has a place on the branch."""
    trigger, made = step.repeats.trigger_message_id, step.repeats.message_id
    return trigger is None or (made is None and trigger in triggers) or made in follows

"""Regenerations: what an edit makes stale is repeated step by step, by several agents, across crashes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.ledger_world import Worker, stored, text

import chatledger
from chatledger import Annotation, InvalidValueError, Ledger, NewMessage
from chatledger.errors import (
    ChatNotFoundError,
    MessageNotFoundError,
    PlanOutdatedError,
    RegenerationNotFoundError,
    RunConflictError,
    RunNotFoundError,
    RunStatusError,
    WrongChatError,
)
from chatledger.runs import Regeneration

STALE = Annotation(stale=True)


def converse(ledger: Ledger) -> None:
    """M1 -> R1 -> M2, M3 -> R2 -> M4, M5 (references M2) -> R3 -> M6: acceptance 9."""
    ledger.create_chat("c", "ada")
    agents: list[tuple[str, list[str]]] = [("research", []), ("writer", []), ("critic", ["M2"])]
    for number, (agent, references) in enumerate(agents, 1):
        question, reply = f"M{number * 2 - 1}", f"M{number * 2}"
        ledger.append("c", [text("a question", id=question)])
        ledger.record_run(
            "c", f"R{number}", thread_id="c", assistant_id=agent, trigger_message_id=question, references=references
        )
        answer = NewMessage("assistant", "an answer", id=reply)
        ledger.complete_run("c", f"R{number}", answer=answer, checkpoint_id=f"cp{number}")


@pytest.fixture
def ledger() -> Any:
    with chatledger.open("memory:") as ledger:
        converse(ledger)
        yield ledger


def edit(ledger: Ledger) -> None:
    """Another M1 on a branch of its own."""
    ledger.add_messages("c", [text("another question", id="M1b")])
    ledger.create_branch("c", "edited", "M1b")


def begin(ledger: Ledger, max_cascade: int = 5) -> Regeneration:
    edit(ledger)
    plan = ledger.plan_regeneration("c", "M1", max_cascade)
    return ledger.begin_regeneration(plan, new_message_id="M1b", regeneration_id="g")


def statuses(regeneration: Regeneration | None) -> dict[str, str]:
    assert regeneration is not None
    return {step.repeats.run_id: step.status for step in regeneration.steps}


def answer_with(message_id: str) -> NewMessage:
    return NewMessage("assistant", "another answer", id=message_id)


def test_planning_writes_nothing(ledger: Ledger) -> None:
    """NS, acceptance 9 and 10."""
    position = ledger.position
    plan = ledger.plan_regeneration("c", "M1", max_cascade=1)

    assert [("R1", "research", "cp1"), ("R3", "critic", "cp3")] == [
        (run.run_id, run.assistant_id, run.checkpoint_id) for run in plan.runs
    ]
    assert (["R1"], ["R3"], ["M2", "M6"]) == (plan.automatic, plan.awaiting_approval, plan.stale_message_ids)
    assert position == ledger.position
    assert 5 == ledger.plan_regeneration("c", "M1").max_cascade
    for chat_id, message_id, error in (("none", "M1", ChatNotFoundError), ("c", "none", MessageNotFoundError)):
        with pytest.raises(error):
            ledger.plan_regeneration(chat_id, message_id)
    with pytest.raises(InvalidValueError):
        ledger.plan_regeneration("c", "M1", -1)


def test_what_is_stale_is_marked_in_one_commit(ledger: Ledger) -> None:
    """NS-45: and marking it again writes nothing."""
    ledger.annotate("c", "M6", hidden=True, replaced_by="M4")
    position = ledger.position
    plan = ledger.plan_regeneration("c", "M1")

    assert ["M2", "M6"] == ledger.mark_stale(plan)
    assert ["message_annotated"] == [one.type for one in ledger.history("c", after=position)]
    assert {"M2": STALE, "M6": Annotation(stale=True, hidden=True)} == ledger.get_annotations("c")
    position = ledger.position
    assert ["M2", "M6"] == ledger.mark_stale(plan)
    assert [] == ledger.mark_stale(ledger.plan_regeneration("c", "M6"))
    assert position == ledger.position


def test_a_regeneration_from_begin_to_end(ledger: Ledger) -> None:
    """Each step is triggered by what is new; the old records stay; what is replaced says by what (NS-45, NS-46)."""
    regeneration = begin(ledger)
    assert {"R1": "ready", "R3": "waiting"} == statuses(regeneration)
    assert {"M1": Annotation(replaced_by="M1b"), "M2": STALE, "M6": STALE} == ledger.get_annotations("c")
    old = [ledger.get_run("c", run_id) for run_id in ("R1", "R2", "R3")]

    with pytest.raises(RunStatusError, match=r"'waiting'.*depends on"):
        ledger.repeat_run("c", "g", "R3")
    first = ledger.repeat_run("c", "g", "R1", run_id="R1b")
    assert ("c", "research", "M1b", "running", "R1", "g") == (
        first.thread_id, first.assistant_id, first.trigger_message_id, first.status, first.repeats, first.regeneration_id,
    )  # fmt: skip
    ledger.complete_run("c", "R1b", answer=answer_with("M2b"), branch="edited")
    second = ledger.repeat_run("c", "g", "R3", status="pending")
    assert second.trigger_message_id is not None
    assert ("critic", "M5", ["M2b"], "pending") == (
        second.assistant_id, stored(ledger, second.trigger_message_id).copied_from, second.references, second.status,
    )  # fmt: skip
    ledger.start_run("c", second.run_id)
    ledger.complete_run("c", second.run_id, answer=answer_with("M6b"), branch="edited")

    done = ledger.get_regeneration("c", "g")
    assert done is not None
    assert done.is_done
    assert [first.run_id, second.run_id] == [step.run.run_id for step in done.steps if step.run]
    assert [done] == ledger.regenerations("c")
    assert old == [ledger.get_run("c", run_id) for run_id in ("R1", "R2", "R3")]
    assert {
        "M1": Annotation(replaced_by="M1b"),
        "M2": Annotation(stale=True, replaced_by="M2b"),
        "M6": Annotation(stale=True, replaced_by="M6b"),
    } == ledger.get_annotations("c")
    assert ["M1b", "M2b", "M3", "M4", "M5", "M6b"] == [
        message.copied_from or message.id for message in ledger.get_messages("c", branch="edited")
    ]
    answered = next(ledger.feed(0, topics={"message_annotated"}, follow=False))
    assert "message_annotated" == answered.type


def test_beginning_again_changes_nothing(ledger: Ledger) -> None:
    plan = ledger.plan_regeneration("c", "M1")
    first = begin(ledger)
    ledger.repeat_run("c", "g", "R1")
    position, now = ledger.position, ledger.get_regeneration("c", "g")

    assert now == ledger.begin_regeneration(plan, new_message_id="M1b", regeneration_id="g")
    assert position == ledger.position
    assert first.id == "g"
    with pytest.raises(RunConflictError, match="after an edit of 'M1'"):
        ledger.begin_regeneration(plan, new_message_id="M3", regeneration_id="g")
    with pytest.raises(RunConflictError, match="after an edit of 'M1'"):
        ledger.begin_regeneration(ledger.plan_regeneration("c", "M3"), new_message_id="M1b", regeneration_id="g")


def test_a_plan_gets_old(ledger: Ledger) -> None:
    """Runs that were recorded after planning would be forgotten."""
    edit(ledger)
    plan = ledger.plan_regeneration("c", "M1")
    ledger.record_run("c", "R4", thread_id="c", assistant_id="late", trigger_message_id="M6")
    position = ledger.position

    with pytest.raises(PlanOutdatedError, match="plan again"):
        ledger.begin_regeneration(plan, new_message_id="M1b")
    assert position == ledger.position
    regeneration = ledger.begin_regeneration(ledger.plan_regeneration("c", "M1"), new_message_id="M1b")
    assert {"R1": "ready", "R3": "waiting", "R4": "waiting"} == statuses(regeneration)


def test_runs_beyond_the_bound_need_approval(ledger: Ledger) -> None:
    """NS-44: 0 means all; the approval is kept, and given once."""
    assert {"R1": "awaiting_approval", "R3": "awaiting_approval"} == statuses(begin(ledger, max_cascade=0))
    with pytest.raises(RunStatusError, match="approve it first"):
        ledger.repeat_run("c", "g", "R1")
    with pytest.raises(RunNotFoundError):
        ledger.approve_regeneration("c", "g", ["R1", "R2"])
    with pytest.raises(InvalidValueError):
        ledger.approve_regeneration("c", "g", "R1")

    assert {"R1": "ready", "R3": "awaiting_approval"} == statuses(ledger.approve_regeneration("c", "g", ["R1"]))
    assert {"R1": "ready", "R3": "waiting"} == statuses(ledger.approve_regeneration("c", "g"))
    position = ledger.position
    assert {"R1": "ready", "R3": "waiting"} == statuses(ledger.approve_regeneration("c", "g"))
    assert position == ledger.position
    approved = [one.to_dict()["payload"]["run_ids"] for one in ledger.history("c", topics={"regeneration_approved"})]
    assert [("R1",), ("R3",)] == approved


def test_a_step_is_repeated_by_one_run(ledger: Ledger) -> None:
    """Asking again gives the run that is there, another id is refused, and after a failure there may be another."""
    begin(ledger)
    run = ledger.repeat_run("c", "g", "R1", run_id="R1b")
    position = ledger.position
    assert run == ledger.repeat_run("c", "g", "R1") == ledger.repeat_run("c", "g", "R1", run_id="R1b")
    assert position == ledger.position
    for run_id in ("R1c", "R2"):
        with pytest.raises(RunConflictError, match="repeats 'R1' already"):
            ledger.repeat_run("c", "g", "R1", run_id=run_id)

    ledger.fail_run("c", "R1b")
    assert {"R1": "error", "R3": "waiting"} == statuses(ledger.get_regeneration("c", "g"))
    with pytest.raises(RunConflictError, match="recorded with another"):
        ledger.repeat_run("c", "g", "R1", run_id="R2")
    assert "running" == ledger.repeat_run("c", "g", "R1", run_id="R1c").status
    ledger.fail_run("c", "R1c")
    with pytest.raises(RunConflictError, match="earlier attempt"):
        ledger.repeat_run("c", "g", "R1", run_id="R1b")
    last = ledger.repeat_run("c", "g", "R1")
    assert last.run_id not in {"R1b", "R1c"}
    ledger.complete_run("c", last.run_id, message_id="M1b")
    assert last.run_id == ledger.repeat_run("c", "g", "R1").run_id
    assert {"R1": "completed", "R3": "ready"} == statuses(ledger.get_regeneration("c", "g"))


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "no regeneration": (lambda ledger: ledger.repeat_run("c", "none", "R1"), RegenerationNotFoundError),
    "not planned": (lambda ledger: ledger.repeat_run("c", "g", "R2"), RunNotFoundError),
    "no chat": (lambda ledger: ledger.repeat_run("none", "g", "R1"), ChatNotFoundError),
    "completed": (lambda ledger: ledger.repeat_run("c", "g", "R1", status="completed"), InvalidValueError),
    "approve none": (lambda ledger: ledger.approve_regeneration("c", "none"), RegenerationNotFoundError),
    "no plan": (lambda ledger: ledger.mark_stale("M1"), InvalidValueError),
    "begin none": (lambda ledger: ledger.begin_regeneration(None, new_message_id="M1b"), InvalidValueError),
    "no new message": (
        lambda ledger: ledger.begin_regeneration(planned(ledger), new_message_id="none"),
        MessageNotFoundError,
    ),
    "new message elsewhere": (
        lambda ledger: ledger.begin_regeneration(planned(ledger), new_message_id="there"),
        WrongChatError,
    ),
    "another chat": (
        lambda ledger: ledger.begin_regeneration(planned(ledger, chat_id="none"), new_message_id="M1b"),
        ChatNotFoundError,
    ),
    "stale elsewhere": (lambda ledger: ledger.mark_stale(planned(ledger, stale_message_ids=["there"])), WrongChatError),
}


@pytest.mark.parametrize(("call", "error"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused_writes_nothing(ledger: Ledger, call: Callable[[Ledger], Any], error: type[Exception]) -> None:
    begin(ledger)
    ledger.create_chat("elsewhere", "ada")
    ledger.append("elsewhere", [text("there", id="there")])
    position = ledger.position
    with pytest.raises(error):
        call(ledger)

    assert position == ledger.position
    assert ledger.get_regeneration("c", "none") is None
    assert [] == ledger.regenerations("none")


def planned(ledger: Ledger, **changes: Any) -> Any:
    return msgspec.structs.replace(ledger.plan_regeneration("c", "M1"), **changes)


def test_agents_that_refer_to_each_other(ledger: Ledger) -> None:
    """NS-43: two agents answer each other in a circle; each run is repeated once, in order, and the new question stays."""
    ledger.create_chat("circle", "ada")
    ledger.append("circle", [text("talk", id="q"), *(NewMessage("assistant", n, id=f"a{n}") for n in range(4))])
    for number in range(4):
        before = "q" if number == 0 else f"a{number - 1}"
        ledger.record_run(
            "circle", f"r{number}", thread_id="t", assistant_id="AB"[number % 2], trigger_message_id=before,
            references=["a3"], message_id="q" if number == 3 else f"a{number}",
        )  # fmt: skip
    ledger.append("circle", [text("talk more", id="new")])
    plan = ledger.plan_regeneration("circle", "q")
    regeneration = ledger.begin_regeneration(plan, new_message_id="new")
    order: list[str] = []
    while ready := regeneration.ready:
        for step in ready:
            order.append(step.repeats.run_id)
            run = ledger.repeat_run("circle", regeneration.id, step.repeats.run_id)
            ledger.complete_run("circle", run.run_id, answer=answer_with(f"new {step.repeats.message_id}"))
        regeneration = ledger.regenerations("circle")[0]

    assert ["r0", "r1", "r2", "r3"] == order
    assert regeneration.is_done
    triggers = [step.trigger_message_id for step in regeneration.steps]
    assert ["new", "new a0", "new a1", "new a2"] == triggers
    assert Annotation(stale=True, replaced_by="new q") == ledger.get_annotations("circle")["q"]


def test_answers_to_the_same_question(ledger: Ledger) -> None:
    """Several agents that were asked at once are repeated at once, and who depends on all of them waits for all."""
    ledger.create_chat("panel", "ada")
    ledger.append("panel", [text("well?", id="q")])
    for agent in ("a", "b"):
        ledger.record_run(
            "panel", agent, thread_id="t", assistant_id=agent, trigger_message_id="q", answer=answer_with(f"of {agent}")
        )
    ledger.record_run(
        "panel", "judge", thread_id="t", assistant_id="judge", trigger_message_id="of b", references=["of a"]
    )
    ledger.append("panel", [text("well, now?", id="new")])
    ledger.begin_regeneration(ledger.plan_regeneration("panel", "q"), new_message_id="new", regeneration_id="g")

    def ready() -> list[str]:
        regeneration = ledger.get_regeneration("panel", "g")
        assert regeneration is not None
        return [step.repeats.run_id for step in regeneration.ready]

    assert ["a", "b"] == ready()
    for agent, left in (("b", ["a"]), ("a", ["judge"])):
        run = ledger.repeat_run("panel", "g", agent)
        ledger.complete_run("panel", run.run_id, answer=answer_with(f"new of {agent}"))
        assert left == ready()
    judge = ledger.repeat_run("panel", "g", "judge")
    assert ("new of b", ["new of a"]) == (judge.trigger_message_id, judge.references)


@pytest.mark.soak
@pytest.mark.parametrize("killed_after", range(7))
def test_a_crash_in_between(killed_after: int, tmp_path: Path) -> None:
    """Killed after any step, another process reads how far it was, goes on, and nothing happens twice."""
    path = tmp_path / "data"
    with chatledger.open(path, durability="fast") as ledger:
        converse(ledger)
        edit(ledger)
        plan = ledger.plan_regeneration("c", "M1", 1)
        ledger.begin_regeneration(plan, new_message_id="M1b", regeneration_id="g")
        ledger.add_messages("c", [text("new", id="M2b", parent_id="M1b"), text("new", id="M6b", parent_id="M5")])
    calls: list[tuple[str, list[Any], dict[str, Any]]] = [
        ("repeat_run", ["c", "g", "R1"], {"run_id": "R1b"}),
        ("complete_run", ["c", "R1b"], {"message_id": "M2b"}),
        ("approve_regeneration", ["c", "g"], {}),
        ("repeat_run", ["c", "g", "R3"], {"run_id": "R3b", "status": "pending"}),
        ("start_run", ["c", "R3b"], {}),
        ("complete_run", ["c", "R3b"], {"message_id": "M6b"}),
    ]
    with Worker(path, durability="fast").ready() as worker:
        for method, args, options in calls[:killed_after]:
            worker.answer(method, *args, **options)
        worker.kill()

    expected = [
        ("ready", "awaiting_approval"), ("running", "awaiting_approval"), ("completed", "awaiting_approval"),
        ("completed", "ready"), ("completed", "pending"), ("completed", "running"), ("completed", "completed"),
    ]  # fmt: skip
    with chatledger.open(path, durability="fast") as ledger:
        assert expected[killed_after] == tuple(statuses(ledger.get_regeneration("c", "g")).values())
        for method, args, options in calls[max(killed_after - 1, 0) :]:
            getattr(ledger, method)(*args, **options)
        done = ledger.get_regeneration("c", "g")
        assert done is not None
        assert done.is_done
        assert ["R1", "R2", "R3", "R1b", "the copy of R2", "R3b"] == [
            "the copy of R2" if (run.repeats, run.regeneration_id) == ("R2", None) else run.run_id
            for run in ledger.runs("c")
        ]
        recorded = [one.type for one in ledger.history("c") if one.type.startswith(("run", "regeneration"))]
        assert 6 + 3 + 3 + 2 == len(recorded)
        built = ledger.get_messages("c", branch="edited")
        assert ["M1b", "M3", "M4", "M5"] == [message.copied_from or message.id for message in built]
        assert Annotation(stale=True, replaced_by="M6b") == ledger.get_annotations("c")["M6"]
        ledger.rebuild()
        assert done == ledger.get_regeneration("c", "g")
        ledger.verify()

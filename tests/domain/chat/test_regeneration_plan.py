"""Plans of regenerations: which messages an edit makes stale, and how far its repetition is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatledger.domain.chat.regeneration import plan_regeneration, regeneration_of
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.chat.runs import MessageRun, PlannedRun, Regeneration, RegenerationPlan, RegenerationRecord
from chatledger.domain.errors import InvalidValueError

CHAT = "c"


def a_run(run_id: str, trigger: str | None, message: str | None, *references: str, **rest: Any) -> MessageRun:
    values: dict[str, Any] = {
        "id": f"record of {run_id}",
        "thread_id": "t",
        "assistant_id": "a",
        "status": "running" if message is None else "completed",
        "created_at": 1,
        "updated_at": 1,
        **rest,
    }
    return MessageRun(
        run_id=run_id, trigger_message_id=trigger, message_id=message, references=list(references), **values
    )


SCENARIO = [a_run("R1", "M1", "M2"), a_run("R2", "M3", "M4"), a_run("R3", "M5", "M6", "M2")]


def test_a_reference_carries_an_edit_on() -> None:
    """NS, acceptance 9: R1 and R3 are stale in this order, R2 is not; with a bound of 1, R3 awaits approval."""
    plan = plan_regeneration(CHAT, "M1", SCENARIO, max_cascade=1, lineage={})

    assert [("R1", 1, "trigger"), ("R3", 2, "reference")] == [(run.run_id, run.depth, run.cause) for run in plan.runs]
    assert (["M2", "M6"], ["R1"], ["R3"], True) == (
        plan.stale_message_ids,
        plan.automatic,
        plan.awaiting_approval,
        plan.needs_approval,
    )


def test_a_plan_has_runs_as_they_were_recorded() -> None:
    run = a_run("R", "M1", "M2", "M0", assistant_id="b", runtime="ts", checkpoint_id="cp", thread_id="t2")

    assert RegenerationPlan(
        chat_id=CHAT, edited_message_id="M1", stale_message_ids=["M2"], automatic=["R"], awaiting_approval=[], max_cascade=1,
        needs_approval=False, runs=[
            PlannedRun(
                run_id="R", assistant_id="b", runtime="ts", trigger_message_id="M1", message_id="M2", checkpoint_id="cp",
                depth=1, cause="trigger", thread_id="t2", references=["M0"],
            )
        ],
    ) == plan_regeneration(CHAT, "M1", [run], max_cascade=1, lineage={})  # fmt: skip


@pytest.mark.parametrize(("bound", "automatic"), [(0, 0), (5, 5), (39, 39), (40, 40), (100, 40)])
def test_the_bound_is_on_the_whole_cascade(bound: int, automatic: int) -> None:
    """NS, acceptance 10: of 40 runs, each depending on the one before, as many are automatic as the bound says."""
    runs = [a_run(f"R{n}", f"M{n}", f"M{n + 1}") for n in range(40)]
    plan = plan_regeneration(CHAT, "M0", runs, max_cascade=bound, lineage={})

    assert [f"R{n}" for n in range(automatic)] == plan.automatic
    assert [f"R{n}" for n in range(automatic, 40)] == plan.awaiting_approval
    assert plan.needs_approval == (automatic < 40)
    assert list(range(1, 41)) == [run.depth for run in plan.runs]


@pytest.mark.parametrize("bound", [-1, True, 1.5, None])
def test_a_bound_is_a_number_of_runs(bound: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"^max_cascade"):
        plan_regeneration(CHAT, "M1", SCENARIO, max_cascade=bound, lineage={})


# Against the definition

names = st.sampled_from([f"M{n}" for n in range(8)])
graphs = st.lists(st.tuples(st.none() | names, st.none() | names, st.lists(names, max_size=2)), max_size=10)


@given(graphs, names, st.integers(0, 6))
def test_a_plan_is_what_the_definition_says(
    graph: list[tuple[str | None, str | None, list[str]]], edited: str, bound: int
) -> None:
    """NS-42 to NS-44, worked out step by step, whatever circles there are; a trigger that is stale goes first."""
    runs = [a_run(f"R{n}", trigger, made, *refers) for n, (trigger, made, refers) in enumerate(graph)]
    plan = plan_regeneration(CHAT, edited, runs, max_cascade=bound, lineage={})

    depths: dict[str, tuple[int, str]] = {}
    stale = {edited}
    for depth in range(1, len(runs) + 2):
        new = [
            run
            for run in runs
            if run.run_id not in depths and not stale.isdisjoint({run.trigger_message_id or "", *run.references})
        ]
        depths.update(
            (run.run_id, (depth, "trigger" if run.trigger_message_id in stale else "reference")) for run in new
        )
        stale |= {run.message_id for run in new if run.message_id}
    expected = [run for run in runs if run.run_id in depths]
    ids = [run.run_id for run in expected]
    assert ids == [run.run_id for run in plan.runs]
    assert [depths[run_id] for run_id in ids] == [(run.depth, run.cause) for run in plan.runs]
    assert {run.message_id for run in expected if run.message_id} == set(plan.stale_message_ids)
    assert len(plan.stale_message_ids) == len(set(plan.stale_message_ids))
    assert (ids[:bound], ids[bound:]) == (plan.automatic, plan.awaiting_approval)
    assert plan.needs_approval == (len(ids) > bound)


# How far it is


class Attempted(ReplayedChat):
    """A chat of which only the runs of a regeneration matter."""

    def __init__(self, attempts: list[MessageRun]) -> None:
        super().__init__(CHAT)
        self.attempts = attempts

    def runs(
        self,
        *,
        regeneration_id: str | None = None,
        message_id: str | None = None,
        trigger_message_id: str | None = None,
    ) -> list[MessageRun]:
        """Those of the regeneration, and of no message."""
        assert ("g", None, None) == (regeneration_id, message_id, trigger_message_id)
        return self.attempts


def progress(runs: list[MessageRun], edited: str, attempts: list[MessageRun], *approved: str) -> Regeneration:
    plan = plan_regeneration(CHAT, edited, runs, max_cascade=5, lineage={})
    record = RegenerationRecord("g", edited, f"{edited}b", tuple(plan.runs), approved, 1)
    return regeneration_of(Attempted(attempts), record)


def statuses(regeneration: Regeneration) -> dict[str, str]:
    return {step.repeats.run_id: step.status for step in regeneration.steps}


def test_a_step_is_ready_when_what_it_needs_is_there() -> None:
    """It is triggered by what is new, and refers to what is new."""
    before = progress(SCENARIO, "M1", [], "R1", "R3")
    running = progress(SCENARIO, "M1", [a_run("R1b", "M1b", None, repeats="R1")], "R1", "R3")
    after = progress(SCENARIO, "M1", [a_run("R1b", "M1b", "M2b", repeats="R1")], "R1", "R3")

    assert {"R1": "ready", "R3": "waiting"} == statuses(before)
    assert {"R1": "running", "R3": "waiting"} == statuses(running)
    assert {"R1": "completed", "R3": "ready"} == statuses(after)
    assert ("M1b", []) == (before.steps[0].trigger_message_id, before.steps[0].references)
    assert ("M5", ["M2b"]) == (after.ready[0].trigger_message_id, after.ready[0].references)


def test_approval_and_failure_hold_a_step_back() -> None:
    failed = a_run("R1b", "M1b", None, repeats="R1", status="error")

    assert {"R1": "ready", "R3": "awaiting_approval"} == statuses(progress(SCENARIO, "M1", [], "R1"))
    assert {"R1": "error", "R3": "waiting"} == statuses(progress(SCENARIO, "M1", [failed], "R1", "R3"))
    again = [failed, a_run("R1c", "M1b", "M2c", repeats="R1")]
    assert {"R1": "completed", "R3": "ready"} == statuses(progress(SCENARIO, "M1", again, "R1", "R3"))


@given(graphs, names)
def test_every_regeneration_comes_to_its_end(
    graph: list[tuple[str | None, str | None, list[str]]], edited: str
) -> None:
    """Repeating what is ready is enough, whatever refers to what, and no run is ready before what it depends on is done."""
    runs = [a_run(f"R{n}", trigger, made, *refers) for n, (trigger, made, refers) in enumerate(graph)]
    planned = [run.run_id for run in plan_regeneration(CHAT, edited, runs, max_cascade=0, lineage={}).runs]
    attempts: list[MessageRun] = []
    while ready := progress(runs, edited, attempts, *planned).ready:
        step = ready[-1]
        repeated = {attempt.repeats for attempt in attempts}
        earlier = runs[: int(step.repeats.run_id[1:])]
        for run in earlier:
            if run.run_id in planned and run.message_id not in {None, edited} and run.run_id not in repeated:
                assert run.message_id not in {step.repeats.trigger_message_id, *step.repeats.references}
        targets = {step.trigger_message_id, *step.references}
        assert targets.isdisjoint(
            [edited, *(run.message_id for run in earlier if run.run_id in planned and run.message_id)]
        )
        old = step.repeats
        new = None if old.message_id is None else f"new {old.message_id}"
        trigger, refers = step.trigger_message_id, step.references
        attempts.append(a_run(f"{old.run_id}b", trigger, new, *refers, repeats=old.run_id, status="completed"))
    done = progress(runs, edited, attempts, *planned)

    assert done.is_done
    assert planned == [step.repeats.run_id for step in done.steps]
    assert sorted(attempts, key=lambda run: int(run.run_id[1:-1])) == [step.run for step in done.steps]

"""Decisions on regenerations: begun once on a plan that holds, approved, and repeated run by run on the branch that is built."""

from typing import Any

import msgspec
import pytest
from tests.support.cases import case
from tests.support.run_stories import RunStory, answer_of
from tests.support.stories import CHAT, Story, user

from chatledger.domain.chat.decide_branches import decide_delete_branch, decide_rename_branch
from chatledger.domain.chat.decide_runs import decide_carry_on, decide_start_run
from chatledger.domain.chat.events import (
    Body,
    BranchCreated,
    MessagesAnnotated,
    MessagesAppended,
    RegenerationApproved,
    RegenerationBegun,
    RunChanged,
    RunRecorded,
)
from chatledger.domain.chat.regeneration import (
    decide_approve,
    decide_begin_regeneration,
    decide_mark_stale,
    regeneration_of,
    require_step,
)
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.chat.runs import CarryOver, RecordedRun, RegenerationPlan, Stretch, copy_id
from chatledger.domain.errors import (
    BranchNotFoundError,
    ChatNotFoundError,
    InvalidValueError,
    MessageNotFoundError,
    PlanOutdatedError,
    RegenerationNotFoundError,
    RunConflictError,
    RunNotFoundError,
    RunStatusError,
    WrongChatError,
)
from chatledger.domain.values import Annotation, Message

STRETCHES = (Stretch(run_ids=("R1",)), Stretch(first="M3", last="M5", run_ids=("R3",)))


def talk() -> RunStory:
    """M1 -> R1 -> M2, M3 -> R2 -> M4, M5 and M2 -> R3 -> M6; and M1b, which is to replace M1."""
    told = RunStory("M1", elsewhere=["theirs"])
    told.record("R1", "M1", answer=answer_of("M2"), runtime="ts", thread_id="t1")
    told.append(user("M3", reply_to="M2"))
    told.record("R2", "M3", answer=answer_of("M4"), metadata={"k": 1}, checkpoint_id="cp")
    told.append(user("M5", reply_to="M4"))
    told.record("R3", "M5", "M2", answer=answer_of("M6"))
    told.add(user("M1b"))
    return told


def begun(max_cascade: int = 100) -> RunStory:
    told = talk()
    told.begin(told.plan("M1", max_cascade), "M1b")
    return told


def begin(chat: ReplayedChat, plan: RegenerationPlan, new: str = "M1b", **rest: Any) -> list[Body]:
    options: dict[str, Any] = {
        "regeneration_id": "g",
        "branch": None,
        "branch_id": "b",
        "now": 7,
        "lineage": {},
        **rest,
    }
    return decide_begin_regeneration(chat, plan, new_message_id=new, **options)


def statuses(told: RunStory) -> str:
    return " ".join(step.status for step in told.regeneration().steps)


# Begun


def test_stale_answers_are_marked_once() -> None:
    """Also those that were replaced before; what they say else stays."""
    told = talk()
    told.annotate("M6", hidden=True, replaced_by="M4")
    plan = told.plan("M1")
    marked: list[Body] = [MessagesAnnotated(("M2", "M6"), {"stale": True, "replaced_by": None})]

    assert marked == told.decided(decide_mark_stale(told.chat(), plan))
    assert Annotation(stale=True, hidden=True) == told.chat().annotation("M6")
    assert [] == decide_mark_stale(told.chat(), plan)
    for stale, error in (("none", MessageNotFoundError), ("theirs", WrongChatError)):
        with pytest.raises(error):
            decide_mark_stale(told.chat(), msgspec.structs.replace(plan, stale_message_ids=["M2", stale]))
    with pytest.raises(ChatNotFoundError):
        decide_mark_stale(Story().chat(), plan)


def test_a_regeneration_begins_in_one_commit() -> None:
    """Marks, the plan with its bound, the branch, and what may be carried over to it at once."""
    told = talk()
    plan = told.plan("M1", 1)
    runs = tuple(plan.runs)
    begins: list[Body] = [
        MessagesAnnotated(("M2", "M6"), {"stale": True, "replaced_by": None}),
        MessagesAnnotated(("M1",), {"replaced_by": "M1b"}),
        RegenerationBegun("g", "M1", "M1b", runs, ("R1",), carries=CarryOver(branch_id="b", stretches=STRETCHES)),
        BranchCreated(1, "b", "main-v2", "M1b", 7),
    ]
    assert begins == begin(told.chat(), plan)

    told.annotate("M1", replaced_by="M1b")
    told.decided(decide_mark_stale(told.chat(), plan))
    assert begins[2:] == begin(told.chat(), plan)


def test_without_stale_runs_all_is_carried_over_at_once() -> None:
    told = talk()
    told.add(user("M4b", parent_id="M3"))
    annotated, began, created, copies, _run = begin(told.chat(), told.plan("M4"), "M4b")

    assert MessagesAnnotated(("M4",), {"replaced_by": "M4b"}) == annotated
    assert isinstance(began, RegenerationBegun)
    assert (Stretch(first="M5", last="M6"),) == (began.carries and began.carries.stretches)
    assert BranchCreated(1, "b", "main-v2", "M4b", 7) == created
    assert isinstance(copies, MessagesAppended)
    m5, m6 = copy_id("g", "M5"), copy_id("g", "M6")
    assert (1, "M4b", m6) == (copies.branch, copies.from_head, copies.to_head)
    assert [(m5, "M4b", "M4b"), (m6, m5, m5)] == [(one.id, one.parent_id, one.reply_to) for one in copies.messages]


def test_an_answer_is_repeated_without_an_edit() -> None:
    """The new message is the old one, which nothing replaces; the branch begins there."""
    told = talk()
    stale, began, created = told.begin(told.plan("M5"), "M5")

    assert MessagesAnnotated(("M6",), {"stale": True, "replaced_by": None}) == stale
    assert isinstance(began, RegenerationBegun)
    assert BranchCreated(1, "branch of g", "main-v2", "M5", told.time - 1) == created


def test_an_edited_message_that_is_an_answer_itself_stays_replaced() -> None:
    """Runs in a circle make it stale, and so not replaced: it is replaced after that, also where it was before."""
    told = RunStory("q", "a")
    told.record("Ra", "q", message_id="a")
    told.record("Rb", "a", message_id="q")
    told.add(user("new"))
    for _ in range(2):
        assert [
            MessagesAnnotated(("a", "q"), {"stale": True, "replaced_by": None}),
            MessagesAnnotated(("q",), {"replaced_by": "new"}),
        ] == begin(told.chat(), told.plan("q"), "new")[:2]
        told.annotate("q", replaced_by="new")


def test_beginning_again_changes_nothing() -> None:
    """Also when the plan does not hold any more; another regeneration of that id is refused."""
    told = talk()
    plan, other = told.plan("M1"), told.plan("M3")
    told.begin(plan, "M1b")
    told.record("R4", "M6")

    assert [] == begin(told.chat(), plan)
    for wrong, new in ((plan, "M3"), (other, "M1b")):
        with case(new), pytest.raises(RunConflictError, match="after an edit of 'M1'; use a new id") as caught:
            begin(told.chat(), wrong, new)
        assert (CHAT, "g") == (caught.value.chat_id, caught.value.run_id)


def test_a_plan_that_does_not_hold_is_refused() -> None:
    """Runs that were recorded after planning would be forgotten; those that the edit does not touch are no matter."""
    told = talk()
    plan = told.plan("M1")
    told.record("R4", "M3")
    assert begin(told.chat(), plan)
    told.record("R5", "M6")
    with pytest.raises(PlanOutdatedError) as caught:
        begin(told.chat(), plan)
    assert (CHAT, "M1") == (caught.value.chat_id, caught.value.message_id)
    assert begin(told.chat(), told.plan("M1"))


def test_regenerations_that_cannot_begin() -> None:
    told = talk()
    plan = told.plan("M1")
    refused: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"regeneration_id": ""}, InvalidValueError, r"^regeneration_id"),
        ({"new": ""}, InvalidValueError, r"^new_message_id"),
        ({"new": "none"}, MessageNotFoundError, "'none'"),
        ({"new": "theirs"}, WrongChatError, "'theirs'"),
        ({"branch": "none"}, BranchNotFoundError, "'none'"),
        ({"branch": "main"}, InvalidValueError, "does not contain the new message 'M1b'"),
    ]
    for given, error, words in refused:
        with case(given), pytest.raises(error, match=words):
            begin(told.chat(), plan, **given)
    with pytest.raises(ChatNotFoundError):
        begin(Story().chat(), plan)


# Approved


def test_runs_beyond_the_bound_wait_for_approval() -> None:
    """Which is given once, to some or to all, in the order of the plan."""
    told = begun(0)
    told.begin(told.plan("M1", 1), "M1b", regeneration_id="h")
    assert "awaiting_approval awaiting_approval" == statuses(told)
    assert "ready awaiting_approval" == " ".join(step.status for step in told.regeneration("h").steps)
    for run_ids, approved in [
        (None, ("R1", "R3")), (["R3", "R1"], ("R1", "R3")), (["R3"], ("R3",)), ({"R1"}, ("R1",)),
    ]:  # fmt: skip
        with case(run_ids):
            assert [RegenerationApproved("g", approved)] == decide_approve(told.chat(), "g", run_ids)
    assert [RegenerationApproved("h", ("R3",))] == decide_approve(told.chat(), "h", None)
    told.decided(decide_approve(told.chat(), "g", ["R1"]))
    assert "ready awaiting_approval" == statuses(told)
    assert [] == decide_approve(told.chat(), "g", ["R1"])
    assert [] == decide_approve(told.chat(), "g", [])
    told.decided(decide_approve(told.chat(), "g", None))
    assert "ready waiting" == statuses(told)


def test_what_cannot_be_approved() -> None:
    chat = begun().chat()
    odd: Any = "R1"
    refused: list[tuple[ReplayedChat, str, Any, type[Exception], str]] = [
        (chat, "g", ["R1", "R2"], RunNotFoundError, f"'{CHAT}'.*'R2'"),
        (chat, "g", odd, InvalidValueError, r"^run_ids"),
        (chat, "none", None, RegenerationNotFoundError, f"'{CHAT}'.*'none'"),
        (chat, "", None, InvalidValueError, r"^regeneration_id"),
        (Story().chat(), "g", None, ChatNotFoundError, CHAT),
    ]
    for state, regeneration_id, run_ids, error, words in refused:
        with case(regeneration_id, run_ids), pytest.raises(error, match=words):
            decide_approve(state, regeneration_id, run_ids)


# Repeated


def test_a_regeneration_from_begin_to_end() -> None:
    """
    A step is triggered by what is new: the new message, an answer that was produced anew, or a copy on the branch.

    With an answer, what follows it is carried over in the same commit, up to the next stale answer.
    """
    told = begun()
    assert "ready waiting" == statuses(told)
    now = told.time
    first = RecordedRun(
        id="record of R1b", run_id="R1b", thread_id="t1", assistant_id="R1", runtime="ts", trigger_message_id="M1b",
        status="running", created_at=now, updated_at=now, repeats="R1", regeneration_id="g",
    )  # fmt: skip
    assert [RunRecorded(first, {"m": 1})] == told.repeat("R1", "R1b", metadata={"m": 1})
    assert "running waiting" == statuses(told)
    now = told.time
    bodies = told.complete("R1b", answer_of("M2b"))
    m3, m4, m5 = (copy_id("g", message) for message in ("M3", "M4", "M5"))
    answer = Message(
        id="M2b",
        parent_id="M1b",
        name="assistant",
        type="message",
        data="an answer",
        created_at=now,
        agent_id="R1",
        reply_to="M1b",
    )
    copied = tuple(
        msgspec.structs.replace(
            told.chat().message(original) or answer, id=new, chat_id="", parent_id=parent, copied_from=original, reply_to=reply
        )
        for original, new, parent, reply in [("M3", m3, "M2b", "M2b"), ("M4", m4, m3, m3), ("M5", m5, m4, m4)]
    )  # fmt: skip
    second = told.chat().run("R2")
    assert second is not None
    assert [
        MessagesAppended((answer,), 1, "M1b", "M2b"),
        RunChanged("R1b", {"status": "completed", "message_id": "M2b"}),
        MessagesAnnotated(("M2",), {"stale": True, "replaced_by": "M2b"}),
        MessagesAppended(copied, 1, "M2b", m5),
        RunRecorded(
            msgspec.structs.replace(
                second.recorded, id=copy_id("g", second.id), run_id=copy_id("g", "R2"), chat_id="", trigger_message_id=m3,
                message_id=m4, repeats="R2",
            ),
            {"k": 1},
        ),
    ] == bodies  # fmt: skip

    step = told.regeneration().ready[0]
    assert ("R3", m5, ["M2b"], None) == (step.repeats.run_id, step.trigger_message_id, step.references, step.run)
    told.repeat("R3", "R3b", status="pending")
    assert "completed pending" == statuses(told)
    told.complete("R3b", answer_of("M6b"))
    done = told.regeneration()
    assert ("g", CHAT, "M1", "M1b", now - 2, "main-v2", True) == (
        done.id, done.chat_id, done.edited_message_id, done.new_message_id, done.created_at, done.branch, done.is_done,
    )  # fmt: skip
    assert [("M1b", [], "R1b"), (m5, ["M2b"], "R3b")] == [
        (step.trigger_message_id, step.references, step.run and step.run.run_id) for step in done.steps
    ]
    assert ["M1b", "M2b", "M3'", "M4'", "M5'", "M6b"] == told.read("main-v2")


def test_a_step_that_asks_is_done_with_its_answer() -> None:
    """NS-50: nothing goes on before that, whatever becomes of the question; nobody else repeats the step meanwhile."""
    told = begun()
    told.repeat("R1", "R1b")
    assert [RunChanged("R1b", {"status": "waiting", "checkpoint_id": "cp"})] == told.suspend("R1b", checkpoint_id="cp")
    assert "asking waiting" == statuses(told)
    assert not told.regeneration().is_done
    assert [] == told.repeat("R1", "R1c", is_new_id=True)
    with pytest.raises(RunConflictError, match="is waiting"):
        told.repeat("R1", "R1c")
    told.decided(decide_start_run(told.chat(), "R1b"))
    assert "running waiting" == statuses(told)
    told.complete("R1b", answer_of("M2b"))
    assert "completed ready" == statuses(told)
    assert ["M1b", "M2b", "M3'", "M4'", "M5'"] == told.read("main-v2")


def test_a_question_that_is_given_up_is_a_step_that_failed() -> None:
    told = begun()
    told.repeat("R1", "R1b")
    told.suspend("R1b")
    told.fail("R1b")
    assert "error waiting" == statuses(told)
    assert told.repeat("R1", "R1c", is_new_id=True)


def test_steps_of_one_assistant_are_ready_one_after_the_other() -> None:
    """On one thread; what failed, or awaits approval, holds up no other step."""
    told = RunStory("M1")
    told.add(user("M2", parent_id="M1"))
    told.record("R1", "M1", assistant_id="a")
    told.record("R2", "M1", assistant_id="a")
    told.record("R3", "M1", assistant_id="b")
    told.record("R4", "M1", assistant_id="a", thread_id="other")
    told.add(user("M1b"))
    told.begin(told.plan("M1"), "M1b")
    assert "ready waiting ready ready" == statuses(told)
    told.repeat("R1", "R1b", status="pending")
    assert "pending waiting ready ready" == statuses(told)
    told.decided(decide_start_run(told.chat(), "R1b"))
    told.suspend("R1b")
    assert "asking waiting ready ready" == statuses(told)
    told.fail("R1b")
    assert "error ready ready ready" == statuses(told)
    told.begin(told.plan("M1", 0), "M1b", regeneration_id="h")
    told.decided(decide_approve(told.chat(), "h", ["R2"]))
    assert ["awaiting_approval", "ready"] == [step.status for step in told.regeneration("h").steps[:2]]


def test_a_step_is_repeated_by_one_run() -> None:
    """Asking again gives the run that is there; another id is refused; after a failure there may be another run."""
    told = begun()
    told.repeat("R1", "R1b")
    assert [] == told.repeat("R1", "R1b") == told.repeat("R1", "R1c", is_new_id=True)
    with pytest.raises(RunConflictError, match=r"'R1b' .*repeats 'R1' already, and is running") as caught:
        told.repeat("R1", "R1c")
    assert CHAT == caught.value.chat_id
    told.fail("R1b")
    assert "error waiting" == statuses(told)
    assert [] == told.repeat("R1", "R1b")
    with pytest.raises(RunConflictError, match="recorded with another"):
        told.repeat("R1", "R2")
    assert told.repeat("R1", "R1c", is_new_id=True)
    told.fail("R1c")
    with pytest.raises(RunConflictError, match=r"'R1b' .*an earlier attempt, which failed") as caught:
        told.repeat("R1", "R1b")
    assert CHAT == caught.value.chat_id
    told.repeat("R1", "R1d")
    told.complete("R1d", answer_of("M2d"))
    assert [] == told.repeat("R1", "R1d") == told.repeat("R1", "R1e", is_new_id=True)
    assert "completed ready" == statuses(told)
    assert ("M1b", ["R1d"]) == (
        told.regeneration().steps[0].trigger_message_id,
        [step.run.run_id for step in told.regeneration().steps if step.run],
    )


def test_a_step_that_is_not_ready_is_not_repeated() -> None:
    told = begun(1)
    for regeneration_id, repeats, run_id, error, words in [
        ("none", "R1", "R1b", RegenerationNotFoundError, "'none'"),
        ("g", "R2", "R2b", RunNotFoundError, f"'{CHAT}'.*'R2'"),
        ("g", "R1", "", InvalidValueError, r"^run_id"),
    ]:  # fmt: skip
        with case(regeneration_id, repeats), pytest.raises(error, match=words):
            told.repeat(repeats, run_id, regeneration_id=regeneration_id)
    for status in ("awaiting_approval", "waiting"):
        with case(status), pytest.raises(RunStatusError) as caught:
            told.repeat("R3", "R3b", status="pending")
        assert (CHAT, "R3", status, "pending") == (
            caught.value.chat_id, caught.value.run_id, caught.value.status, caught.value.wanted,
        )  # fmt: skip
        told.decided(decide_approve(told.chat(), "g", None))
    assert "R3" == require_step(told.chat(), "g", "R3").repeats.run_id


def test_a_failure_holds_the_branch() -> None:
    """It stays as it is until the answer is there, or the run is completed without one."""
    told = begun()
    told.repeat("R1", "R1b")
    told.fail("R1b")
    assert ["M1b"] == told.read("main-v2")
    told.repeat("R1", "R1c")
    told.complete("R1c")
    assert ["M1b", "M3'", "M4'", "M5'"] == told.read("main-v2")
    assert ["M2"] == told.regeneration().steps[1].references


def test_others_talk_on_the_branch_that_is_built() -> None:
    """What comes goes behind what they said; a named branch and another regeneration of the same edit are left alone."""
    told = begun()
    told.begin(told.plan("M1"), "M1b", branch="main-v2", regeneration_id="h")
    told.append(user("wait"), branch="main-v2")
    told.repeat("R1", "R1b")
    told.complete("R1b", answer_of("M2b"))
    assert ["M1b", "wait", "M2b", "M3'", "M4'", "M5'"] == told.read("main-v2")
    assert ("main-v2", "ready waiting") == (
        told.regeneration("h").branch,
        " ".join(step.status for step in told.regeneration("h").steps),
    )


def test_regenerations_side_by_side_count_their_own_answers() -> None:
    """Of agents that were asked at once, each adds its answer; what follows comes once, after the last of them."""
    told = RunStory("q")
    for agent in ("Ra", "Rb"):
        told.record(agent, "q", answer=answer_of(f"{agent} said"))
    told.append(user("thanks"))
    told.add(user("new"), user("other"))
    for new, regeneration_id in (("new", "g"), ("other", "h")):
        told.begin(told.plan("q"), new, regeneration_id=regeneration_id)
    for agent in ("Ra", "Rb"):
        told.repeat(agent, f"{agent} for h", regeneration_id="h")
        told.complete(f"{agent} for h", answer_of(f"{agent} for h"))
    assert [] == decide_carry_on(told.chat(), "g")
    for agent in ("Ra", "Rb"):
        told.repeat(agent, f"{agent} for g")
    for agent in ("Rb", "Ra"):
        assert ["new", "Rb for g"][: 2 if agent == "Ra" else 1] == told.read("main-v2")
        told.complete(f"{agent} for g", answer_of(f"{agent} for g"))
    assert ["new", "Rb for g", "Ra for g", "thanks'"] == told.read("main-v2")
    assert ["other", "Ra for h", "Rb for h", "thanks'"] == told.read("main-v3")


def test_an_answer_goes_where_its_caller_says() -> None:
    """What follows is carried over behind the head of the branch that is built all the same."""
    told = begun()
    told.repeat("R1", "R1b")
    told.complete("R1b", answer_of("M2b", branch="main"))
    assert "M2b" == told.read("main")[-1]
    assert ["M1b", "M3'", "M4'", "M5'"] == told.read("main-v2")


def test_the_branch_may_be_renamed_and_deleted() -> None:
    """It is built on under its new name; without it steps name what is new where it is, and answers go to the active branch."""
    told = begun()
    told.decided(decide_rename_branch(told.chat(), "main-v2", "edited"))
    told.repeat("R1", "R1b")
    told.complete("R1b", answer_of("M2b"))
    assert ("edited", "M5'") == (told.regeneration().branch, told.read("edited")[-1])
    told.decided(decide_delete_branch(told.chat(), "edited"))
    (step,) = told.regeneration().ready
    assert (None, "M5", ["M2b"]) == (told.regeneration().branch, step.trigger_message_id, step.references)
    told.repeat("R3", "R3b")
    told.complete("R3b", answer_of("M6b"))
    assert "M6b" == told.read("main")[-1]
    assert [] == decide_carry_on(told.chat(), "g")


def test_without_a_branch_to_build_no_step_waits_for_others_on_it() -> None:
    """Its stretches are nothing that an answer could stand behind any more."""
    told = RunStory("q", "a", "p")
    told.record("Ra", "q", message_id="a")
    told.record("Rb", "q", answer=answer_of("b"))
    told.add(user("new"))
    told.begin(told.plan("q"), "new")
    assert "ready waiting" == statuses(told)
    told.decided(decide_delete_branch(told.chat(), "main-v2"))
    assert "ready ready" == statuses(told)


def test_answers_on_other_branches_become_versions() -> None:
    """An answer without a place on the branch is added below what triggered it, and no branch moves."""
    told = talk()
    told.add(user("aside", parent_id="M2"))
    told.write([BranchCreated(1, "bx", "side", "aside", told.time)])
    told.record("Rx", "aside", "M2", answer=answer_of("ax", branch="side"))
    told.record("Ry", None, "ax", answer=answer_of("ay", branch="side"))
    told.begin(told.plan("M1"), "M1b")
    told.repeat("R1", "R1b")
    told.complete("R1b", answer_of("M2b"))
    built = told.read("main-v2")
    told.repeat("Rx", "Rxb")
    now = told.time
    bodies = told.complete("Rxb", answer_of("axb"))

    message = Message(
        id="axb",
        parent_id="aside",
        name="assistant",
        type="message",
        data="an answer",
        created_at=now,
        agent_id="Rx",
        reply_to="aside",
    )
    assert MessagesAppended((message,)) == bodies[0]
    assert [RunChanged, MessagesAnnotated] == [type(body) for body in bodies[1:]]
    assert (built, ["ax", "ay"]) == (told.read("main-v2"), told.read("side")[-2:])
    told.repeat("Ry", "Ryb")
    told.complete("Ryb", answer_of("ayb"))
    assert [*built, "ayb"] == told.read("main-v2")


def test_a_step_waits_for_the_answers_before_its_own() -> None:
    """On the branch only: R2 needs nothing of R1, but R1's answer stands before the question that R2 answers."""
    told = RunStory("q1")
    told.record("R1", "q1", answer=answer_of("a1"))
    told.append(user("q2"))
    told.record("R2", "q2", "q1", answer=answer_of("a2"))
    told.add(user("new"))
    told.begin(told.plan("q1"), "new")

    assert "ready waiting" == statuses(told)
    told.repeat("R1", "R1b")
    told.complete("R1b")
    assert "completed ready" == statuses(told)
    assert (copy_id("g", "q2"), ["new"]) == (
        told.regeneration().steps[1].trigger_message_id,
        told.regeneration().steps[1].references,
    )


def test_branches_that_are_known_need_not_be_read() -> None:
    told = begun()
    record = told.chat().regeneration("g")
    assert record is not None
    assert None is regeneration_of(told.chat(), record, branches=[]).branch
    assert told.regeneration() == regeneration_of(told.chat(), record, branches=told.chat().branches)


def test_the_rest_is_carried_over_by_itself() -> None:
    """What a commit that was full left behind; nothing where all is there, or nothing is built."""
    told = begun()
    told.repeat("R1", "R1b")
    told.write([RunChanged("R1b", {"status": "completed"})])
    bodies = told.decided(decide_carry_on(told.chat(), "g"))

    assert [MessagesAppended, RunRecorded] == [type(body) for body in bodies]
    assert ["M1b", "M3'", "M4'", "M5'"] == told.read("main-v2")
    for regeneration_id in ("g", "none", None):
        assert [] == decide_carry_on(told.chat(), regeneration_id)

"""Which branch a regeneration builds, what it carries over to it, and what keeps it from growing."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.ledger_world import stored, text

import chatledger
from chatledger import Annotation, ContextEngine, Ledger, NewMessage, user
from chatledger.domain.chat.regeneration import decide_begin_regeneration
from chatledger.errors import BranchNotFoundError, InvalidValueError, RunStatusError
from chatledger.importers import read_chats, write_chats
from chatledger.infra.ledger.port import store_of
from chatledger.projections.log.kinds import CHATS
from chatledger.runs import Regeneration

CONVERSATION: list[tuple[str, str, str, list[str]]] = [
    ("q1", "a1", "ra", []),
    ("q2", "a2", "rb", []),
    ("q3", "a3", "rc", ["a1"]),
]


def converse(ledger: Ledger, chat: str = "c") -> None:
    """Three questions with their answers; the last one refers to the first."""
    ledger.create_chat(chat, "ada")
    for question, answer, agent, references in CONVERSATION:
        ledger.append(chat, [text(question, id=question)])
        ledger.record_run(
            chat, agent, thread_id="t", assistant_id=agent, trigger_message_id=question, references=references
        )
        ledger.complete_run(chat, agent, answer=NewMessage("assistant", answer, id=answer))


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as ledger:
        converse(ledger)
        yield ledger


def edit(ledger: Ledger, new_id: str = "new", **options: Any) -> Regeneration:
    """Another first question, and what follows from it."""
    ledger.add_messages("c", [NewMessage("user", "q1 edited", id=new_id)])
    plan = ledger.plan_regeneration("c", "q1")
    return ledger.begin_regeneration(plan, new_message_id=new_id, **{"regeneration_id": "g", **options})


def repeat(ledger: Ledger, repeats: str, said: str | None, *, chat: str = "c", regeneration: str = "g") -> None:
    run = ledger.repeat_run(chat, regeneration, repeats)
    ledger.complete_run(chat, run.run_id, answer=None if said is None else NewMessage("assistant", said))


def read(ledger: Ledger, branch: str = "main-v2", *, chat: str = "c") -> list[Any]:
    return [message.data for message in ledger.get_messages(chat, branch=branch)]


def commits(ledger: Ledger, after: int) -> int:
    return sum(recorded.event.rest == 0 for recorded in ledger.history("c", after=after))


def regeneration_of(ledger: Ledger, regeneration_id: str = "g") -> Regeneration:
    found = ledger.get_regeneration("c", regeneration_id)
    assert found is not None
    return found


def test_an_edited_conversation_reads_on(ledger: Ledger) -> None:
    """Each call is one commit, and a run that is repeated gets to see the branch as it is then."""
    position = ledger.position
    assert "main-v2" == edit(ledger).branch
    assert ["q1 edited"] == read(ledger)
    assert 2 == commits(ledger, position)

    position = ledger.position
    repeat(ledger, "ra", "a1 anew")
    assert 2 == commits(ledger, position)
    assert ["q1 edited", "a1 anew", "q2", "a2", "q3"] == read(ledger)
    run = ledger.repeat_run("c", "g", "rc")
    assert run.trigger_message_id is not None
    assert read(ledger) == [message.data for message in ledger.get_context("c", run.trigger_message_id)]
    assert ["a1 anew"] == [stored(ledger, one).data for one in run.references]
    ledger.complete_run("c", run.run_id, answer=NewMessage("assistant", "a3 anew"))

    assert ["q1 edited", "a1 anew", "q2", "a2", "q3", "a3 anew"] == read(ledger)
    assert ["q1", "a1", "q2", "a2", "q3", "a3"] == read(ledger, "main")
    active = ledger.get_active_branch("c")
    assert ("main", True) == (active and active.name, regeneration_of(ledger).is_done)
    assert 1 == len(ledger.as_of(position).get_messages("c", branch="main-v2"))
    assert regeneration_of(ledger) == ledger.for_user("ada").get_regeneration("c", "g")
    ledger.verify()


def test_without_stale_runs_all_is_carried_over_at_once(ledger: Ledger) -> None:
    ledger.add_messages("c", [NewMessage("user", "q2 edited", id="new", parent_id="a1")])
    ledger.create_branch("c", "edited", "new", activate=True)
    plan = ledger.plan_regeneration("c", "a2")
    assert [] == plan.runs
    regeneration = ledger.begin_regeneration(plan, new_message_id="new")

    assert (True, "edited") == (regeneration.is_done, regeneration.branch)
    assert ["q1", "a1", "q2 edited", "q3", "a3"] == read(ledger, "edited")
    assert ["a3"] == [
        run.message_id and stored(ledger, run.message_id).data for run in ledger.runs("c") if run.repeats == "rc"
    ]


def test_the_branch_that_is_built(ledger: Ledger) -> None:
    """The one named, which may have grown; else the one that ends with the new message, as an engine makes it."""
    ledger.add_messages(
        "c", [NewMessage("user", "q1 edited", id="new"), text("a remark", id="remark", parent_id="new")]
    )
    ledger.create_branch("c", "named", "remark")
    plan = ledger.plan_regeneration("c", "q1")
    position = ledger.position
    refused: list[tuple[str, type[Exception]]] = [("none", BranchNotFoundError), ("main", InvalidValueError)]
    for branch, error in refused:
        with pytest.raises(error, match=branch):
            ledger.begin_regeneration(plan, new_message_id="new", branch=branch)
    assert position == ledger.position
    ledger.begin_regeneration(plan, new_message_id="new", branch="named", regeneration_id="g")
    repeat(ledger, "ra", "a1 anew")
    assert ["q1 edited", "a remark", "a1 anew", "q2", "a2", "q3"] == read(ledger, "named")

    engine = ContextEngine(ledger, "c", "ada")
    engine.set(user("q1 again", id="q1")).save()
    head = engine.head_message()
    assert head is not None
    ledger.begin_regeneration(plan, new_message_id=head.id, regeneration_id="h")
    repeat(ledger, "ra", "a1 again", regeneration="h")
    texts = [message.text for message in ledger.get_messages("c", branch=engine.branch)]
    assert ["q1 again", "a1 again", "q2", "a2", "q3"] == texts


def test_what_was_seen_last_is_carried_over(ledger: Ledger) -> None:
    """Not what another branch says after the edited message, where the one seen last ends with it; but it is answered."""
    ledger.fork("c", "q2")
    ledger.add_messages("c", [NewMessage("user", "q2 edited", id="new", parent_id="a1")])
    plan = ledger.plan_regeneration("c", "q2")
    built = ledger.begin_regeneration(plan, new_message_id="new", regeneration_id="g").branch
    assert built is not None
    assert ["q1", "a1", "q2 edited"] == read(ledger, built)
    repeat(ledger, "rb", "a2 anew")
    assert ["q1", "a1", "q2 edited", "a2 anew"] == read(ledger, built)


def test_nothing_is_carried_over_behind_the_edited_message(ledger: Ledger) -> None:
    """A correction that comes later stands after the conversation already; its answers go where answers go."""
    ledger.append("c", [text("I meant something else", id="new")])
    regeneration = ledger.begin_regeneration(
        ledger.plan_regeneration("c", "q1"), new_message_id="new", regeneration_id="g"
    )
    assert regeneration.branch is None
    repeat(ledger, "ra", "a1 anew")
    assert ["I meant something else", "a1 anew"] == read(ledger, "main")[-2:]


def test_an_answer_is_repeated_without_an_edit(ledger: Ledger) -> None:
    """The new message is the old one: the branch begins there."""
    ledger.begin_regeneration(ledger.plan_regeneration("c", "q1"), new_message_id="q1", regeneration_id="g")
    for repeats in ("ra", "rc"):
        repeat(ledger, repeats, f"{repeats} anew")
    assert ["q1", "ra anew", "q2", "a2", "q3", "rc anew"] == read(ledger)


def test_copies_are_told_the_same(ledger: Ledger) -> None:
    """What is hidden stays hidden; a message stays as it came; who said it, when, and to whom stays."""
    ledger.append("c", [user("nobody is to see this", id="ui", sender_id="ada", reply_to="a3")])
    ledger.annotate("c", "ui", hidden=True, metadata={"by": "ada"})
    ledger.annotate("c", "a2", replaced_by="ui")
    edit(ledger)
    repeat(ledger, "ra", "a1 anew")
    repeat(ledger, "rc", "a3 anew")
    _, _, _, second, _, third, copy = ledger.get_messages("c", branch="main-v2")
    original = stored(ledger, "ui")

    assert ("ui", original.data, third.id) == (copy.copied_from, copy.data, copy.reply_to)
    assert Annotation(hidden=True, metadata={"by": "ada"}) == copy.annotation
    assert Annotation(replaced_by="ui") == second.annotation
    assert (original.sender_id, original.created_at, original.text) == (copy.sender_id, copy.created_at, copy.text)


def test_what_an_agent_said_on_the_way_goes_with_its_answer(ledger: Ledger) -> None:
    ledger.append(
        "c",
        [text("q4", id="q4"), NewMessage("assistant", "call", id="call"), NewMessage("tool", "result", id="result")],
    )
    ledger.record_run("c", "rd", thread_id="t", assistant_id="rd", trigger_message_id="q4", references=["a1"])
    ledger.complete_run("c", "rd", answer=NewMessage("assistant", "a4", id="a4"))
    edit(ledger)
    for repeats in ("ra", "rc", "rd"):
        repeat(ledger, repeats, f"{repeats} anew")
    assert ["q3", "rc anew", "q4", "rd anew"] == read(ledger)[-4:]


def test_a_failure_and_a_missing_approval_hold_the_branch(ledger: Ledger) -> None:
    """It stays as it is until the answer is there, or the run is completed without one."""
    ledger.add_messages("c", [NewMessage("user", "q1 edited", id="new")])
    plan = ledger.plan_regeneration("c", "q1", 1)
    ledger.begin_regeneration(plan, new_message_id="new", regeneration_id="g")
    run = ledger.repeat_run("c", "g", "ra")
    ledger.fail_run("c", run.run_id)
    assert ["q1 edited"] == read(ledger)
    repeat(ledger, "ra", None)
    assert ["q1 edited", "q2", "a2", "q3"] == read(ledger)

    with pytest.raises(RunStatusError, match="approve"):
        ledger.repeat_run("c", "g", "rc")
    ledger.approve_regeneration("c", "g")
    repeat(ledger, "rc", "a3 anew")
    assert ["q1 edited", "q2", "a2", "q3", "a3 anew"] == read(ledger)


def test_edits_side_by_side(ledger: Ledger) -> None:
    """Two users edit the same message on one plan, and others talk on a branch that is being built."""
    edit(ledger)
    edit(ledger, "other", regeneration_id="h")
    repeat(ledger, "ra", "a1 for h", regeneration="h")
    ledger.append("c", [text("wait", id="wait")], branch="main-v2")
    repeat(ledger, "ra", "a1 for g")

    assert ["q1 edited", "wait", "a1 for g", "q2", "a2", "q3"] == read(ledger)
    assert ["q1 edited", "a1 for h", "q2", "a2", "q3"] == read(ledger, "main-v3")
    assert ("main-v2", "main-v3") == (regeneration_of(ledger).branch, regeneration_of(ledger, "h").branch)


def test_answers_at_the_same_time(ledger: Ledger) -> None:
    """Agents that were asked at once answer at once: what follows is carried over once, after the last of them."""
    agents = [f"agent {n}" for n in range(6)]
    ledger.create_chat("panel", "ada")
    ledger.append("panel", [text("well?", id="q")])
    for agent in agents:
        ledger.record_run(
            "panel",
            agent,
            thread_id="t",
            assistant_id=agent,
            trigger_message_id="q",
            answer=NewMessage("assistant", ""),
        )
    ledger.append("panel", [text("thanks", id="thanks")])
    ledger.add_messages("panel", [NewMessage("user", "well, now?", id="new", parent_id=None)])
    plan = ledger.plan_regeneration("panel", "q", 6)
    ledger.begin_regeneration(plan, new_message_id="new", regeneration_id="g")

    def answer(agent: str) -> None:
        repeat(ledger, agent, agent, chat="panel")

    with ThreadPoolExecutor(len(agents)) as pool:
        list(pool.map(answer, agents))

    first, *answers, last = read(ledger, chat="panel")
    assert ("well, now?", "thanks", agents) == (first, last, sorted(answers))


def test_a_branch_may_be_renamed_and_deleted(ledger: Ledger) -> None:
    """It is built on under its new name; without it answers go to the active branch, as they do where none is built."""
    edit(ledger)
    ledger.rename_branch("c", "main-v2", "edited")
    repeat(ledger, "ra", "a1 anew")
    assert ("edited", "q3") == (regeneration_of(ledger).branch, read(ledger, "edited")[-1])
    ledger.delete_branch("c", "edited")
    assert (None, ["ready"]) == (regeneration_of(ledger).branch, [regeneration_of(ledger).steps[1].status])
    repeat(ledger, "rc", "a3 anew")
    assert ["a3", "a3 anew"] == read(ledger, "main")[-2:]


def test_answers_on_other_branches_become_versions(ledger: Ledger) -> None:
    """What another branch said is answered below its question there, and no branch moves."""
    ledger.fork("c", "a1")
    ledger.append("c", [text("aside", id="aside")], branch="main-v2")
    ledger.record_run("c", "rx", thread_id="t", assistant_id="rx", trigger_message_id="aside", references=["a1"])
    ledger.complete_run("c", "rx", answer=NewMessage("assistant", "an answer aside", id="ax"), branch="main-v2")
    ledger.set_active_branch("c", "main")
    edit(ledger)
    repeat(ledger, "ra", "a1 anew")
    heads = {branch.name: branch.head_message_id for branch in ledger.list_branches("c")}
    repeat(ledger, "rx", "an answer aside, anew")

    assert ["an answer aside", "an answer aside, anew"] == [one.data for one in ledger.children("aside")]
    assert heads == {branch.name: branch.head_message_id for branch in ledger.list_branches("c")}
    repeat(ledger, "rc", "a3 anew")
    assert ["q1 edited", "a1 anew", "q2", "a2", "q3", "a3 anew"] == read(ledger, "main-v3")


RETRIED: list[Callable[[Ledger], object]] = [
    lambda ledger: ledger.begin_regeneration(ledger.plan_regeneration("c", "q1"), new_message_id="new"),
    lambda ledger: ledger.complete_run("c", "r", answer=NewMessage("assistant", "a1 anew")),
]


@pytest.mark.parametrize("call", RETRIED, ids=["begin", "complete"])
def test_a_retried_command_carries_nothing_over_twice(ledger: Ledger, call: Callable[[Ledger], object]) -> None:
    edit(ledger)
    ledger.repeat_run("c", "g", "ra", run_id="r")
    with ledger.context(command_id="once"):
        first = call(ledger)
    position, built = ledger.position, read(ledger)
    with ledger.context(command_id="once"):
        assert first == call(ledger)
    assert (position, built) == (ledger.position, read(ledger))


@pytest.mark.soak
def test_a_great_many_runs_take_several_commits(ledger: Ledger) -> None:
    """A commit has at most 1,000 events. What an interrupted call left is carried over by the next one."""
    agents = [f"agent {n}" for n in range(1100)]
    ledger.append("c", [NewMessage("assistant", agent, id=agent) for agent in agents])
    for agent in agents:
        ledger.record_run("c", agent, thread_id="t", assistant_id=agent, trigger_message_id="q3", message_id=agent)
    ledger.add_messages("c", [NewMessage("user", "q2 edited", id="new", parent_id="a1")])
    plan = ledger.plan_regeneration("c", "a2")
    store_of(ledger).execute(
        CHATS,
        "c",
        lambda state, now: decide_begin_regeneration(
            state, plan, regeneration_id="g", new_message_id="new", branch=None, branch_id="b", now=now, lineage={}
        ),
    )
    begun = read(ledger)
    assert len(begun) < 1000
    ledger.begin_regeneration(plan, new_message_id="new", regeneration_id="g")

    assert ["q1", "a1", "q2 edited", "q3", "a3", *agents] == read(ledger)
    assert begun == read(ledger)[: len(begun)]
    assert 3 + 2 * 1100 + 1 == len(ledger.runs("c"))
    ledger.verify()


def test_it_goes_on_elsewhere(ledger: Ledger, tmp_path: Path) -> None:
    """Exported in the middle, imported into another ledger or as a copy beside it: the branch grows on there."""
    edit(ledger)
    repeat(ledger, "ra", "a1 anew")
    with (tmp_path / "c.jsonl").open("wb") as stream:
        write_chats(stream, [ledger.export_chat("c")])
    (chat,) = read_chats(tmp_path / "c.jsonl", strict=True, on_problem=print)
    ledger.import_chat(chat, chat_id="copy")
    with chatledger.open("memory:") as other:
        other.import_chat(chat)
        assert regeneration_of(ledger) == regeneration_of(other)
        for one, name in ((other, "c"), (ledger, "copy"), (ledger, "c")):
            repeat(one, "rc", "a3 anew", chat=name)
            assert ["q1 edited", "a1 anew", "q2", "a2", "q3", "a3 anew"] == read(one, chat=name)
            one.verify()
        copied = [message.copied_from for message in other.get_messages("c", branch="main-v2")]
    assert [None, None, "q2", "a2", "q3", None] == copied


@pytest.mark.parametrize("changed", ["new", "copy", "original"])
def test_a_message_that_was_changed_elsewhere_is_imported(ledger: Ledger, changed: str) -> None:
    """A copy that was carried over, its original, or what both branches follow: each comes as a version, again and again."""
    edit(ledger)
    repeat(ledger, "ra", "a1 anew")
    chat = ledger.export_chat("c")
    named = {message.copied_from: message.id for message in chat.messages}
    changed_ids = {"new": {"new"}, "copy": {named["q2"]}, "original": {"q2", named["q2"]}}[changed]
    for said in ("changed", "changed once more"):
        given = msgspec.structs.replace(
            chat,
            messages=tuple(
                msgspec.structs.replace(message, data=said) if message.id in changed_ids else message
                for message in chat.messages
            ),
        )
        assert ledger.import_chat(given).versions_added
        assert said in read(ledger)
        assert not ledger.import_chat(given).versions_added
    ledger.verify()

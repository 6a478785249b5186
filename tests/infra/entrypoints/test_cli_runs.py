"""`runs`, and the lines of `log` about runs and annotations."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli_world import ask, fails, run

import chatledger
from chatledger import NewMessage, assistant, user
from chatledger.replays import ReplayAnswer


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with chatledger.open(path, durability="fast") as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [user("hello", id="q")])
        ledger.record_run("c", "r1", thread_id="t1", assistant_id="research", trigger_message_id="q")
        ledger.complete_run("c", "r1", answer=NewMessage("assistant", "hi", id="a"), checkpoint_id="cp")
        ledger.record_run("c", "r2", thread_id="t2", assistant_id="writer", status="pending")
        ledger.append("c", [user("hello!", id="new question")])
        plan = ledger.plan_regeneration("c", "q", 0)
        ledger.begin_regeneration(plan, new_message_id="new question", regeneration_id="g")
        ledger.approve_regeneration("c", "g")
        ledger.repeat_run("c", "g", "r1", run_id="r3")
        ledger.annotate("c", "q", hidden=True, metadata={"by": "ada", "at": 1})
        ledger.create_chat("empty", "bob")
    return path


def test_runs_for_people(place: Path) -> None:
    """One line each: id, status, assistant, what it made of what, and whether that is stale."""
    lines = [re.sub(r"\s+", " ", line) for line in run("runs", "c", at=place).stdout.splitlines()]
    times = [line.rsplit(" ", 1) for line in lines]

    assert [
        "r1 completed research q -> a stale thread t1",
        "r2 pending writer - -> - thread t2",
        "r3 running research new ques -> - repeats r1 thread t1",
    ] == [line for line, _ in times]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", time) for _, time in times)


def test_a_run_whose_answer_was_carried_over(tmp_path: Path) -> None:
    """It was not executed again, and both lists say so."""
    path = tmp_path / "data"
    with chatledger.open(path, durability="fast") as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [user("hello", id="q"), user("and you?", id="q2")])
        ledger.record_run(
            "c", "r1", thread_id="t", assistant_id="a", trigger_message_id="q2", answer=NewMessage("assistant", "fine")
        )
        ledger.add_messages("c", [user("hello!", id="new")])
        ledger.begin_regeneration(ledger.plan_regeneration("c", "q"), new_message_id="new")

    for command in ("runs", "log"):
        (line,) = [line for line in run(command, "c", at=path).stdout.splitlines() if "carried over from" in line]
        assert "carried over from r1" in re.sub(r"\s+", " ", line)


@pytest.mark.soak
def test_runs_for_programs(place: Path) -> None:
    with chatledger.open(place) as ledger:
        expected = [one.to_dict(times="iso") for one in ledger.runs("c")]

    def found(*options: str) -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = ask("runs", "c", *options, at=place)
        return answer

    assert expected == found()
    assert [expected[0], expected[2]] == found("--thread", "t1")
    assert [expected[1]] == found("--assistant", "writer") == found("--status", "pending")
    assert [] == found("--thread", "t1", "--status", "error")


def test_no_runs(place: Path) -> None:
    assert "No runs yet: programs record them." == run("runs", "empty", at=place).stdout.strip()
    assert "No run matches." == run("runs", "c", "--status", "error", at=place).stdout.strip()
    assert "no chat 'd'" in fails(1, "runs", "d", at=place)
    assert "'done' is not one of" in fails(2, "runs", "c", "--status", "done", at=place)


def test_others_do_not_see_them(place: Path) -> None:
    assert "no chat 'c'" in fails(1, "--as-user", "bob", "runs", "c", at=place)
    assert 3 == len(ask("--as-user", "ada", "runs", "c", at=place))


def test_what_the_log_says(place: Path) -> None:
    """Each kind of event in words."""
    lines = run("log", at=place).stdout.splitlines()
    said = [re.split(r"  +", line.strip())[3:] for line in lines]
    told = [(one[0], one[1]) for one in said if one[0].startswith(("run", "regeneration", "message_annotated"))]

    assert [
        ("run_recorded", "r1 of research, running, triggered by q"),
        ("run_changed", "r1, completed, answer a"),
        ("run_recorded", "r2 of writer, pending"),
        ("message_annotated", "a, stale yes, replaced_by nothing"),
        ("message_annotated", "q, replaced_by new ques"),
        ("regeneration_begun", "q became new ques, 1 run to repeat"),
        ("regeneration_approved", "1 run approved"),
        ("run_recorded", "r3 of research, running, triggered by new ques, repeats r1"),
        ("message_annotated", "q, hidden yes, metadata of at, by"),
    ] == told


def test_answers_of_branches_side_by_side(tmp_path: Path) -> None:
    """`compare`: turn by turn, with the run of each answer."""
    path = tmp_path / "data"
    with chatledger.open(path, durability="fast") as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [user("When?"), assistant("At 8.\nOr 9.")])
        ledger.replay("c", lambda _: ReplayAnswer(assistant("At 10."), {"model": "small"}), name="small")
    lines = run("compare", "c", "main", "small", at=path).stdout.splitlines()
    assert [re.sub(r"[\d,]+ ms", "N ms", line) for line in lines] == [
        "1. When?", "  main", "    At 8.", "    Or 9.", "  small  N ms; model: small", "    At 10."
    ]  # fmt: skip
    (turn,) = ask("compare", "c", "small", at=path)["turns"]
    assert turn["answers"]["small"]["run"]["metadata"] == {"model": "small"}
    assert "nope" in fails(1, "compare", "c", "nope", at=path)
    assert "absent" in fails(1, "compare", "absent", "main", at=path)

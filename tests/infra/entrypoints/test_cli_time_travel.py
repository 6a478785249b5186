"""`show --at` and `diff`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli_world import ask, fails, run

import chatledger
from chatledger import ANY, NewMessage


@pytest.fixture
def travelled(tmp_path: Path) -> Iterator[Path]:
    """A ledger with a chat that was changed step by step, one event each, and that is open in this process."""
    location = tmp_path / "data"
    with chatledger.open(location) as ledger:
        ledger.create_chat("trip", "ada", title="Riga")  # 1
        ledger.append("trip", [NewMessage("user", "Plan a weekend", id="m1")])  # 2
        ledger.append("trip", [NewMessage("assistant", "Old Town", id="m2")])  # 3
        ledger.set_checkpoint("trip", "draft", "m2")  # 4
        ledger.fork("trip", "m1")  # 5
        ledger.append("trip", [NewMessage("assistant", "The coast", id="m3")])  # 6
        ledger.update_chat("trip", title="Latvia")  # 7
        ledger.set_checkpoint("trip", "draft", "m3")  # 8
        ledger.create_chat("empty", "ada")  # 9
        yield location


@pytest.mark.soak
def test_show_as_of_each_position(travelled: Path) -> None:
    """Every form of `show` shows the chat as it was."""
    shown = [ask("show", "trip", "--at", str(position), at=travelled) for position in range(1, 10)]

    assert ["Riga"] * 6 + ["Latvia"] * 3 == [one["chat"]["title"] for one in shown]
    assert [0, 1, 2, 2, 2, 3, 3, 3, 3] == [len(one["messages"]) for one in shown]
    assert [1, 1, 1, 1, 2, 2, 2, 2, 2] == [len(one["branches"]) for one in shown]
    assert ["m2"] * 4 + ["m3"] * 2 == [one["checkpoints"][0]["message_id"] for one in shown[3:]]
    assert ask("show", "trip", at=travelled) == shown[-1]
    chain = ask("show", "trip", "--messages", "--at", "3", at=travelled)
    assert ["m1", "m2"] == [message["id"] for message in chain["messages"]]
    assert ask("show", "trip", "--messages", "--as-of", "3", at=travelled) == chain
    assert "m3" not in run("show", "trip", "--at", "3", at=travelled).stdout
    assert "m2 (assistant)" in run("show", "trip", "--at", "3", at=travelled).stdout
    assert "main-v2" not in run("show", "trip", "--format", "mermaid", "--at", "4", at=travelled).stdout


def test_show_as_of_a_time(travelled: Path) -> None:
    with chatledger.open(travelled) as ledger:
        times = [event.occurred_at for event in ledger.history("trip")]
    now = run("log", "trip", at=travelled).stdout.splitlines()[-1].split()[1]  # as `log` prints it

    assert "Latvia" == ask("show", "trip", "--at", now, at=travelled)["chat"]["title"]
    assert len(times) == 8
    why = fails(1, "show", "trip", "--at", "2020-01-01", at=travelled)
    assert why.startswith("chat 'trip' was not there then; it is since position 1, 20")


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("code", "arguments", "expected"),
    [
        (1, ("show", "trip", "--at", "10"), "there is no moment 10 yet; the log ends at position 9"),
        (1, ("show", "trap", "--at", "3"), "no chat 'trap'; did you mean 'trip'?"),
        (2, ("show", "trip", "--at", "soon"), "'soon' is neither a position"),
        (1, ("diff", "trap", "main", "main-v2"), "no chat 'trap'; did you mean 'trip'?"),
        (1, ("diff", "trip", "main", "nain"), "has no branch, checkpoint or message 'nain'; it has 'main', 'main-v2', 'draft'"),
        (1, ("diff", "empty", "main", "m1"), "chat 'empty' has no branch, checkpoint or message 'm1'"),
        (2, ("diff", "trip", "@3", "main"), "@3 is a moment and main is not; compare two moments, such as @3 and @now"),
        (2, ("diff", "trip", "main", "@3"), "@3 is a moment and main is not"),
        (2, ("diff", "trip", "@soon", "@3"), "@soon is no moment; give @POSITION"),
        (1, ("diff", "trip", "@3", "@10"), "there is no moment 10 yet"),
        (1, ("diff", "empty", "@3", "@4"), "chat 'empty' was there neither @3 nor @4; it is since position 9"),
        (1, ("diff", "trap", "@3", "@4"), "no chat 'trap'; did you mean 'trip'?"),
        (2, ("diff", "trip", "main"), "Missing argument 'B'"),
    ],
)  # fmt: skip
def test_mistakes(code: int, arguments: tuple[str, ...], expected: str, travelled: Path) -> None:
    assert expected in fails(code, *arguments, at=travelled)


def test_chat_of_which_nobody_saw_a_part(samples: Path) -> None:
    """A position inside the commit that made a chat is before it; the error says where it ends."""
    assert "it is since position 6, " in fails(1, "show", "riga", "--at", "3", at=samples)


def test_diff_of_branches(travelled: Path) -> None:
    lines = run("diff", "trip", "main", "main-v2", at=travelled).stdout.splitlines()

    assert [
        "- branch main, at m2: 1 message of its own",
        "+ branch main-v2, at m3: 1 message of its own",
        "",
        '  m1 (user): "Plan a weekend"',
        '- m2 (assistant): "Old Town"',
        '+ m3 (assistant): "The coast"',
    ] == lines


@pytest.mark.parametrize(
    ("a", "b", "common", "only_a", "only_b"),
    [
        ("main", "main-v2", "m1", ["m2"], ["m3"]),
        ("main-v2", "main", "m1", ["m3"], ["m2"]),
        ("m1", "draft", "m1", [], ["m3"]),
        ("m2", "m2", "m2", [], []),
        ("draft", "main-v2", "m3", [], []),
    ],
)
def test_diff_of_chains(a: str, b: str, common: str, only_a: list[str], only_b: list[str], travelled: Path) -> None:
    """Branches, checkpoints and messages, in any mix."""
    found = ask("diff", "trip", a, b, at=travelled)

    assert common == found["common"]["id"]
    assert [only_a, only_b] == [[message["id"] for message in found[side]] for side in ("only_a", "only_b")]
    assert {a} < set(found["a"].values()) | {None}
    if not only_a and not only_b:
        assert run("diff", "trip", a, b, at=travelled).stdout.endswith("The chains are equal.\n")


def test_diff_with_an_empty_branch(travelled: Path) -> None:
    with chatledger.open(travelled) as ledger:
        ledger.create_branch("trip", "blank", None)

    found = ask("diff", "trip", "blank", "main", at=travelled)
    assert (None, [], 2) == (found["common"], found["only_a"], len(found["only_b"]))
    assert "- branch blank, empty: 0 messages of its own" in run("diff", "trip", "blank", "main", at=travelled).stdout
    assert "nothing in common" in run("diff", "trip", "blank", "main", at=travelled).stdout


def test_name_with_two_meanings(travelled: Path) -> None:
    """A branch and a checkpoint of one name are told apart by their messages; where they are at one, there is no question."""
    with chatledger.open(travelled) as ledger:
        ledger.create_branch("trip", "draft", "m2")

    why = fails(1, "diff", "trip", "draft", "main", at=travelled)
    assert "'draft' is a branch at m2 and a checkpoint at m3; name one of them by the id of its message" == why
    with chatledger.open(travelled) as ledger:
        ledger.move_head("trip", "draft", "m3", expected=ANY)
    assert "m1" == ask("diff", "trip", "draft", "main", at=travelled)["common"]["id"]


def test_diff_of_moments(travelled: Path) -> None:
    lines = run("diff", "trip", "@4", "@8", at=travelled).stdout.splitlines()

    assert [
        "trip from position 4 to position 8",
        "  title: Riga -> Latvia",
        "  active branch: main -> main-v2",
        "  branch main-v2: not there -> m3",
        "  checkpoint draft: m2 -> m3",
        '+ m3 (assistant): "The coast"',
    ] == lines
    assert "Nothing differs." == run("diff", "trip", "@8", "@now", at=travelled).stdout.splitlines()[-1]


def test_diff_of_moments_as_json(travelled: Path) -> None:
    """The other way round, what was added is what only A has."""
    found = ask("diff", "trip", "@8", "@4", at=travelled)

    def pairs(differences: list[dict[str, Any]]) -> dict[str, tuple[Any, Any]]:
        return {one["name"]: (one["a"], one["b"]) for one in differences}

    assert [8, 4] == [found["a"]["position"], found["b"]["position"]]
    assert {"title": ("Latvia", "Riga"), "active_branch": ("main-v2", "main")} == pairs(found["chat"])
    assert {"main-v2": ("m3", None)} == pairs(found["branches"])
    assert [(True, False)] == [(one["in_a"], one["in_b"]) for one in found["branches"]]
    assert {"draft": ("m3", "m2")} == pairs(found["checkpoints"])
    assert (["m3"], []) == ([message["id"] for message in found["only_a"]], found["only_b"])


def test_diff_from_before_the_beginning(travelled: Path) -> None:
    found = ask("diff", "trip", "@0", "@2", at=travelled)

    assert [False, True] == [found["a"]["is_there"], found["b"]["is_there"]]
    assert ["m1"] == [message["id"] for message in found["only_b"]]
    assert "  not there @0" in run("diff", "trip", "@0", "@2", at=travelled).stdout.splitlines()


def test_of_one_user(travelled: Path) -> None:
    """`--as-user` limits what is compared and shown."""
    assert "Riga" == ask("--as-user", "ada", "show", "trip", "--at", "3", at=travelled)["chat"]["title"]
    assert "no chat 'trip'" in fails(1, "--as-user", "bob", "show", "trip", "--at", "3", at=travelled)
    assert "no chat 'trip'" in fails(1, "--as-user", "bob", "diff", "trip", "@1", "@3", at=travelled)

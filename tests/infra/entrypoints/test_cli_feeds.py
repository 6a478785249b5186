"""`watch` with names and shares, and `feeds`."""

import json
import signal
from pathlib import Path

import pytest
from tests.support.cli_world import ask, ask_lines, fails, finish, run, start

import chatledger
from chatledger import user


def test_a_name_goes_on_where_it_ended(samples: Path) -> None:
    """What was printed is not printed again."""
    first = ask_lines("watch", "--name", "n", "-n", "5", at=samples)
    second = ask_lines("watch", "--name", "n", "-n", "17", at=samples)

    assert ask_lines("log", at=samples) == first + second
    assert [("n", None, 22, 0)] == [
        (info["name"], info["share"], info["position"], info["lag"]) for info in ask("feeds", at=samples)
    ]


def test_where_a_new_name_begins(samples: Path) -> None:
    """With the first event, unless --after says otherwise."""
    assert [1] == [event["position"] for event in ask_lines("watch", "--name", "a", "-n", "1", at=samples)]
    assert [8] == [
        event["position"] for event in ask_lines("watch", "--name", "b", "--after", "7", "-n", "1", at=samples)
    ]


def test_shares_and_topics(samples: Path) -> None:
    """Two members print everything once between them; topics leave the rest out."""
    with chatledger.open(samples) as ledger:
        chats = [[r.position for r in ledger.feed(0, share=(i, 2), follow=False)] for i in range(2)]
    for index, expected in enumerate(chats):
        found = ask_lines("watch", "--name", "n", "--share", f"{index}/2", "-n", str(len(expected)), at=samples)
        assert expected == [event["position"] for event in found]
    created = ask_lines(
        "watch", "--after", "0", "--topic", "chat_created", "--topic", "branch_created", "-n", "2", at=samples
    )

    assert {event["type"] for event in created} <= {"chat_created", "branch_created"}
    assert [[0, 2], [1, 2]] == [info["share"] for info in ask("feeds", at=samples)]


@pytest.mark.soak
def test_ctrl_c_keeps_what_was_printed(samples: Path) -> None:
    """Ctrl-C is no error, and the next one goes on after the last line."""
    watch = start("-l", samples, "watch", "--json", "--name", "n")
    assert watch.stdout is not None
    printed = [json.loads(watch.stdout.readline())["position"] for _ in range(22)]
    watch.send_signal(signal.SIGINT)
    assert (0, "", "") == finish(watch)
    with chatledger.open(samples) as ledger:
        assert [("n", 22)] == [(info.name, info.position) for info in ledger.feeds()]
        ledger.append("riga", [user("more")])

    assert list(range(1, 23)) == printed
    assert [23] == [event["position"] for event in ask_lines("watch", "--name", "n", "-n", "1", at=samples)]


def test_feeds_for_people(samples: Path) -> None:
    """A line for each member; a hint when there is none."""
    assert run("feeds", at=samples).stderr.startswith("no feed has a name yet")
    assert [] == ask("feeds", at=samples)
    run("watch", "--name", "n", "-n", "22", at=samples)
    run("watch", "--name", "m", "--share", "1/3", "--after", "21", "-n", "0", at=samples)
    told = run("feeds", at=samples).stdout.splitlines()

    assert told[0].startswith("m 1/3  at 21, 1 position behind  20")
    assert told[1].startswith("n  at 22, up to date  20")


def test_forgetting(samples: Path) -> None:
    """The name is gone; forgetting it again is an error."""
    run("watch", "--name", "n", "-n", "1", at=samples)

    assert "Forgot the feed n.\n" == run("feeds", "--forget", "n", at=samples).stdout
    assert "there is no feed 'n'" in fails(1, "feeds", "--forget", "n", at=samples)
    assert [] == ask("feeds", at=samples)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--share", "3"], 2, "is no share"),
        (["--share", "3/3"], 1, "no share 3 of 3"),
        (["--topic", "nothing"], 2, "nothing"),
        (["--name", "", "-n", "1"], 1, "name must not be empty"),
    ],
    ids=["no share", "beyond", "topic", "name"],
)
def test_mistakes(samples: Path, arguments: list[str], code: int, message: str) -> None:
    """On one line, before anything is printed."""
    assert message in fails(code, "watch", *arguments, at=samples)

"""`log`, `watch`, `replay` and `rebuild`."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cli_world import TIMEOUT_S, ask, ask_lines, fails, finish, run, start

import chatledger
from chatledger import assistant, user
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.draw.tree import draw_flat_lines
from chatledger.domain.values import make_graph

WRITER = "import sys, chatledger\nwith chatledger.open(sys.argv[1]) as l:\n    l.create_chat(sys.argv[2], 'ada')"


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Path]:
    """One chat with every kind of event, and a deleted one, open in this process: commands need not start its server each time."""
    location = tmp_path / "story"
    with chatledger.open(location) as ledger, ledger.context(actor="ada"):
        ledger.create_chat("trip", "ada", title="Riga")
        first, second = ledger.append("trip", [user("hello"), assistant("hi")])
        ledger.set_checkpoint("trip", "start", first.id)
        ledger.fork("trip", first.id)
        ledger.append("trip", [user("again"), user("and again"), user("and once more")])
        ledger.set_active_branch("trip", "main")
        ledger.move_head("trip", "main", first.id, expected=second.id)
        ledger.delete_checkpoint("trip", "start")
        ledger.update_chat("trip", title="Weekend")
        ledger.rename_branch("trip", "main", "Riga")
        ledger.delete_branch("trip", "main-v2")
        ledger.create_chat("gone", "bob")
        ledger.append("gone", [user("secret")])
        ledger.delete_chat("gone")
    with chatledger.open(location):
        yield location


def test_log_tells_what_happened(story: Path) -> None:
    lines = run("log", "trip", at=story).stdout.splitlines()
    told = [line.split(maxsplit=4)[-1] for line in lines]

    assert [line.split()[3] for line in lines] == [
        "chat_created",
        "message_appended",
        "checkpoint_set",
        "branch_created",
        "message_appended",
        "branch_activated",
        "head_moved",
        "checkpoint_deleted",
        "chat_updated",
        "branch_renamed",
        "branch_deleted",
    ]
    assert told[-2:] == ["main to Riga", "main-v2"]
    assert all(line.split()[2] == "ada" for line in lines)
    assert told[0] == '"Riga", owner ada'
    assert told[1] == 'user "hello", assistant "hi", to main'
    assert told[3].startswith("main-v2 at ")
    assert told[3].endswith(", active")
    assert told[4] == 'user "again", user "and again" and 1 more, to main-v2'
    assert told[5] == "main"
    assert told[7] == "start"
    assert told[8] == 'title "Weekend"'


def test_log_of_all_chats_names_them(story: Path) -> None:
    lines = run("log", at=story).stdout.splitlines()

    assert len(lines) == len(ask_lines("log", at=story))
    assert sum(line.endswith("  [trip]") for line in lines) == 11
    assert re.search(r"1 message and 1 branch erased, 2 events, last hash [0-9a-f]{12}  \[gone\]$", lines[-1])


def test_log_as_json(story: Path) -> None:
    with chatledger.open(story) as ledger:
        expected = [json.loads(json.dumps(recorded.to_dict(times="iso"))) for recorded in ledger.history("trip")]

    found = ask_lines("log", "trip", at=story)
    assert found == expected
    assert [event["version"] for event in found] == list(range(1, 12))
    assert [event["previous_hash"] for event in found[1:]] == [event["hash"] for event in found[:-1]]


def test_log_between_positions(story: Path) -> None:
    whole = [event["position"] for event in ask_lines("log", at=story)]

    assert [e["position"] for e in ask_lines("log", "--after", "2", "--until", "4", at=story)] == [3, 4]
    assert [e["position"] for e in ask_lines("log", "-n", "2", at=story)] == whole[:2]
    assert ask_lines("log", "-n", "0", at=story) == []
    assert ask_lines("log", "--after", "999999", at=story) == []
    assert run("log", "--after", "999999", at=story).stdout == ""


def test_log_until_a_time(story: Path) -> None:
    """The time that the log prints includes its event; without an offset it is UTC."""
    events = ask_lines("log", at=story)
    time = events[3]["occurred_at"]
    expected = [event for event in events if event["occurred_at"] <= events[3]["occurred_at"]]

    assert ask_lines("log", "--until", time, at=story) == expected
    assert ask_lines("log", "--until", time.removesuffix("Z").replace("T", " "), at=story) == expected
    assert ask_lines("log", "--until", "2020-01-01", at=story) == []


def test_log_of_a_deleted_chat(story: Path) -> None:
    """Its tombstone stays, so it is not unknown."""
    assert [event["type"] for event in ask_lines("log", "gone", at=story)] == ["chat_deleted"]


@pytest.mark.soak
def test_replay_ends_where_the_index_is(samples: Path) -> None:
    """Each step, and last the same object as `show --json`."""
    for chat_id in ("riga", "sensor", "tortilla"):
        *steps, last = ask_lines("replay", chat_id, at=samples)

        assert last == ask("show", chat_id, at=samples)
        assert [step["version"] for step in steps] == list(range(1, len(steps) + 1))
        assert steps[-1]["messages"] == len(last["messages"])
        assert steps[-1]["active_branch"] == next(b["name"] for b in last["branches"] if b["is_active"])


def test_replay_draws_as_show_does(samples: Path) -> None:
    tree = run("show", "riga", at=samples).stdout.partition("[chat: riga]")[2]
    result = run("replay", "riga", at=samples)

    assert tree
    assert result.exit_code == 0
    assert result.stdout.endswith(tree)


def test_replay_until_a_position(story: Path) -> None:
    """The chat as it was: before the fork there is one branch, and the later messages are not there."""
    result = run("replay", "trip", "--until", "3", at=story)
    *steps, last = ask_lines("replay", "trip", "--until", "3", at=story)
    with chatledger.open(story) as ledger:
        replayed = ReplayedChat("trip", ledger.history("trip", up_to=3))
        drawn = make_graph("trip", replayed.messages, replayed.branches, replayed.checkpoints)

    assert [step["position"] for step in steps] == [1, 2, 3]
    assert [branch["name"] for branch in last["branches"]] == ["main"]
    assert [message["name"] for message in last["messages"]] == ["user", "assistant"]
    assert last["chat"]["title"] == "Riga"
    assert "".join(f"{line}\n" for line in draw_flat_lines(drawn)) in result.stdout
    assert "After 3 events:" in result.stdout


def test_replay_until_a_time(story: Path) -> None:
    events = ask_lines("log", "trip", at=story)
    *steps, _ = ask_lines("replay", "trip", "--until", events[4]["occurred_at"], at=story)

    assert len(steps) == sum(event["occurred_at"] <= events[4]["occurred_at"] for event in events)


def test_replay_before_the_beginning(story: Path) -> None:
    assert fails(1, "replay", "trip", "--until", "2020-01-01", at=story).startswith(
        "chat 'trip' has no events up to 2020"
    )
    assert fails(1, "replay", "trip", "--until", "0", at=story) == "chat 'trip' has no events up to 0"


def test_replay_of_a_deleted_chat(story: Path) -> None:
    assert "the chat is deleted" in run("replay", "gone", at=story).stdout
    assert ask_lines("replay", "gone", at=story)[-1] == {
        "chat": None,
        "messages": [],
        "branches": [],
        "checkpoints": [],
    }


@pytest.mark.soak
def test_rebuild(samples: Path) -> None:
    before = [ask("show", chat["id"], at=samples) for chat in ask("chats", at=samples)]
    result = run("rebuild", at=samples)

    assert result.exit_code == 0
    assert result.stdout.startswith("Rebuilt the index from the log in ")
    assert result.stdout.endswith(" s, up to position 22.\n")
    assert not result.stderr
    assert before == [ask("show", chat["id"], at=samples) for chat in ask("chats", at=samples)]
    assert ask("rebuild", "--processes", "2", at=samples)["position"] == 22
    assert 2 == run("rebuild", "--processes", "0", at=samples).exit_code


def test_watch_from_the_start(samples: Path) -> None:
    watched = ask_lines("watch", "--after", "0", "--limit", "22", at=samples)
    told = run("watch", "--after", "0", "--chat", "tortilla", "-n", "2", at=samples)

    assert watched == ask_lines("log", at=samples)
    assert told.stdout == run("log", "tortilla", "-n", "2", at=samples).stdout


@pytest.mark.soak
def test_watch_sees_what_another_process_writes(samples: Path) -> None:
    """As it happens, only of the chat asked for, until Ctrl-C, which is no error."""
    with chatledger.open(samples) as ledger:
        watch = start("-l", samples, "watch", "--json", "--chat", "riga", "--after", str(ledger.position))
        assert watch.stdout is not None
        ledger.append("sensor", [user("not to be seen")])
        (message,) = ledger.append("riga", [user("are you there?")])
        event = json.loads(watch.stdout.readline())
        ledger.fork("riga", message.id)
        second = json.loads(watch.stdout.readline())
        watch.send_signal(signal.SIGINT)
        code, rest, err = finish(watch)

    assert event["type"] == "message_appended"
    assert event["payload"]["messages"][0]["id"] == message.id
    assert second["type"] == "branch_created"
    assert (code, rest, err) == (0, "", "")


@pytest.mark.soak
def test_ctrl_c_at_a_terminal(tmp_path: Path) -> None:
    """It reaches every process of the foreground group, the embedded server among them, and the log stays sound."""
    chatledger.open(tmp_path / "data").close()  # watching makes no ledger
    watch = start("-l", tmp_path / "data", "watch", "--after", "0", "--json", start_new_session=True)
    assert watch.stdout is not None
    subprocess.run([sys.executable, "-c", WRITER, str(tmp_path / "data"), "chat"], check=True, timeout=TIMEOUT_S)
    assert json.loads(watch.stdout.readline())["chat_id"] == "chat"
    os.killpg(watch.pid, signal.SIGINT)

    assert finish(watch) == (0, "", "")
    assert [chat["id"] for chat in ask("chats", at=tmp_path / "data")] == ["chat"]


@pytest.mark.soak
def test_watch_from_now_on(tmp_path: Path) -> None:
    """It begins at the end of the log."""
    chatledger.open(tmp_path / "data").close()
    watch = start("-l", tmp_path / "data", "watch", "-n", "1", "--json")
    number = 0
    while watch.poll() is None:  # until one of them was written after it began
        subprocess.run(
            [sys.executable, "-c", WRITER, str(tmp_path / "data"), f"chat-{number}"], check=True, timeout=TIMEOUT_S
        )
        number += 1
        assert number < 100
    code, out, err = finish(watch)

    assert (code, err) == (0, "")
    assert json.loads(out)["type"] == "chat_created"

"""An operator's work: threads, deleting, editing, pointers; and nothing that reading makes or says wrongly."""

import contextlib
import csv
import io
import json
import os
import pty
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, TypedDict

import pytest
from click.shell_completion import BashComplete
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from tests.support.cli_world import TIMEOUT_S, ask, ask_lines, fails, finish, run, start
from tests.support.jetstream_world import eventually, nats_server, url_of

import chatledger
from chatledger.errors import LogUnavailableError
from chatledger.graph_state import StateStore, initial_state, state_id
from chatledger.infra.entrypoints.cli.app import VERBS, cli
from chatledger.infra.entrypoints.demo import sample_threads
from chatledger.infra.ledger.items.item_store import ItemStore
from chatledger.infra.log.nats.client import require_jetstream
from chatledger.infra.log.nats.endpoint import Endpoint
from chatledger.langgraph import LedgerSaver

STATE = state_id("ada", "talk")


class _State(TypedDict, total=False):
    n: int


def _count(state: _State) -> _State:
    del state
    return {"n": 1}


def _ask_somebody(state: _State) -> _State:
    del state
    return {"n": interrupt("approve the plan?")}


def make_agents(location: Path) -> None:
    """A ledger without a chat: a thread that waits, one of two assistants, and the state of a graph."""
    graph: Any = StateGraph(_State)
    graph.add_node("count", _count)
    graph.add_node("review", _ask_somebody)
    graph.add_edge(START, "count")
    graph.add_edge("count", "review")
    graph.add_edge("review", END)
    with chatledger.open(location, durability="fast") as ledger:
        saver = LedgerSaver(ledger)
        graph.compile(checkpointer=saver).invoke({"n": 0}, {"configurable": {"thread_id": "trick"}})
        for assistant in ("planner", "critic"):
            app = graph.compile(checkpointer=saver.for_assistant(assistant))
            app.invoke({"n": 0}, {"configurable": {"thread_id": "duo"}})
        StateStore(ledger).put(STATE, initial_state("ada", "hello"), node="start")


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same one for all who only read."""
    location = tmp_path_factory.mktemp("agents") / "data"
    make_agents(location)
    return location


def test_a_ledger_of_threads_is_not_called_empty(agents: Path) -> None:
    assert run("chats", at=agents).stdout == (
        "No chats, but 2 threads of agents ('chatledger threads') and 1 state of a graph.\n"
    )
    assert ask("chats", at=agents) == []
    assert "there are no chats here, but 2 threads of agents" in fails(1, "show", "nope", at=agents)


@pytest.mark.matrix
@pytest.mark.parametrize("verb", [("show",), ("runs",), ("log",), ("replay",), ("export",), ("branches",)])
@pytest.mark.parametrize("given", ["trick", "chatledger:v:t:duo", STATE])
def test_what_is_no_chat_is_called_what_it_is(agents: Path, verb: tuple[str, ...], given: str) -> None:
    """No damage is suspected where there is none."""
    if verb == ("log",) and given.startswith("chatledger:"):
        assert run(*verb, given, at=agents).exit_code == 0
        return
    said = fails(1, *verb, given, at=agents)

    assert "restore" not in said
    assert "empty" not in said
    assert "it is the state of a graph; 'chatledger log" in said or "'chatledger show --thread" in said


def test_doctor_and_verify_count_each_kind(agents: Path, tmp_path: Path) -> None:
    counts = "2 threads of agents, 1 state of a graph"

    assert f" events of {counts} up to position" in run("doctor", at=agents).stdout
    assert f"The index equals it: {counts}.\n" in run("verify", at=agents).stdout
    found = ask("verify", at=agents)
    assert (found["chat_count"], found["thread_count"], found["state_count"]) == (0, 2, 1)
    diagnosis = ask("doctor", at=agents)
    assert (diagnosis["stream_count"], diagnosis["thread_count"], diagnosis["state_count"]) == (3, 2, 1)
    with chatledger.open(tmp_path / "chats", durability="fast") as ledger:
        ledger.create_chat("a", "ada")
    assert "1 event of 1 chat up to position" in run("doctor", at=tmp_path / "chats").stdout


def test_threads(agents: Path) -> None:
    """Each with how it stands, and what it asks; those that wait can be asked for."""
    table = run("threads", at=agents).stdout.splitlines()
    found = {thread["thread_id"]: thread for thread in ask("threads", at=agents)}

    assert table[0].split() == ["thread", "status", "node", "steps", "work", "changed", "(UTC)", "owner", "says"]
    assert [line.split()[:4] for line in table[1:]] == [
        ["duo", "waits", "review", "6"],
        ["trick", "waits", "review", "3"],
    ]
    assert table[1].endswith("approve the plan?")
    assert found["duo"]["assistants"] == ["planner", "critic"]
    assert found["duo"]["namespaces"] == ["assistant:planner", "assistant:critic"]
    assert [found["trick"][name] for name in ("status", "node", "words", "steps")] == [
        "waits",
        "review",
        "approve the plan?",
        3,
    ]
    assert [one["thread_id"] for one in ask("threads", "--assistant", "critic", at=agents)] == ["duo"]
    assert len(ask("threads", "--status", "waits", at=agents)) == 2
    assert run("threads", "--status", "failed", at=agents).stdout == "No thread matches.\n"
    assert run("threads", "--user", "nobody", at=agents).stdout == "No thread matches.\n"
    assert run("threads", "-n", "1", at=agents).stdout.endswith("1 more, --limit cut them\n")


def test_show_a_thread(agents: Path) -> None:
    """Steps with their nodes, and what waits; the same as JSON, agent by agent."""
    lines = run("show", "--thread", "trick", at=agents).stdout.splitlines()
    found = ask("show", "--thread", "duo", at=agents)

    assert lines[0] == "thread trick  waits"
    assert [line.split()[:3] for line in lines[4:8]] == [
        ["●", "-", "input"],
        ["●", "0", "start"],
        ["●", "1", "count"],
        ["●", "2", "review"],
    ]
    assert lines[7] == "●      2  review waits: approve the plan?"
    assert "log chatledger:v:t:trick" in lines[-1]
    assert "earlier steps are left out" in run("show", "--thread", "trick", "-n", "1", at=agents).stdout
    assert [agent["namespace"] for agent in found["agents"]] == ["assistant:planner", "assistant:critic"]
    last = found["agents"][0]["steps"][-1]
    assert (last["is_pending"], last["state"], last["tasks"][0]["asked"][0]["value"]) == (
        True,
        "waits",
        "approve the plan?",
    )
    assert fails(1, "show", "--thread", "trik", at=agents) == "no thread of agents 'trik'; did you mean 'trick'?"


def test_show_a_fork_and_a_state(tmp_path: Path) -> None:
    """A line stands where it leaves the one that is read; of a step, its state, what it changed, and its messages are printed."""
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        for thread in sample_threads():
            ledger.import_value(thread)
    lines = run("show", "--thread", "research-2", at=tmp_path / "data").stdout.splitlines()
    fork = next(number for number, line in enumerate(lines) if line.startswith("├─○"))
    state = run("show", "--thread", "research-2", "--at", "5", at=tmp_path / "data").stdout
    found = ask("show", "--thread", "research-2", "--at", "3", at=tmp_path / "data")
    checkpoint = found["step"]["checkpoint_id"]

    assert [line.split()[:2] for line in lines[fork - 4 : fork]] == [
        ["●", "3"],
        *(["│", "├"] for _ in range(3)),
    ]
    assert lines[fork].split()[:3] == ["├─○", "4", "update"]
    assert "write failed: RateLimitError: 429" in lines[fork + 1]
    assert lines[fork + 2].startswith("●")
    assert state.startswith("thread research-2, step 5 write\n")
    assert '\n- draft: null\n+ draft: "Heat pumps move' in state
    assert "\n~ messages: list, 5, 3 new\n" in state
    assert "additional_kwargs" not in state
    assert "\nai\n  The draft is ready: 812 words" in state
    assert found["changed"] == ["sources"]
    assert ask("show", "--thread", "research-2", "--at", checkpoint[:20], at=tmp_path / "data") == found
    assert fails(1, "show", "--thread", "research-2", "--at", "99", at=tmp_path / "data") == (
        "thread 'research-2' has no step 99; it has steps -1 to 5"
    )
    assert "has no checkpoint 'nope'" in fails(
        1, "show", "--thread", "research-2", "--at", "nope", at=tmp_path / "data"
    )
    assert "is neither a position" in fails(2, "show", "riga", "--at", "nope", at=tmp_path / "data")


def test_states_and_items(tmp_path: Path) -> None:
    """They are listed with the ids by which they are deleted."""
    make_agents(tmp_path / "data")
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        items = ItemStore(ledger.for_user("ada"))
        items.put(("memories",), "food", {"text": "Ada is a vegetarian"})
        items.put(("memories", "old"), "x", {"n": 1})
    at = tmp_path / "data"

    assert [state["id"] for state in ask("states", at=at)] == [STATE]
    assert run("states", at=at).stdout.splitlines()[1].startswith(f"{STATE}        1  start")
    assert run("states", "--user", "bob", at=at).stdout.startswith("No states of graphs")
    assert run("items", at=at).stdout.startswith("No items")
    listed = ask("items", "--user", "ada", at=at)
    assert [(item["id"], item["value"]) for item in listed] == [
        ("item:ada:memories/old:x", {"n": 1}),
        ("item:ada:memories:food", {"text": "Ada is a vegetarian"}),
    ]
    assert len(ask("items", "memories", "old", "--user", "ada", at=at)) == 1
    assert "item:ada:memories:food" in run("items", "--user", "ada", at=at).stdout
    gone = ask("delete", "--state", STATE, "--item", listed[0]["id"], "--yes", at=at)
    assert gone == {"chats": [], "threads": [], "states": [STATE], "items": ["item:ada:memories/old:x"]}
    assert (ask("states", at=at), len(ask("items", "--user", "ada", at=at))) == ([], 1)
    assert "no state of a graph" in fails(1, "delete", "--state", STATE, "-y", at=at)
    assert "no item 'item:ada:x:y'" in fails(1, "delete", "--item", "item:ada:x:y", "--yes", at=at)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "name a chat, or a thread with --thread"),
        (("riga", "--thread", "t"), "either a chat or a thread"),
        (("--thread", "t", "--messages"), "--thread goes with --at, --limit and --json only"),
    ],
)
def test_show_needs_one_of_both(tmp_path: Path, arguments: tuple[str, ...], reason: str) -> None:
    assert reason in fails(2, "show", *arguments, at=tmp_path / "none")


# Changes


def test_delete_needs_a_yes(samples: Path) -> None:
    assert "give --yes" in fails(2, "delete", "riga", at=samples)
    assert "name the chats" in fails(2, "delete", "--yes", at=samples)
    assert "did you mean 'riga'" in fails(1, "delete", "--yes", "sensor", "rigga", at=samples)
    assert {chat["id"] for chat in ask("chats", at=samples)} >= {"riga", "sensor"}

    assert run("delete", "--yes", "--actor", "ops", "riga", "sensor", at=samples).stdout == (
        "Deleted chat riga.\nDeleted chat sensor.\n"
    )
    assert {"riga", "sensor"}.isdisjoint(chat["id"] for chat in ask("chats", at=samples))
    assert [line["actor"] for line in ask_lines("log", "riga", at=samples)] == ["ops"]


def test_erasures(samples: Path) -> None:
    run("delete", "--yes", "riga", at=samples)
    (receipt,) = ask("erasures", "--wait", at=samples)
    assert (receipt["kind"], receipt["id"]) == ("chat", "riga")
    assert receipt["erased_at"] >= receipt["deleted_at"]
    assert ask("erasures", "--pending", at=samples) == []
    shown = run("erasures", at=samples).stdout
    assert "chat riga  " in shown
    assert "1 deletion, 0 to be erased." in shown


def test_delete_threads(tmp_path: Path) -> None:
    make_agents(tmp_path / "data")

    assert ask("delete", "--thread", "trick", "--yes", at=tmp_path / "data") == {
        "chats": [],
        "threads": ["trick"],
        "states": [],
        "items": [],
    }
    assert [thread["thread_id"] for thread in ask("threads", at=tmp_path / "data")] == ["duo"]
    assert "no thread of agents 'trick'" in fails(1, "delete", "--thread", "trick", "--yes", at=tmp_path / "data")


@pytest.mark.matrix
@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("", 1), ("y", 0)])
def test_delete_asks_on_a_terminal(samples: Path, answer: str, code: int) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "chatledger", "-l", str(samples), "delete", "riga"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    os.write(ours, f"{answer}\n".encode())
    said = process.communicate(timeout=TIMEOUT_S)[1]
    os.close(ours)

    assert process.returncode == code
    assert 'chat riga "A weekend in Riga", owner ada, 9 messages\n' in said
    assert "It cannot be undone [y/N]" in said
    assert ("riga" in {chat["id"] for chat in ask("chats", at=samples)}) == bool(code)


def test_edit(samples: Path) -> None:
    assert run("edit", "riga", "--title", "Riga", "--actor", "ops", at=samples).stdout == "Changed riga: title.\n"
    changed = ask(
        "edit", "riga", "--metadata", 'tags=["a","b"]', "--metadata", "lang=lv", "--expires", "2030-01-01", at=samples
    )
    assert changed["metadata"] == {"topic": "travel", "tags": ["a", "b"], "lang": "lv"}
    assert changed["expires_at"] == "2030-01-01T00:00:00.000Z"
    again = ask("edit", "riga", "--remove", "tags", "--expires", "never", "--title", "", at=samples)
    assert "tags" not in again["metadata"]
    assert again["metadata"]["lang"] == "lv"
    assert (again["expires_at"], again["title"]) == (None, None)
    assert "Nothing changed" in run("edit", "riga", "--metadata", "lang=lv", at=samples).stdout
    assert ask_lines("log", "riga", "--actor", "ops", at=samples)[0]["payload"] == {"changes": {"title": "Riga"}}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "say what to change"),
        (("--metadata", "tags=[a"), "is not KEY=JSON"),
        (("--metadata", "tags"), "is not KEY=JSON"),
        (("--expires", "soon"), "is neither a time"),
    ],
)
def test_edits_that_mean_nothing(tmp_path: Path, arguments: tuple[str, ...], reason: str) -> None:
    assert reason in fails(2, "edit", "riga", *arguments, at=tmp_path / "none")


def test_branches_and_checkpoints(samples: Path) -> None:
    branches = run("branches", "riga", at=samples).stdout.splitlines()

    assert {tuple(line.split()[:4]) for line in branches[1:]} >= {("*", "inland", "6", "riga-8")}
    assert {branch["name"] for branch in ask("branches", "riga", at=samples)} == {"main", "main-v2", "inland"}
    assert [line.split()[:2] for line in run("checkpoints", "riga", at=samples).stdout.splitlines()[1:]] == [
        [mark["name"], mark["message_id"]] for mark in ask("checkpoints", "riga", at=samples)
    ]
    assert run("branches", "riga", "-n", "1", at=samples).stdout.endswith("2 more, --limit cut them\n")
    assert "did you mean 'riga'" in fails(1, "checkpoints", "rigga", at=samples)


def test_the_chat_of_a_branch_id(samples: Path) -> None:
    inland = next(branch for branch in ask("branches", "riga", at=samples) if branch["name"] == "inland")
    lines = run("branches", "--id", inland["id"], at=samples).stdout.splitlines()

    assert [line.split()[:3] for line in lines] == [["chat", "branch", "messages"], ["riga", "*", "inland"]]
    assert ask("branches", "--id", inland["id"], at=samples) == [inland]
    assert ask("branches", "riga", "--id", inland["id"], at=samples) == [inland]
    assert fails(1, "branches", "--id", "b-0", at=samples) == "there is no branch with the id 'b-0'"
    assert "in chat 'sensor'" in fails(1, "branches", "sensor", "--id", inland["id"], at=samples)
    assert "or the id of a branch" in fails(2, "branches", at=samples)


# Reading


READING = [
    ("chats",),
    ("show", "x"),
    ("threads",),
    ("branches", "x"),
    ("search", "x"),
    ("log",),
    ("verify",),
    ("doctor",),
    ("doctor", "--repair"),
    ("export",),
    ("delete", "x", "--yes"),
]


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_reading_makes_nothing(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Neither a file nor a folder, where there is no ledger; and nothing in what belongs to others."""
    (tmp_path / "empty").mkdir()
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE people (name TEXT)")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    for place in (f"sqlite:///{tmp_path}/typo.db", str(tmp_path / "typo")):
        result = run("-l", place, *arguments)
        assert result.exit_code == 1
        assert "there is no ledger at" in result.stderr
    assert "there is no ledger at" in fails(1, "-l", f"sqlite:///{other}", *arguments)
    said = run("-l", str(tmp_path / "empty"), *arguments)
    assert said.exit_code == 1
    assert ("it has no format.json" if "doctor" in arguments else "there is no ledger at") in said.output
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_nothing_unseen_in_what_the_doctor_quotes(tmp_path: Path) -> None:
    """Names of folders come from others too."""
    place = tmp_path / "data\u202e"
    place.mkdir()
    said = run("-l", str(place), "doctor").stdout

    assert f"error: {tmp_path}/data\\u202e: it has no format.json\n" in said
    assert "\u202e" not in said


def test_an_sqlite_ledger_is_found(tmp_path: Path) -> None:
    place = f"sqlite:///{tmp_path}/a.db"
    with chatledger.open(place) as ledger:
        ledger.create_chat("a", "ada")
        assert '"id":"a"' in run("-l", place, "chats", "--json").stdout
    assert '"id":"a"' in run("-l", place, "chats", "--json").stdout


@pytest.mark.guard
@pytest.mark.parametrize(
    ("kind", "verb"),
    [("nobody", "chats"), ("silent", "chats"), ("other", "chats"), ("silent", "serve"), ("nobody", "mcp")],
)
def test_a_server_that_does_not_answer(kind: str, verb: str) -> None:
    """Said within three seconds, in words."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        if kind == "nobody":
            listening.close()
        if kind == "other":

            def greet() -> None:
                connection = listening.accept()[0]
                with connection, contextlib.suppress(OSError):
                    connection.sendall(b"HTTP/1.1 400\r\n")
                    connection.recv(1)

            threading.Thread(target=greet, daemon=True).start()
        began = time.monotonic()
        said = fails(1, "-l", f"nats://s3cret@127.0.0.1:{port}/x", verb)
        took_s = time.monotonic() - began

    why = {"nobody": "nobody listens there", "silent": "says nothing", "other": "is no NATS server"}[kind]
    assert said.startswith(f"no NATS server answers at 127.0.0.1:{port}: ")
    assert why in said
    assert "Error" not in said
    assert "s3cret" not in said
    assert took_s < 3


def _serve_without_answers(listening: socket.socket) -> None:
    """Greet, take the login, and say nothing of JetStream."""
    with contextlib.suppress(OSError):
        connection = listening.accept()[0]
        with connection:
            info = {"server_id": "x", "server_name": "x", "version": "2.12.0", "headers": True, "max_payload": 1 << 20}
            connection.sendall(b"INFO " + json.dumps(info).encode() + b"\r\n")
            while data := connection.recv(1 << 16):
                connection.sendall(b"PONG\r\n" * data.count(b"PING\r\n"))


def test_a_server_whose_jetstream_does_not_answer() -> None:
    """Said within the time that is given, in words, and without the login."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"nats://127.0.0.1:{listening.getsockname()[1]}"
        for _ in range(2):  # the first look is at the greeting alone
            threading.Thread(target=_serve_without_answers, args=(listening,), daemon=True).start()
        with pytest.raises(LogUnavailableError, match="greets, but its JetStream does not answer") as caught:
            require_jetstream(lambda: Endpoint(urls=(url,), token="s3cret"), "x", timeout_s=0.4)
    assert url.removeprefix("nats://") in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_imports_are_not_in_the_time_of_a_server() -> None:
    """What asks a server is there before its two seconds begin: on a busy machine it takes longer to import."""
    code = """
import sys
from chatledger.infra.log.nats.client import require_jetstream

class Begun(Exception):
    pass

def connect():
    assert {"nats.aio.client", "anyio"} <= sys.modules.keys()
    raise Begun

assert "nats.aio.client" not in sys.modules
try:
    require_jetstream(connect, "x")
except Begun:
    print("asked")
"""
    assert "asked\n" == subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.guard
def test_a_server_without_jetstream(tmp_path: Path) -> None:
    """The words name the option; a stream that is not there is left to whoever opens the log."""
    config = tmp_path / "nats.conf"
    config.write_text("host: 127.0.0.1\nport: -1\n")
    process = nats_server(config)
    try:
        url = eventually(lambda: url_of(process, tmp_path))
        with pytest.raises(
            LogUnavailableError, match="has no JetStream, which keeps the log: start it with --jetstream"
        ):
            require_jetstream(lambda: Endpoint(urls=(url,)), "x", timeout_s=2)
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--as-user", "bob", "verify"), "verify is about the chats of all users; leave out --as-user"),
        (("--as-user", "bob", "backup", "x"), "leave out --as-user"),
        (("chats", "-n", "x"), "'x' is not a valid whole number"),
        (("diff", "riga", "@now", "main"), "compare two moments, such as @120 and @now, or two branches"),
        (("chats", "--json", "--csv"), "JSON or CSV, not both"),
        (("chats", "--csv", "--json"), "JSON or CSV, not both"),
    ],
)
def test_wrong_use_is_told_in_words(samples: Path, arguments: tuple[str, ...], reason: str) -> None:
    assert reason in fails(2, *arguments, at=samples)


def test_times_in_json_are_iso(samples: Path) -> None:
    times = [
        ask("chats", at=samples)[0]["created_at"],
        ask("show", "riga", at=samples)["messages"][0]["created_at"],
        ask("branches", "riga", at=samples)[0]["created_at"],
        ask("search", "riga", at=samples)[0]["message"]["created_at"],
        ask_lines("log", at=samples)[0]["occurred_at"],
        ask_lines("replay", "riga", at=samples)[0]["occurred_at"],
    ]

    assert all(isinstance(time, str) and time.endswith("Z") and "T" in time for time in times)


@pytest.mark.parametrize(
    ("arguments", "column"),
    [
        (("chats",), "id"),
        (("branches", "riga"), "name"),
        (("checkpoints", "riga"), "name"),
        (("search", "riga"), "snippet"),
        (("log",), "what"),
        (("runs", "riga"), "run_id"),
        (("threads",), "words"),
        (("states",), "version"),
        (("items",), "key"),
        (("feeds",), "name"),
    ],
)
def test_lists_as_csv(samples: Path, arguments: tuple[str, ...], column: str) -> None:
    """With a heading also when there is nothing, and as many lines as there are values in the JSON."""
    found = csv.DictReader(io.StringIO(run(*arguments, "--csv", at=samples).stdout))
    result = run(*arguments, "--json", at=samples).stdout
    expected = [line for line in result.splitlines() if line.startswith("{")]

    assert column in (found.fieldnames or ())
    assert len(list(found)) == len(expected)


@pytest.mark.matrix
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    script = run("completion", shell).stdout
    word = "1" if shell != "fish" else "bran"
    code, out, _ = finish(
        start(_CHATLEDGER_COMPLETE=f"{shell}_complete", COMP_WORDS="chatledger bran", COMP_CWORD=word)
    )

    assert "_CHATLEDGER_COMPLETE" in script
    assert code == 0
    assert "branches" in out
    assert VERBS.keys() >= {"branches", "completion"}


@pytest.mark.guard
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("chatledger show ", ["trip", "trap"]),
        ("chatledger show tri", ["trip"]),
        ("chatledger branches t", ["trip", "trap"]),
        ("chatledger --as-user eve show ", []),
        ("chatledger --location nowhere show ", []),
    ],
)
def test_completion_of_chats(words: str, completed: list[str], tmp_path: Path) -> None:
    """The chats of the ledger that the words before name are offered, those changed last first."""
    with chatledger.open(f"sqlite:///{tmp_path / 'chats.db'}") as ledger:
        for chat_id in ("trap", "trip"):
            ledger.create_chat(chat_id, "ada", title="Riga")
            time.sleep(0.002)  # those of one millisecond are in the order of their ids
    code, out, err = finish(
        start(
            _CHATLEDGER_COMPLETE="bash_complete",
            COMP_WORDS=words,
            COMP_CWORD=str(len(words.split(" ")) - 1),
            CHATLEDGER_LOCATION=f"sqlite:///{tmp_path / 'chats.db'}",
        )
    )
    assert (code, err) == (0, "")
    assert [line.partition(",")[2] for line in out.split()] == completed


def test_completion_of_ids(agents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Branches of the chat that is named, threads, states, items and users: what the ledger has that the words before name."""
    location = f"sqlite:///{tmp_path / 'chats.db'}"
    with chatledger.open(location) as ledger:
        for chat_id, owner in (("trap", "eve"), ("trip", "ada")):
            ledger.create_chat(chat_id, owner)
            time.sleep(0.002)  # as above
        ledger.create_branch("trip", "north", None)
        ledger.set_member("trip", "bob", "reader")
        ItemStore(ledger.for_user("ada")).put(("facts",), "home", {"city": "Riga"})
        ItemStore(ledger).put(("facts",), "sky", {"colour": "blue"})
    table: list[tuple[str | Path, str, list[str]]] = [
        (location, "show trip --branch n", ["north"]),
        (location, "show --branch n", []),
        (location, "chats --user ", ["ada", "eve"]),
        (location, "--as-user ada chats --user ", ["ada"]),
        (location, "members remove trip b", ["bob"]),
        (location, "bundle create trip tr", ["trip", "trap"]),
        (location, "delete --item item:", ["item::facts:sky", "item:ada:facts:home"]),
        (location, "--as-user ada delete --item ", ["item:ada:facts:home"]),
        (agents, "show --thread t", ["trick"]),
        (agents, "prune trick ", ["duo", "trick"]),
        (agents, "delete --state ", [STATE]),
        (agents, "--as-user bob delete --state ", []),
    ]
    for place, words, completed in table:
        monkeypatch.setenv("CHATLEDGER_LOCATION", str(place))
        *before, incomplete = words.split(" ")
        shell = BashComplete(cli, {}, "chatledger", "_CHATLEDGER_COMPLETE")
        assert [item.value for item in shell.get_completions(before, incomplete)] == completed, words

"""Several processes on one data directory: one log, one index, one owner after another."""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.ledger_world import Outcome, Worker, check_chat, text, texts
from tests.support.soak import IS_SOAK

import chatledger
from chatledger import Ledger

COUNT = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


def start(stack: ExitStack, path: Path, count: int) -> list[Worker]:
    """That many processes, all of which opened the directory at the same time."""
    workers = [stack.enter_context(Worker(path, durability="fast")) for _ in range(count)]
    return [worker.ready() for worker in workers]


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with chatledger.open(path, durability="fast") as ledger:
        ledger.create_chat("c", "u")
        yield ledger


@pytest.mark.guard
@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.soak)])
@pytest.mark.parametrize("chats", [1, pytest.param(7, marks=pytest.mark.soak)], ids=["one chat", "many chats"])
def test_processes_append(path: Path, count: int, chats: int) -> None:
    """No message is lost or doubled, versions have no holes, and each process's messages keep their order."""
    names = [f"chat {number}" for number in range(chats)]
    with ExitStack() as stack:
        workers = start(stack, path, count)
        for name in names:
            workers[0].answer("create_chat", name, "u")
        for number, worker in enumerate(workers):
            worker.send("storm", f"w{number}", names, COUNT)
        assert [worker.receive() for worker in workers] == [["ok", COUNT]] * count
        for worker in workers:
            worker.answer("sync")
            for name in names:
                worker.answer("check", name)
        found = [[m["id"] for m in workers[-1].answer("get_messages", name)] for name in names]

    assert sorted(one for chain in found for one in chain) == sorted(
        f"w{number}-{turn}" for number in range(count) for turn in range(COUNT)
    )
    for number in range(count):
        for index, chain in enumerate(found):
            mine = [one for one in chain if one.startswith(f"w{number}-")]
            assert mine == [f"w{number}-{turn}" for turn in range(index, COUNT, chats)]
    with chatledger.open(path, index=path.with_name("index"), durability="fast") as ledger:
        for name, chain in zip(names, found, strict=True):
            check_chat(ledger, name)
            assert [message.id for message in ledger.get_messages(name)] == chain


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.soak)])
def test_one_process_wins_a_head(path: Path, count: int) -> None:
    """Of processes that expect the same head exactly one wins, turn after turn."""
    with ExitStack() as stack:
        workers = start(stack, path, count)
        workers[0].answer("create_chat", "c", "u")
        head: str | None = None
        for turn in range(25):
            for number, worker in enumerate(workers):
                message = {"name": "user", "data": "x", "id": f"{turn} {number}"}
                worker.send("append", "c", [message], expected_head=head)
            outcomes = [worker.receive() for worker in workers]
            winners = [outcome[1][0]["id"] for outcome in outcomes if outcome[0] == "ok"]
            assert len(winners) == 1
            assert Counter(outcome[1] for outcome in outcomes if outcome[0] == "error") == {
                "HeadConflictError": count - 1
            }
            head = winners[0]
        assert len(workers[-1].answer("check", "c")) == 25


@pytest.mark.soak
def test_others_take_over_when_the_owner_leaves(path: Path) -> None:
    """When the process that runs the server ends, the others go on, turn after turn, down to the last."""
    with ExitStack() as stack:
        workers = start(stack, path, 4)
        workers[0].answer("create_chat", "c", "u")
        expected: list[str] = []
        while workers:
            for number, worker in enumerate(workers):
                worker.answer("append", "c", [{"name": "user", "data": f"{len(workers)} {number}"}])
                expected.append(f"{len(workers)} {number}")
            owners = [worker for worker in workers if worker.answer("is_owner")]
            assert len(owners) == 1
            owners[0].close()
            workers.remove(owners[0])
    with chatledger.open(path, durability="fast") as ledger:
        assert texts(ledger, "c") == expected
        check_chat(ledger, "c")


@pytest.mark.soak
def test_others_take_over_when_the_owner_is_killed(path: Path) -> None:
    """Kill -9 of the owner while all write: the others finish, and no message is lost or doubled."""
    with ExitStack() as stack:
        workers = start(stack, path, 3)
        workers[0].answer("create_chat", "c", "u")
        owner = next(worker for worker in workers if worker.answer("is_owner"))
        others = [worker for worker in workers if worker is not owner]
        owner.send("forever", "owner", "c")
        for number, worker in enumerate(others):
            worker.send("storm", f"w{number}", ["c"], COUNT)
        acknowledged = [owner.receive() for _ in range(20)]
        owner.kill()
        acknowledged += owner.rest()
        assert [worker.receive() for worker in others] == [["ok", COUNT]] * 2
        for worker in others:
            worker.answer("sync")
            found = [message["id"] for message in worker.answer("get_messages", "c")]
            worker.answer("check", "c")
            for number in range(2):
                assert [one for one in found if one.startswith(f"w{number}-")] == [
                    f"w{number}-{turn}" for turn in range(COUNT)
                ]
            _check_acknowledged(found, acknowledged)


def _check_acknowledged(found: list[str], lines: list[Outcome]) -> None:
    """Check that what was acknowledged is there once, and what was begun is there as a whole or not at all."""
    for word, pair in lines:
        counts = [found.count(message_id) for message_id in pair]
        assert counts == [1, 1] or (word == "begun" and counts == [0, 0]), (word, pair, counts)


@pytest.mark.parametrize("victim", ["writer", "server", "both"])
@pytest.mark.matrix
def test_kill_at_any_moment(path: Path, victim: str) -> None:
    """After kill -9 at a random moment, all acknowledged operations are there once, and no commit is there in part (PS 3)."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    lines: list[Outcome] = []
    found: list[str] = []
    with chatledger.open(path) as ledger:
        ledger.create_chat("c", "u")
    for turn in range(6 if IS_SOAK else 1):
        with Worker(path) as worker:
            worker.ready()
            server = json.loads((path / "endpoint.json").read_bytes())["server_pid"]
            worker.send("forever", f"t{turn}", "c")
            lines += [worker.receive() for _ in range(dice.randrange(30))]
            if victim != "writer":
                os.kill(server, signal.SIGKILL)
            if victim == "server":
                lines += [worker.receive() for _ in range(dice.randrange(10))]
            worker.kill()
            lines += worker.rest()
        with chatledger.open(path) as ledger:
            found = [message.id for message in ledger.get_messages("c")]
            _check_acknowledged(found, lines)
            check_chat(ledger, "c")
            assert len(found) == len(set(found))
    with chatledger.open(path, index=path.with_name("fresh")) as ledger:
        assert [message.id for message in ledger.get_messages("c")] == found
        check_chat(ledger, "c")


@pytest.mark.soak
def test_rebuild_by_one_of_several(ledger: Ledger, path: Path) -> None:
    """A rebuild in one process moves all of them to the new index, while they write."""
    with ExitStack() as stack:
        workers = start(stack, path, 2)
        for number, worker in enumerate(workers):
            worker.send("storm", f"w{number}", ["c"], COUNT)
        for _ in range(5):
            ledger.rebuild()
        assert [worker.receive() for worker in workers] == [["ok", COUNT]] * 2
        ledger.sync()
        assert len(texts(ledger, "c")) == 2 * COUNT
        for worker in workers:
            assert len(worker.answer("check", "c")) == 2 * COUNT
    assert [folder.name for folder in (path / "index").iterdir() if folder.is_dir()] == ["000006"]


@pytest.mark.soak
def test_an_index_grows_under_several_processes(ledger: Ledger, path: Path) -> None:
    """When one process enlarges the index's map, the others follow."""
    large = "x" * 900_000
    with Worker(path, durability="fast").ready() as worker:
        for number in range(60):
            ledger.append("c", [text(large)])
            worker.answer("append", "c", [{"name": "user", "data": large}])
            if number % 20 == 19:
                assert worker.answer("get_chat", "c")["message_count"] == 2 * number + 2
        ledger.sync()
        assert len(ledger.get_messages("c")) == 120
        assert len(worker.answer("get_messages", "c", limit=3)) == 3


@pytest.mark.soak
def test_deletions_by_several_processes(ledger: Ledger, path: Path) -> None:
    """Of processes that delete a chat at once one is told that it did."""
    with ExitStack() as stack:
        workers = start(stack, path, 3)
        for turn in range(8):
            ledger.create_chat(f"gone {turn}", "u")
            ledger.append(f"gone {turn}", [text(str(number)) for number in range(30)])
            for worker in workers:
                worker.send("delete_chat", f"gone {turn}")
            assert sorted(worker.receive()[1] for worker in workers) == [False, False, True]
        ledger.sync()
        assert [chat.id for chat in ledger.list_chats()] == ["c"]
        ledger.rebuild()
        assert [chat.id for chat in ledger.list_chats()] == ["c"]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_processes_share_a_database(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    """Two processes on one SQL log, with one index or with two, lose and double nothing (PS-37)."""
    indexes: Sequence[str | None]
    if kind == "sqlite":
        location, indexes = f"sqlite:///{tmp_path / 'ledger.db'}", [None, None]
    else:
        location = request.getfixturevalue("new_postgres_database")()
        indexes = [str(tmp_path / "one"), str(tmp_path / "other")]
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(location, index=index)).ready() for index in indexes]
        workers[0].answer("create_chat", "c", "u")
        for number, worker in enumerate(workers):
            worker.send("storm", f"w{number}", ["c"], COUNT)
        assert [worker.receive() for worker in workers] == [["ok", COUNT]] * 2
        for worker in workers:
            worker.answer("sync")
            found = [message["id"] for message in worker.answer("check", "c")]
            assert sorted(found) == sorted(f"w{number}-{turn}" for number in range(2) for turn in range(COUNT))
        worker = workers[1]
        worker.send("positions", worker.answer("current"), 3)
        workers[0].answer("storm", "late", ["c"], 3)
        assert len(worker.receive()[1]) == 3


_FORKED = """
import os, sys
import chatledger

location = sys.argv[1]
children = []
for number in range(4):
    child = os.fork()
    if not child:
        code = 1
        try:
            with chatledger.open(location, durability="fast") as ledger:
                for count in range(25):
                    ledger.upsert_chat(f"c{number}", "u")
                    ledger.append(f"c{number}", [chatledger.NewMessage("user", str(count))])
            code = 0
        finally:
            os._exit(code)
    children.append(child)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


@pytest.mark.soak
def test_workers_that_were_forked_after_the_import_write_at_once(tmp_path: Path) -> None:
    """As web servers do that load the application first: nothing that a process draws is drawn again by another one."""
    done = subprocess.run(
        [sys.executable, "-c", _FORKED, str(tmp_path / "data")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        for number in range(4):
            assert [str(count) for count in range(25)] == [m.data for m in ledger.get_messages(f"c{number}")]
        ledger.verify()

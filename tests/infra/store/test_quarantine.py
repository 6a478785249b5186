"""Chats that lost events for good are set aside and refused, by name, until they are restored or given up; the rest is served."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from tests.support.backup_world import block, changed, content, fill, reopened, word
from tests.support.cli_world import run

import chatledger
from chatledger import (
    ChainIntegrityError,
    ChatledgerError,
    ConfigurationError,
    CorruptStateError,
    Ledger,
    NotFoundError,
    admin,
    user,
)
from chatledger.admin import Diagnosis, Repair
from chatledger.domain.versioned.record import PutVersion
from chatledger.errors import QuarantinedError
from chatledger.graph_state import StateStore
from chatledger.infra.ledger.threads import Threads
from chatledger.infra.store.opening import STREAM
from chatledger.infra.testing.savers import Calls
from chatledger.langgraph import LedgerSaver
from chatledger.projections.log.kinds import THREADS

ID = "chat:ada:trip"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three chats of one owner in a ledger, and beside it a backup of them."""
    base = tmp_path_factory.mktemp("filled") / "base"
    with chatledger.open(base / "data", durability="fast", compression="none") as ledger:
        fill(ledger)
        ledger.backup(base / "backup")
    return base


@pytest.fixture
def data(filled: Path, tmp_path: Path) -> Path:
    """A copy of both for a test."""
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    return tmp_path / "data"


def damage(data: Path, text: str) -> None:
    """Damage a text on the log, and lose the index that could have brought it back."""
    with changed(block(data)) as raw:
        raw[raw.index(text.encode()) + 2] ^= 6
    shutil.rmtree(data / "index")


def kinds(found: Diagnosis) -> set[str]:
    return {finding.kind for finding in found.findings if finding.severity != "note"}


QUESTIONS: dict[str, Callable[[Ledger], Any]] = {
    "get_chat": lambda ledger: ledger.get_chat("a"),
    "get_messages": lambda ledger: ledger.get_messages("a"),
    "get_branch": lambda ledger: ledger.get_branch("a", "main"),
    "graph": lambda ledger: ledger.graph("a"),
    "search": lambda ledger: ledger.search("word", chat_id="a"),
    "as_of": lambda ledger: ledger.as_of(ledger.position).get_messages("a"),
    "append": lambda ledger: ledger.append("a", [user("more")]),
    "create": lambda ledger: ledger.create_chat("a", "ada"),
    "delete": lambda ledger: ledger.delete_chat("a"),
    "update": lambda ledger: ledger.update_chat("a", title="new"),
    "export": lambda ledger: ledger.export_chat("a"),
    "of its owner": lambda ledger: ledger.for_user("ada").get_messages("a"),
}


@pytest.fixture
def cut(data: Path) -> tuple[Path, Repair]:
    """After a repair that could not bring back what chat `a` lost."""
    damage(data, word("a", 2))
    done = admin.repair(data)
    assert done.cut == ("a",)
    return data, done


@pytest.mark.matrix
@pytest.mark.parametrize("name", QUESTIONS)
def test_a_hole_is_not_served(cut: tuple[Path, Repair], name: str) -> None:
    """Every question and every command about the chat is refused, and the refusal says where what is left is noted."""
    data, _ = cut
    with chatledger.open(data) as ledger:
        position = ledger.position
        with pytest.raises(
            QuarantinedError,
            match=r"3 of at least 7 are left, with the content of 3 behind the damage, see .*quarantine",
        ) as caught:
            QUESTIONS[name](ledger)
        assert (caught.value.chat_id, ledger.last_position()) == ("a", position)
        assert isinstance(caught.value, ChainIntegrityError)


def test_the_rest_is_served(data: Path) -> None:
    """Other chats, lists, the history, feeds and `verify` go on; other users learn nothing of the chat."""
    before = reopened(data)
    damage(data, word("a", 2))
    admin.repair(data)
    with chatledger.open(data) as ledger:
        ledger.verify()
        assert [ledger.graph(one) for one in "bc"] == [graph for graph in before["graphs"] if graph.chat_id != "a"][
            ::-1
        ]
        ledger.append("b", [user("goes on")])
        assert len(list(ledger.feed(after=0, follow=False))) == len(list(ledger.history()))
        assert list(ledger.for_user("ada").feed(after=0, follow=False))
        assert ledger.for_user("eve").get_chat("a") is None
        with pytest.raises(ChatledgerError) as caught:
            ledger.for_user("eve").append("a", [user("?")])
        assert not isinstance(caught.value, QuarantinedError)
        assert ledger.delete_chat("c")
    with chatledger.open(data) as ledger, pytest.raises(QuarantinedError):
        ledger.get_chat("a")


def test_it_is_noted_and_named(cut: tuple[Path, Repair]) -> None:
    """The note says what, why and where the damaged files are, which are as they were; the doctor names the chat."""
    data, done = cut
    (note,) = data.glob("quarantine/*/note.json")
    found = json.loads(note.read_text())
    assert (found["kept_as"], found["why"]) == (done.kept_as, "the log was damaged")
    (stream,) = found["streams"]
    assert (stream["id"], stream["kept"], stream["given_up_at"]) == ("a", 3, None)
    assert stream["seen"] > 3
    assert (note.stat().st_mode & 0o777, note.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert b"word-a-3" in content(Path(str(done.kept_as)))
    diagnosis = admin.diagnose(data)
    assert kinds(diagnosis) == {"quarantined"}
    assert "set-aside" in {finding.kind for finding in diagnosis.findings}
    assert any("in quarantine" in line for line in done.describe())


@pytest.mark.guard
def test_a_later_backup_brings_it_back(cut: tuple[Path, Repair], tmp_path: Path) -> None:
    """A backup of the log before the repair fills the holes; what was written since stays, and nothing is refused."""
    data, _ = cut
    with chatledger.open(data) as ledger:
        ledger.append("b", [user("since then")])
    done = admin.repair(data, backup=tmp_path / "backup")
    assert (done.released, done.cut, done.lost_count) == (("a",), (), 0)
    after = reopened(data)
    with chatledger.open(data) as ledger:
        assert [message.text for message in ledger.get_messages("a")] == [word("a", number) for number in range(4)]
        assert ledger.get_messages("b")[-1].text == "since then"
        ledger.append("a", [user("goes on")])
    assert admin.diagnose(data).is_healthy
    assert len({event["position"] for event in after["history"]}) == len(after["history"])


@pytest.mark.soak
def test_an_older_backup_does_not(data: Path, tmp_path: Path) -> None:
    """What the backup does not have either stays refused."""
    admin.restore(tmp_path / "backup", tmp_path / "newer")
    with chatledger.open(tmp_path / "newer", compression="none") as ledger:
        ledger.backup(tmp_path / "backup")
        for number in range(3):
            ledger.append("a", [user(f"later {number}")])
    damage(tmp_path / "newer", "later 1")
    assert admin.repair(tmp_path / "newer").cut == ("a",)
    done = admin.repair(tmp_path / "newer", backup=tmp_path / "backup")
    assert done.released == ()
    with chatledger.open(tmp_path / "newer") as ledger, pytest.raises(QuarantinedError):
        ledger.get_messages("a")
    assert data.exists()


@pytest.mark.guard
def test_giving_up(cut: tuple[Path, Repair]) -> None:
    """What is left is served when its user says so; that it lost events stays noted, also through another repair."""
    data, _ = cut
    assert admin.give_up(data, "a").kept == 3
    with chatledger.open(data) as ledger:
        first, second, lost, last = ledger.get_messages("a")
        assert [first.text, second.text, last.text] == [word("a", 0), word("a", 1), word("a", 3)]
        assert (lost.name, lost.type, lost.parent_id, lost.id) == ("lost", "lost", second.id, last.parent_id)
        ledger.append("a", [user("a new beginning")])
        ledger.verify()
    assert admin.diagnose(data).is_healthy
    for chat_id in ("a", "b", "never"):
        with pytest.raises(NotFoundError, match="not in quarantine"):
            admin.give_up(data, chat_id)
    damage(data, word("b", 2))
    assert admin.repair(data).cut == ("b",)
    assert len(list(data.glob("quarantine/*/note.json"))) == 2
    with chatledger.open(data) as ledger:
        assert ledger.get_messages("a")[-1].text == "a new beginning"
        with pytest.raises(QuarantinedError):
            ledger.get_messages("b")


@pytest.mark.soak
def test_a_backup_does_not_wash_it_clean(cut: tuple[Path, Repair], tmp_path: Path) -> None:
    """A backup of what is left says so: restored into a directory the chat is refused too, elsewhere it is not restored."""
    data, _ = cut
    with chatledger.open(data) as ledger:
        ledger.backup(tmp_path / "later")
    admin.check_backup(tmp_path / "later")
    with pytest.raises(ConfigurationError, match="'a'"):
        admin.restore(tmp_path / "later", f"sqlite:///{tmp_path}/a.db")
    admin.restore(tmp_path / "later", tmp_path / "restored")
    with chatledger.open(tmp_path / "restored") as ledger:
        assert ledger.get_messages("b")
        with pytest.raises(QuarantinedError):
            ledger.get_messages("a")
    admin.give_up(tmp_path / "restored", "a")
    with chatledger.open(tmp_path / "restored") as ledger:
        ledger.backup(tmp_path / "later")
    admin.restore(tmp_path / "later", f"sqlite:///{tmp_path}/a.db")


def test_a_note_that_can_not_be_read(cut: tuple[Path, Repair]) -> None:
    """Nobody knows what is to be refused, so nothing is served."""
    data, _ = cut
    (note,) = data.glob("quarantine/*/note.json")
    raw = note.read_bytes()
    note.write_bytes(raw[:-10])
    with pytest.raises(CorruptStateError, match=r"note\.json"):
        chatledger.open(data)
    assert "quarantine-damaged" in kinds(admin.diagnose(data))
    note.write_bytes(raw.replace(b'"format": 1', b'"format": 9'))
    with pytest.raises(ConfigurationError, match="upgrade"):
        chatledger.open(data)


@pytest.mark.guard
def test_a_thread_of_agents(data: Path) -> None:
    """A thread that lost events is refused too; threads are still listed, and the others read and searched."""
    with chatledger.open(data) as ledger:
        threads = Threads(ledger)
        for step in range(3):
            threads.put_checkpoint("t", checkpoint(step))
        kept = Calls(LedgerSaver(ledger), is_async=False).put("kept", {"messages": [HumanMessage("castle")]})
    damage(data, "agent-step-1")
    assert admin.repair(data).cut == ("chatledger:v:t:t",)
    with chatledger.open(data) as ledger:
        threads = Threads(ledger)
        with pytest.raises(QuarantinedError, match="thread 't'"):
            threads.put_checkpoint("t", checkpoint(3))
        with pytest.raises(QuarantinedError, match="thread 't'"):
            threads.copy("t", "other")
        assert threads.thread_ids() == ["t", "kept"]
        saver = LedgerSaver(ledger)
        assert [hit.place and hit.place.version for hit in ledger.search("castle")] == [kept]
        assert [one.checkpoint["id"] for one in saver.list(None)] == [kept]
        with pytest.raises(QuarantinedError, match="thread 't'"):
            ledger.search("castle", thread_id="t")
        with pytest.raises(QuarantinedError, match="thread 't'"):
            list(saver.list({"configurable": {"thread_id": "t"}}))
    admin.give_up(data, "chatledger:v:t:t")
    with chatledger.open(data) as ledger:
        threads = Threads(ledger)
        with ledger._store.snapshot() as snapshot:  # pyright: ignore[reportPrivateUsage] - what a saver reads
            found = [version.id for version in snapshot.stream(THREADS, "t").versions("")]
        assert found == ["02", "00"]
        threads.put_checkpoint("t", checkpoint(1))
        ledger.verify()


@pytest.mark.guard
def test_a_state_of_a_graph(data: Path) -> None:
    """A state that lost versions is refused too."""
    with chatledger.open(data) as ledger:
        store = StateStore(ledger)
        for number in range(3):
            store.put(ID, {"step": f"graph-step-{number}"})
    damage(data, "graph-step-1")
    (stream,) = admin.repair(data).cut
    with chatledger.open(data) as ledger:
        store = StateStore(ledger)
        with pytest.raises(QuarantinedError):
            store.get(ID)
        with pytest.raises(QuarantinedError):
            store.put(ID, {"step": "more"})
    admin.give_up(data, stream)
    with chatledger.open(data) as ledger:
        left = StateStore(ledger).get(ID)
        assert left == {"step": "graph-step-2"}
        ledger.verify()


def checkpoint(step: int) -> PutVersion:
    return PutVersion(
        id=f"{step:02}",
        parent=None if not step else f"{step - 1:02}",
        frames=(("msgpack", b"\x80"), ("json", b'{"note": "agent-step-%d"}' % step)),
        values={},
        run_id="r",
    )


def test_the_commands(cut: tuple[Path, Repair]) -> None:
    """`doctor` names it and its way out, other commands refuse it in one line, `--give-up` ends it."""
    data, _ = cut
    place = ("--location", str(data))
    found = run(*place, "doctor")
    assert (found.exit_code, "--give-up" in found.stdout) == (1, True)
    shown = run(*place, "show", "a")
    assert (shown.exit_code, "lost events" in shown.stderr) == (1, True)
    assert run(*place, "doctor", "--repair", "--give-up", "a").exit_code == 2
    assert run(*place, "doctor", "--give-up", "b").exit_code == 1
    done = run(*place, "doctor", "--give-up", "a", "--json")
    assert (done.exit_code, json.loads(done.stdout)[0]["kept"]) == (0, 3)
    assert run(*place, "doctor").exit_code == 0
    assert run("--location", "sqlite:///x.db", "doctor", "--give-up", "a").exit_code == 1


# A damaged index


READ = """
import sys, chatledger
with chatledger.open(sys.argv[1]) as ledger:
    for chat in ledger.list_chats():
        ledger.get_messages(chat.id)
"""


def damage_branches(data: Path) -> None:
    """Branches of the index lead behind the end of its file: reading them ends the process."""
    file = next((data / "index").rglob("data.mdb"))
    with changed(file) as raw:
        for at in range(2 * 4096, len(raw), 4096):
            if raw[at + 10] == 1 and raw[at + 11] == 0:
                node = at + int.from_bytes(raw[at + 16 : at + 18], "little")
                raw[node + 3] = 0x7F


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A ledger whose index has branches."""
    with chatledger.open(tmp_path / "large", durability="fast", compression="none") as ledger:
        fill(ledger, messages=2)
        ledger.append("a", [user(f"{number} " + "x" * 500) for number in range(200)])
    return tmp_path / "large"


@pytest.mark.soak
def test_the_doctor_survives_a_damaged_index(large: Path) -> None:
    """It names the damage; the repair sets the index aside and builds another, and the log stays as it was."""
    before = reopened(large)
    damage_branches(large)
    log = content(large / "log" / "jetstream" / "$G" / "streams" / STREAM / "msgs")
    damaged = content(large / "index")
    found = run("--location", str(large), "doctor")
    assert (found.exit_code, "index" in found.stdout) == (1, True)
    assert kinds(admin.diagnose(large)) == {"index-damaged"}
    done = run("--location", str(large), "doctor", "--repair", "--json")
    kept_as = Path(json.loads(done.stdout)["index_kept_as"])
    assert content(kept_as) == damaged
    assert content(large / "log" / "jetstream" / "$G" / "streams" / STREAM / "msgs") == log
    assert admin.diagnose(large).is_healthy
    assert reopened(large) == before


@pytest.mark.soak
def test_a_damaged_index_ends_one_process_at_most(large: Path) -> None:
    """LMDB ends the process that meets the damage, or returns an error. The next one looks at it first, and builds another."""
    before = reopened(large)
    damage_branches(large)
    ended = subprocess.run([sys.executable, "-c", READ, str(large)], capture_output=True, check=False)
    assert ended.returncode != 0
    assert reopened(large) == before


@pytest.mark.soak
def test_a_damaged_index_is_no_witness(large: Path) -> None:
    """Where the log is damaged too, the repair does without the index, and does not die of it."""
    damage_branches(large)
    with changed(block(large)) as raw:
        raw[raw.index(word("b", 1).encode())] ^= 3
    assert admin.repair(large).cut == ("b",)
    with chatledger.open(large) as ledger:
        assert len(ledger.get_messages("a", limit=None)) == 202

"""Repair of a chat whose events can be read behind the damage: they stay in it, and what is missing shows; a backup brings the rest back."""

import json
import shutil
from pathlib import Path

import pytest
from tests.support.agent_threads import put
from tests.support.backup_world import block, changed, fill, word
from tests.support.cli_world import run
from tests.support.files_in_clear import files_with

import chatledger
from chatledger import Ledger, NewMessage, admin, user
from chatledger.errors import HeldError, QuarantinedError
from chatledger.graph_state import StateStore
from chatledger.infra.admin.doctor.removing import DOCTOR
from chatledger.infra.ledger.threads import Threads
from chatledger.items import ItemStore

pytestmark = pytest.mark.guard


def damage(data: Path, *texts: str) -> None:
    """Damage the records with some texts, and lose the index."""
    with changed(block(data)) as raw:
        for text in texts:
            raw[raw.index(text.encode()) + 1] ^= 0x11
    shutil.rmtree(data / "index")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A chat with everything that a chat has, and others around it."""
    path = tmp_path / "data"
    with chatledger.open(path, durability="fast", compression="none") as ledger:
        fill(ledger, chats="xy", messages=2)
        ledger.create_chat("c", "ada", title="old", metadata={"n": 1})
        ledger.append("c", [user("one", id="m1")])
        ledger.append("c", [user("LOST-two", id="m2")])
        ledger.append("c", [user("three", id="m3"), user("four", id="m4")])
        ledger.create_branch("c", "LOST-branch", "m1")
        ledger.append("c", [user("on the branch", id="b1")], branch="LOST-branch")
        ledger.set_checkpoint("c", "first", "m1")
        ledger.set_checkpoint("c", "second", "m2")
        ledger.annotate("c", "m3", metadata={"rating": 5})
        ledger.add_messages("c", [NewMessage("user", "aside", id="a1", parent_id="m2")])
        ledger.update_chat("c", title="new", metadata={"n": 2})
        ledger.set_active_branch("c", "LOST-branch")
        fill(ledger, chats="z", messages=2)
        ledger.backup(tmp_path / "backup")
    return path


def ids(ledger: Ledger, branch: str) -> list[str]:
    return [message.id for message in ledger.get_messages("c", branch=branch)]


@pytest.mark.guard
def test_messages_pointers_and_profile(data: Path) -> None:
    """A lost message is stood for by one of its id, a lost branch is there again; all else says what it said, times too."""
    with chatledger.open(data) as ledger:
        before = {one: ledger.get_message(one) for one in ("m3", "m4", "b1", "a1")}
    damage(data, "LOST-two", "LOST-branch")
    done = admin.repair(data)

    (lost,) = done.lost
    assert (lost.chat_id, lost.versions, lost.is_content_kept) == ("c", ((3, 3), (5, 5)), False)
    (kept,) = done.kept_after
    assert (kept.chat_id, kept.versions, kept.unusable, kept.placeholders) == ("c", ((4, 4), (6, 12)), (), ("m2",))
    assert (done.cut, done.lost_count) == (("c",), 2)
    with chatledger.open(data) as ledger, pytest.raises(QuarantinedError):
        ledger.get_chat("c")
    admin.give_up(data, "c")
    with chatledger.open(data) as ledger:
        ledger.verify()
        chat = ledger.get_chat("c")
        assert chat is not None
        assert (chat.title, chat.metadata, chat.user_id) == ("new", {"n": 2}, "ada")
        assert ids(ledger, "main") == ["m1", "m2", "m3", "m4"]
        assert ids(ledger, "LOST-branch") == ["m1", "b1"]
        assert [branch.name for branch in ledger.list_branches("c") if branch.is_active] == ["LOST-branch"]
        placeholder = ledger.get_message("m2")
        assert placeholder is not None
        assert (placeholder.name, placeholder.type, placeholder.data["is_lost"]) == ("lost", "lost", True)
        assert "Lost versions of the chat: 3." in placeholder.text
        assert {one: ledger.get_message(one) for one in before} == before
        assert {one.name: one.message_id for one in ledger.list_checkpoints("c")} == {"first": "m1", "second": "m2"}
        anew = [event for event in ledger.history("c") if event.actor == DOCTOR]
        assert anew
        assert {event.event.correlation_id for event in anew} == {done.correlation_id}
        ledger.append("c", [user("goes on")])


def test_the_beginning_is_lost(data: Path) -> None:
    """Without the event that says whose chat it is, it belongs to no user of the application."""
    damage(data, "old")
    done = admin.repair(data)

    assert done.lost[0].versions == ((1, 1),)
    admin.give_up(data, "c")
    with chatledger.open(data) as ledger:
        ledger.verify()
        chat = ledger.get_chat("c")
        assert chat is not None
        assert (chat.user_id, chat.title) == ("chatledger:lost", "new")
        assert ledger.for_user("ada").get_chat("c") is None
        assert ids(ledger, "main") == ["m1", "m2", "m3", "m4"]


@pytest.mark.soak
@pytest.mark.parametrize("is_given_up", [False, True])
def test_a_backup_takes_the_place_of_placeholders(data: Path, tmp_path: Path, *, is_given_up: bool) -> None:
    """A later repair with a backup has the events themselves: nothing stays of what was written anew."""
    with chatledger.open(data) as ledger:
        before = [event.to_dict() for event in ledger.history("c")]
    damage(data, "LOST-two")
    admin.repair(data)
    if is_given_up:
        admin.give_up(data, "c")
    with chatledger.open(data) as ledger:
        ledger.append("x", [user("since then")])
    done = admin.repair(data, backup=tmp_path / "backup")

    assert (done.cut, done.lost, done.not_replaced, done.lost_count) == ((), (), (), 0)
    with chatledger.open(data) as ledger:
        ledger.verify()
        assert [event.to_dict() for event in ledger.history("c")] == before
        assert ids(ledger, "main") == ["m1", "m2", "m3", "m4"]
        assert ledger.get_messages("x")[-1].text == "since then"
    assert admin.diagnose(data).is_healthy


@pytest.mark.soak
def test_what_was_written_since_is_not_replaced(data: Path, tmp_path: Path) -> None:
    """When the chat went on with its placeholders, it stays as it is, and the repair says so."""
    damage(data, "LOST-two")
    admin.repair(data)
    admin.give_up(data, "c")
    with chatledger.open(data) as ledger:
        ledger.append("c", [user("goes on", id="later")], branch="main")
    done = admin.repair(data, backup=tmp_path / "backup")

    assert (done.not_replaced, done.lost, done.lost_count) == (("c",), (), 0)
    assert any("written to since: 'c'" in line for line in done.describe())
    with chatledger.open(data) as ledger:
        ledger.verify()
        assert ids(ledger, "main") == ["m1", "m2", "m3", "m4", "later"]


def test_another_repair_does_not_release_it(data: Path) -> None:
    """What was written anew does not count as what was lost: the chat stays in quarantine."""
    damage(data, "LOST-two")
    admin.repair(data)
    damage(data, word("y", 1))
    done = admin.repair(data)

    assert (done.cut, done.released) == (("y",), ())
    with chatledger.open(data) as ledger:
        for chat_id in "cy":
            with pytest.raises(QuarantinedError):
                ledger.get_messages(chat_id)


def test_the_index_wins_and_what_came_after_it_stays(data: Path, tmp_path: Path) -> None:
    """An index that is behind gives what it knows; what follows it is taken from the log."""
    shutil.copytree(data / "index", tmp_path / "index")
    with chatledger.open(data) as ledger:
        ledger.append("c", [user("after the index", id="m5")], branch="main")
    damage(data, "LOST-two")
    shutil.copytree(tmp_path / "index", data / "index")
    done = admin.repair(data)

    assert (done.recreated, done.cut) == (("c",), ())
    assert [one.is_content_kept for one in done.lost] == [True]
    with chatledger.open(data) as ledger:
        ledger.verify()
        assert [one.text for one in ledger.get_messages("c", branch="main")] == [
            "one",
            "LOST-two",
            "three",
            "four",
            "after the index",
        ]


def test_a_damaged_event_before_a_hole(data: Path) -> None:
    """A damaged record that can be read, and that no next event proves, is not kept as if it were right."""
    with changed(block(data)) as raw:
        for text, value in ((b"three", b"TT"), (b"LOST-branch", b"\xff" * 11)):
            at = raw.index(text)
            raw[at : at + len(value)] = value
    shutil.rmtree(data / "index")
    done = admin.repair(data)

    (lost,) = done.lost
    assert (lost.chat_id, lost.versions) == ("c", ((4, 5),))
    admin.give_up(data, "c")
    with chatledger.open(data) as ledger:
        ledger.verify()
        assert ledger.get_message("m4") is None
        assert "TTree" not in str([message.text for message in ledger.get_messages("c")])


def test_the_command_says_it_all(data: Path) -> None:
    """For people by lines, for programs as JSON."""
    damage(data, "LOST-two")
    result = run("--location", str(data), "doctor")
    assert (result.exit_code, "event 3 of chat 'c'" in result.stdout, "--repair" in result.stdout) == (1, True, True)
    result = run("--location", str(data), "doctor", "--repair", "--json")
    done = json.loads(result.stdout)
    assert (result.exit_code, done["lost_count"], done["cut"]) == (0, 1, ["c"])
    assert [(one["chat_id"], one["versions"], one["count"]) for one in done["lost"]] == [("c", [[3, 3]], 1)]
    assert done["kept_after"][0]["placeholders"] == ["m2"]
    damage(data, word("y", 1))
    result = run("--location", str(data), "doctor", "--repair")
    assert "version 3 of 'y'" in " ".join(result.stdout.split())


def test_a_damaged_checksum_is_no_damaged_event(data: Path) -> None:
    """Where only the checksum or the time of a record is damaged, the chain proves the event; at the end nothing does."""
    with chatledger.open(data) as ledger:
        before = [event.to_dict() for event in ledger.history("c")]
    with changed(block(data)) as raw:
        at = raw.rindex(b"chatledger.e.", 0, raw.index(b"LOST-two")) - 22
        raw[at + 12 : at + 16] = bytes(4)
    shutil.rmtree(data / "index")
    done = admin.repair(data)

    assert (done.cut, done.lost, done.lost_count) == ((), (), 0)
    with chatledger.open(data) as ledger:
        assert [event.to_dict() for event in ledger.history("c")] == before


@pytest.mark.guard
@pytest.mark.parametrize("has_index", [True, False])
def test_the_beginning_of_a_state_is_lost(tmp_path: Path, *, has_index: bool) -> None:
    """The index knows whose it is; without it nobody does."""
    data = tmp_path / "data"
    with chatledger.open(data, durability="fast", compression="none") as ledger:
        fill(ledger, chats="x", messages=2)
        StateStore(ledger).put("chat:ada:c", {"step": "LOST-one"})
        StateStore(ledger).put("chat:ada:c", {"step": "two", "more": 2})
        ItemStore(ledger.for_user("ada")).put(("notes",), "k", {"text": "LOST-item"})
        ItemStore(ledger.for_user("ada")).put(("notes",), "k", {"text": "second"})
        threads = Threads(ledger.for_user("ada"))
        put(threads, "t", "1", {"a": "LOST-thread"})
        put(threads, "t", "2", {"a": "last"}, parent_id="1")
        fill(ledger, chats="y", messages=2)
    with changed(block(data)) as raw:
        for text in ("LOST-one", "LOST-item", "LOST-thread"):
            raw[raw.index(text.encode()) + 1] ^= 0x11
    if not has_index:
        shutil.rmtree(data / "index")
    done = admin.repair(data)

    assert {kept.unusable for kept in done.kept_after} == ({()} if has_index else {(), ((2, 2),)})
    for stream in done.cut:
        admin.give_up(data, stream)
    with chatledger.open(data) as ledger:
        ledger.verify()
        state = StateStore(ledger).get("chat:ada:c")
        item = ItemStore(ledger.for_user("ada")).get(("notes",), "k")
        owners = [thread.owner for thread in ledger.list_threads().threads]
    assert (state and (state["step"], state["more"])) == (("two", 2) if has_index else None)
    assert (item and item.value) == ({"text": "second"} if has_index else None)
    assert owners == ["ada" if has_index else "chatledger:lost"]


def test_what_is_held_stays_held(data: Path) -> None:
    """The repair of a chat keeps its hold, which refuses as before, and breaks none."""
    with chatledger.open(data, durability="fast") as ledger:
        hold = ledger.hold("chat", "c", reason="case 12")
        ledger.append("c", [user("five", id="m5")], branch="main")
    damage(data, "LOST-two")
    admin.repair(data)
    admin.give_up(data, "c")
    with chatledger.open(data) as ledger:
        chat = ledger.get_chat("c")
        assert chat is not None
        assert chat.hold == hold
        assert ledger.verify().broken_holds == ()
        with pytest.raises(HeldError):
            ledger.delete_chat("c")
        with pytest.raises(HeldError):
            ledger.redact("m3")
        ledger.release("chat", "c")
        assert ledger.delete_chat("c")


def test_pseudonyms_stay(tmp_path: Path) -> None:
    """The repair of a chat keeps what a person is called since, and brings no name back."""
    path, name = tmp_path / "data", "ada.lovelace@example"
    with chatledger.open(path, durability="fast", compression="none") as ledger:
        ledger.create_chat("c", "bob", members={name: "writer"})
        ledger.append("c", [user("LOST-one", id="m1")])
        with ledger.context(actor=name):
            ledger.append("c", [NewMessage("user", "two", id="m2", sender_id=name)])
        ledger.erase_user(name, pseudonym="someone")
        ledger.append("c", [user("three", id="m3")])
    damage(path, "LOST-one")
    admin.repair(path)
    admin.give_up(path, "c")
    with chatledger.open(path) as ledger:
        assert [message.sender_id for message in ledger.get_messages("c")][1:] == ["someone", None]
        assert ledger.members("c") == []
        ledger.wait_erased()
        ledger.rebuild()
        assert [message.sender_id for message in ledger.get_messages("c")][1:] == ["someone", None]
        assert ledger.verify().redaction_pending == ()
    assert files_with(path, name.encode()) == []


def test_thinned_versions_stay_thinned(tmp_path: Path) -> None:
    """The repair of a state keeps the places of versions whose content a rule took, and what the newest one has."""
    path = tmp_path / "data"
    with chatledger.open(path, durability="fast", compression="none") as ledger:
        for text in ("kohlrabi0", "kohlrabi1", "LOST-two", "three"):
            StateStore(ledger).put("chat:ada:c", {"own": text, "shared": ["first", "second"]})
        ledger.set_retention("short", kind="state", keep_days=1, keep_last=2, erases="versions")
        assert ledger.sweep(now=2**42).versions == 2
        StateStore(ledger).put("chat:ada:c", {"own": "four", "shared": ["first", "second"]})
    with changed(block(path)) as raw:
        raw[raw.rindex(b"LOST-two") + 1] ^= 0x11
    done = admin.repair(path)
    for stream in done.cut:
        admin.give_up(path, stream)
    with chatledger.open(path) as ledger:
        for _ in range(2):
            state = StateStore(ledger).get("chat:ada:c")
            assert state is not None
            assert (state["own"], state["shared"]) == ("four", ["first", "second"])
            assert StateStore(ledger).get("chat:ada:c", 1) is None
            ledger.wait_erased()
            assert ledger.verify().redaction_pending == ()
            ledger.rebuild()
    assert files_with(path, b"kohlrabi") == []

"""Redactions, sweeps, holds and pseudonyms of a process that is killed, again and again: the next one finishes what was begun, and nothing else is lost."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.files_in_clear import files_with

import chatledger
from chatledger import NewMessage
from chatledger.errors import HeldError
from chatledger.graph_state import StateStore
from chatledger.items import ItemStore

REDACTING = """
import sys
import chatledger
ledger = chatledger.open(sys.argv[1], durability="fast")
for message_id in sys.argv[2:]:
    print("begins", message_id, flush=True)
    ledger.redact(message_id, keep="gone" if int(message_id) % 3 else None)
    print("acknowledged", message_id, flush=True)
"""
MESSAGES = 120
KILLS = pytest.mark.parametrize(
    "kills",
    [pytest.param(3, marks=pytest.mark.guard), pytest.param(60, marks=[pytest.mark.soak, pytest.mark.timeout(900)])],
)


def killed(after_s: float, script: str, *args: str) -> str:
    """Run a script that says when it has opened the ledger, kill it so long after that, and return what it said."""
    with subprocess.Popen([sys.executable, "-c", script, *args], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = child.stdout.readline()
        time.sleep(after_s)  # the moment of the kill is what is tried, and no condition says which one
        child.send_signal(signal.SIGKILL)
        return said + child.stdout.read()


def secret(number: int) -> str:
    return f"kohlrabi{number}z"


@pytest.mark.parametrize("kind", ["directory", "sqlite"])
@pytest.mark.parametrize("kills", [pytest.param(4, marks=pytest.mark.guard), pytest.param(60, marks=pytest.mark.soak)])
def test_killed_while_it_redacts(tmp_path: Path, kind: str, kills: int) -> None:
    """What was acknowledged is in no answer of the next process, and in no file once it has erased; what was not begun is as it was."""
    location = str(tmp_path / "ledger") if kind == "directory" else f"sqlite:///{tmp_path / 'log.db'}"
    drafts = [NewMessage("user", f"{secret(number)} of {number}", id=str(number)) for number in range(MESSAGES)]
    with chatledger.open(location, durability="fast") as ledger:
        ledger.create_chat("c", "ada")
        for start in range(0, MESSAGES, 5):
            ledger.append("c", drafts[start : start + 5])
    dice, begun, acknowledged = random.Random(7), set[str](), set[str]()
    for _ in range(kills):
        rest = [str(number) for number in range(MESSAGES) if str(number) not in acknowledged]
        said = killed(dice.uniform(0, 0.15), REDACTING, location, *rest[:20])
        words = [line.split() for line in said.splitlines() if len(line.split()) == 2]
        begun |= {message_id for word, message_id in words if word == "begins"}
        acknowledged |= {message_id for word, message_id in words if word == "acknowledged"}

    with chatledger.open(location, durability="fast") as ledger:
        shown = {message.id: message for message in ledger.get_messages("c")}
        gone = {message_id for message_id, message in shown.items() if message.redacted is not None}
        assert acknowledged <= gone <= begun
        assert {str(number) for number in range(MESSAGES)} == shown.keys()
        assert all(secret(int(i)) in message.text for i, message in shown.items() if i not in gone)
        ledger.wait_erased()
        assert () == ledger.verify().redaction_pending
        ledger.rebuild()
        assert shown == {message.id: message for message in ledger.get_messages("c")}
    assert acknowledged
    assert [] == [i for i in gone if files_with(tmp_path, secret(int(i)).encode())]


TITLING = """
import sys
import chatledger
ledger = chatledger.open(sys.argv[1], durability="fast")
for chat_id in sys.argv[2:]:
    print("begins", chat_id, flush=True)
    ledger.update_chat(chat_id, title="Card")
    for branch in ledger.list_branches(chat_id):
        if branch.name.startswith("branch"):
            ledger.rename_branch(chat_id, branch.name, "other")
    ledger.redact_words(chat_id, reason="asked for")
    print("acknowledged", chat_id, flush=True)
"""


@pytest.mark.parametrize("kind", ["directory", "sqlite"])
@KILLS
def test_killed_while_it_redacts_words(tmp_path: Path, kind: str, kills: int) -> None:
    """Titles, names of branches and reasons of holds: what was acknowledged is in no file, what was begun goes with the next call."""
    location = str(tmp_path / "ledger") if kind == "directory" else f"sqlite:///{tmp_path / 'log.db'}"
    words = {chat_id: f"kohlrabi{number}z" for number, chat_id in enumerate(f"c{number}" for number in range(60))}
    with chatledger.open(location, durability="fast") as ledger:
        for chat_id, word in words.items():
            ledger.create_chat(chat_id, "ada", title=f"title {word}", metadata={"note": word})
            ledger.update_chat(chat_id, metadata={"note": None})
            ledger.append(chat_id, [NewMessage("user", f"said in {chat_id}")])
            ledger.create_branch(chat_id, f"branch {word}", None)
            ledger.hold("chat", chat_id, reason=f"reason {word}")
            ledger.release("chat", chat_id)
    dice, begun, acknowledged = random.Random(19), set[str](), set[str]()
    for _ in range(kills):
        rest = [chat_id for chat_id in words if chat_id not in acknowledged]
        said = [line.split() for line in killed(dice.uniform(0, 0.15), TITLING, location, *rest[:10]).splitlines()]
        begun |= {line[1] for line in said if line[0] == "begins"}
        acknowledged |= {line[1] for line in said if line[0] == "acknowledged"}

    assert acknowledged
    with chatledger.open(location, durability="fast") as ledger:
        for chat_id in words.keys() - begun:
            chat = ledger.get_chat(chat_id)
            assert chat is not None
            assert chat.title == f"title {words[chat_id]}"
        ledger.wait_erased()
        assert [chat_id for chat_id in acknowledged if files_with(tmp_path, words[chat_id].encode())] == []
    subprocess.run([sys.executable, "-c", TITLING, location, *begun], check=True, stdout=subprocess.DEVNULL)
    with chatledger.open(location, durability="fast") as ledger:
        ledger.wait_erased()
        assert ledger.verify().redaction_pending == ()
        history = {chat_id: [event.to_dict() for event in ledger.history(chat_id)] for chat_id in begun}
        ledger.rebuild()
        assert history == {chat_id: [event.to_dict() for event in ledger.history(chat_id)] for chat_id in begun}
        assert [message.text for message in ledger.get_messages("c0")] == ["said in c0"]
    assert [chat_id for chat_id in begun if files_with(tmp_path, words[chat_id].encode())] == []


SWEEPING = """
import sys
import chatledger
ledger = chatledger.open(sys.argv[1], durability="fast")
print("begins", flush=True)
print("swept", ledger.sweep(now=int(sys.argv[2])).messages, flush=True)
"""
LATE = 2**42


@KILLS
def test_killed_while_it_sweeps_content(tmp_path: Path, kills: int) -> None:
    """What a rule keeps no longer is gone at the end, whatever sweep began it; what is held has its content."""
    dice, place, count = random.Random(11), tmp_path / "ledger", 0
    with chatledger.open(place, durability="fast") as ledger:
        ledger.set_retention("short", erases="content", keep_days=1)
        ledger.create_chat("held", "ada")
        ledger.append("held", [NewMessage("user", "asparagus")])
        ledger.hold("chat", "held")
        ledger.create_chat("c", "ada")
    for _ in range(kills):
        with chatledger.open(place, durability="fast") as ledger:
            for _ in range(10):
                ledger.append("c", [NewMessage("user", f"{secret(count)} of", id=str(count))])
                count += 1
        killed(dice.uniform(0, 0.1), SWEEPING, str(place), str(LATE))

    with chatledger.open(place, durability="fast") as ledger:
        ledger.sweep(now=LATE)
        ledger.wait_erased()
        messages = ledger.get_messages("c")
        assert len(messages) == count
        assert all(message.data is None and message.redacted is not None for message in messages)
        assert [message.text for message in ledger.get_messages("held")] == ["asparagus"]
        found = ledger.verify()
        assert (found.redaction_pending, found.broken_holds) == ((), ())
        ledger.rebuild()
        assert ledger.get_messages("c") == messages
    assert files_with(tmp_path, b"kohlrabi") == []


THINNING = """
import sys
import chatledger
ledger = chatledger.open(sys.argv[1], durability="fast")
print("begins", flush=True)
print("swept", ledger.sweep(now=int(sys.argv[2])).versions, flush=True)
"""


@pytest.mark.parametrize("kind", ["directory", "sqlite"])
@KILLS
def test_killed_while_it_thins_versions(tmp_path: Path, kind: str, kills: int) -> None:
    """No file has what earlier versions had, whatever sweep began it; the newest version, what it shares, and what is held read as before."""
    location = str(tmp_path / "ledger") if kind == "directory" else f"sqlite:///{tmp_path / 'log.db'}"
    dice, count, held = random.Random(23), 0, "chat:ada:held"
    filler = "".join(dice.choices("abcdefgh ", k=60_000))
    with chatledger.open(location, durability="fast") as ledger:
        ledger.set_retention("short", kind="state", erases="versions", keep_days=1)
        for number in range(2):
            StateStore(ledger).put(held, {"said": f"asparagus {number}"})
        ledger.hold("state", held)
    for _ in range(kills):
        with chatledger.open(location, durability="fast") as ledger:
            for _ in range(10):
                said = [f"stays {number}" for number in range(count)]
                StateStore(ledger).put("chat:ada:trip", {"said": said, "own": f"{secret(count)} of", "text": filler})
                filler = f"{filler[:20_000]}{secret(count)}of{filler[20_000 + len(secret(count)) + 2 :]}"
                count += 1
        killed(dice.uniform(0, 0.15), THINNING, location, str(LATE))

    with chatledger.open(location, durability="fast") as ledger:
        ledger.sweep(now=LATE)
        ledger.wait_erased()
        newest = StateStore(ledger).get("chat:ada:trip")
        assert newest is not None
        assert newest["said"] == [f"stays {number}" for number in range(count - 1)]
        assert newest["own"] == f"{secret(count - 1)} of"
        history = StateStore(ledger).history("chat:ada:trip", limit=count)
        assert [version.is_pruned for version in history] == [False] + [True] * (count - 1)
        for version in (1, 2):
            state = StateStore(ledger).get(held, version)
            assert state is not None
            assert state["said"] == f"asparagus {version - 1}"
        found = ledger.verify()
        assert (found.redaction_pending, found.overdue_count, found.broken_holds) == ((), 0, ())
        ledger.rebuild()
        assert newest == StateStore(ledger).get("chat:ada:trip")
    # Of the last two steps the newest version has the words.
    assert [number for number in range(count - 2) if files_with(tmp_path, f"{secret(number)}of".encode())] == []
    assert [number for number in range(count - 1) if files_with(tmp_path, f"{secret(number)} of".encode())] == []


HOLDING = """
import sys
import chatledger
ledger = chatledger.open(sys.argv[1], durability="fast")
print("begins", flush=True)
ledger.hold("user", "ada")
print("held", flush=True)
ledger.release("user", "ada")
print("released", flush=True)
"""


@KILLS
def test_killed_while_it_holds(tmp_path: Path, kills: int) -> None:
    """What was acknowledged is so for the next process; what was not is completed by its call, and broken is no hold."""
    dice, place, names = random.Random(13), tmp_path / "ledger", [f"c{number}" for number in range(30)]
    with chatledger.open(place, durability="fast") as ledger:
        for name in names:
            ledger.create_chat(name, "ada")
    for _ in range(kills):
        said = killed(dice.uniform(0, 0.15), HOLDING, str(place))
        with chatledger.open(place, durability="fast") as ledger:
            held = [chat.id for chat in ledger.list_chats() if chat.hold is not None]
            if "held" in said and "released" not in said and ledger.holds():
                with pytest.raises(HeldError):
                    ledger.delete_chat(names[0])
            elif "released" in said:
                assert (held, ledger.holds()) == ([], [])
            ledger.hold("user", "ada")
            assert {chat.hold for chat in ledger.list_chats()} == {*ledger.holds()}
            for name in dice.sample(names, 3):
                with pytest.raises(HeldError):
                    ledger.delete_chat(name)
            ledger.release("user", "ada")
            assert {chat.hold for chat in ledger.list_chats()} == {None}
    with chatledger.open(place, durability="fast") as ledger:
        assert ledger.verify().broken_holds == ()
        assert all(ledger.delete_chat(name) for name in names)


CALLING = """
import sys
import chatledger
ledger = chatledger.open(sys.argv[1], durability="fast")
print("begins", flush=True)
ledger.erase_user(sys.argv[2], pseudonym="someone")
"""
NAME = "ada.lovelace@example"


@KILLS
def test_killed_while_it_puts_a_pseudonym(tmp_path: Path, kills: int) -> None:
    """The next call goes on; at the end no file has the name, and each message has the pseudonym as its sender."""
    dice, place, count = random.Random(17), tmp_path / "ledger", 0
    with chatledger.open(place, durability="fast") as ledger:
        ledger.create_chat("team", "bob", members={"eve": "reader"})
    for _ in range(kills):
        with chatledger.open(place, durability="fast") as ledger, ledger.context(actor=NAME):
            ledger.set_member("team", NAME, "writer")
            for _ in range(5):
                ledger.append("team", [NewMessage("user", f"word {count}", id=str(count), sender_id=NAME)])
                ItemStore(ledger.for_user("bob")).put(("notes",), "word", {"number": count})
                count += 1
        killed(dice.uniform(0, 0.15), CALLING, str(place), NAME)

    with chatledger.open(place, durability="fast") as ledger:
        ledger.erase_user(NAME, pseudonym="someone")
        messages = ledger.get_messages("team")
        assert [(message.text, message.sender_id) for message in messages] == [
            (f"word {number}", "someone") for number in range(count)
        ]
        assert [member.user_id for member in ledger.members("team")] == ["eve"]
        assert ledger.verify().redaction_pending == ()
        history = [recorded.to_dict() for recorded in ledger.history("team")]
        assert NAME not in repr(history)
        of_items = [recorded.actor for recorded in ledger.history() if recorded.type == "version_put"]
        assert of_items == ["someone"] * count
        item = ItemStore(ledger.for_user("bob")).get(("notes",), "word")
        assert item is not None
        assert item.value == {"number": count - 1}
        ledger.rebuild()
        assert (ledger.get_messages("team"), [recorded.to_dict() for recorded in ledger.history("team")]) == (
            messages,
            history,
        )
    assert files_with(tmp_path, NAME.encode()) == []

"""`MessageHistory`: one conversation as frameworks store it, each call one commit."""

import inspect
import threading
from pathlib import Path
from typing import Any

import pytest

import chatledger
from chatledger import Annotation, AsyncLedger, AsyncMessageHistory, Ledger, Message, MessageHistory, assistant, user
from chatledger.errors import (
    AccessDeniedError,
    BranchNotFoundError,
    ConflictError,
    InvalidValueError,
    MessageNotFoundError,
    OwnerMismatchError,
)
from chatledger.history import Commit


@pytest.fixture
def history(ledger: Ledger) -> MessageHistory:
    history = MessageHistory(ledger, "trip", owner="ada")
    history.add([user(f"question {number}", id=f"m{number}") for number in range(1, 6)])
    return history


def ids(history: MessageHistory, **options: Any) -> list[str]:
    return [message.id for message in history.messages(**options)]


def commits(ledger: Ledger) -> int:
    return sum(not recorded.event.rest for recorded in ledger.history())


def test_adding_makes_the_chat_of_its_owner(ledger: Ledger, history: MessageHistory) -> None:
    chat = ledger.get_chat("trip")

    assert chat is not None
    assert chat.user_id == "ada"
    assert ids(history) == ["m1", "m2", "m3", "m4", "m5"] == [m.id for m in ledger.get_messages("trip")]
    assert ids(history, limit=2) == ["m4", "m5"]
    assert commits(ledger) == 1


def test_reading_what_is_not_there(ledger: Ledger, history: MessageHistory) -> None:
    """Nothing, also under what can be no id; a branch that the chat lacks is an error."""
    assert MessageHistory(ledger, "none").messages() == MessageHistory(ledger, "").messages() == []
    assert MessageHistory(ledger, "none").read(lambda read: read.branch) is None
    assert MessageHistory(ledger, "none").branches() == []
    with pytest.raises(BranchNotFoundError):
        MessageHistory(ledger, "trip", branch="none").messages()
    with pytest.raises(InvalidValueError):
        MessageHistory(ledger, "").add(user("Hello"))
    assert len(history.messages()) == 5


def test_each_call_is_one_commit(ledger: Ledger, history: MessageHistory) -> None:
    before = commits(ledger)
    history.add(
        user("last", id="m6"), annotation=Annotation(metadata={"status": "new"}), chat_metadata={"topic": "fado"}
    )
    popped = history.pop()
    removed = history.remove("m2")
    branch = history.replace("m3", [assistant("In Alfama.", id="m7"), user("Where?", id="m4")])
    cleared = history.clear()
    other = history.branch_off("m3", name="other")
    history.annotate(["m1"], hidden=True)

    assert commits(ledger) - before == 7
    assert popped is not None
    assert popped.id == "m6"
    assert removed is not None
    assert removed.text == "question 2"
    assert (branch, cleared, other) == ("main-v2", "main-v2-v2", "other")
    assert ids(history) == ["m3"]
    assert [message.text for message in MessageHistory(ledger, "trip", branch="main-v2").messages()] == [
        "question 3",
        "In Alfama.",
        "Where?",
    ]
    annotation = ledger.get_annotations("trip")["m6"]
    assert annotation.metadata == {"status": "new"}
    chat = ledger.get_chat("trip")
    assert chat is not None
    assert chat.metadata == {"topic": "fado"}
    assert {branch.name: turns for branch, turns in history.branches()} == {
        "main": 5,
        "main-v2": 4,
        "main-v2-v2": 0,
        "other": 3,
    }
    ledger.verify()


def test_what_changes_nothing_writes_nothing(ledger: Ledger, history: MessageHistory) -> None:
    before = ledger.position

    assert history.add(user("question 5", id="m5")) == []
    assert history.remove("none") is None
    history.annotate(["m1"], hidden=False)
    assert MessageHistory(ledger, "none").pop() is None
    assert MessageHistory(ledger, "none").clear() is None
    with pytest.raises(MessageNotFoundError):
        history.annotate(["none"], hidden=True)
    assert ledger.position == before


def test_replacing_only_what_was_read(ledger: Ledger, history: MessageHistory) -> None:
    """Not where others wrote since, or where another branch is the active one."""
    read = history.read(lambda read: read.branch)
    assert read is not None
    history.add(user("meanwhile"))

    assert history.replace("m1", [user("summary")], expected=read) is None
    read = history.read(lambda read: read.branch)
    ledger.create_branch("trip", "other", "m1", activate=True)
    assert history.replace("m1", [user("summary")], expected=read) is None
    bound = MessageHistory(ledger, "trip", branch="main")
    assert bound.replace("m1", [user("summary")], expected=read, activate=False) == "main-v2"


def test_an_earlier_moment_is_read_only(ledger: Ledger, history: MessageHistory) -> None:
    position = ledger.position
    history.clear()

    with ledger.as_of(position) as view:
        then = MessageHistory(view, "trip")
        assert ids(then, limit=1) == ["m5"]
        with pytest.raises(AccessDeniedError):
            then.add(user("too late"))
    assert ids(history) == []


def test_a_history_of_another_user(ledger: Ledger, history: MessageHistory) -> None:
    theirs = MessageHistory(ledger.for_user("bob"), "trip")

    assert theirs.messages() == []
    with pytest.raises(OwnerMismatchError):
        theirs.add(user("Mine!"))
    MessageHistory(ledger.for_user("bob"), "own").add(user("Mine!"))
    chat = ledger.get_chat("own")
    assert chat is not None
    assert chat.user_id == "bob"
    assert len(history.messages()) == 5


def test_a_decision_of_your_own(ledger: Ledger, history: MessageHistory) -> None:
    """It returns what it says; an error of it writes nothing; deleting the chat erases it."""

    def rename(commit: Commit) -> str:
        commit.describe(title="Fado")
        return commit.create_branch("m2", name="two")

    def refuse(commit: Commit) -> None:
        commit.append([])
        commit.describe(title="never")
        msg = "not today"
        raise ConflictError(msg)

    assert history.commit(rename) == "two"
    with pytest.raises(ConflictError):
        history.commit(refuse)
    chat = ledger.get_chat("trip")
    assert chat is not None
    assert chat.title == "Fado"
    history.commit(lambda commit: commit.delete_chat())
    assert ledger.get_chat("trip") is None
    assert "question" not in repr([recorded.to_dict() for recorded in ledger.history()])


def test_a_call_that_was_carried_out_elsewhere_meanwhile_says_nothing(tmp_path: Path) -> None:
    """What it decided was not written: the same command of another process was faster."""
    place = f"sqlite:///{tmp_path / 'log.db'}"
    with chatledger.open(place, index=tmp_path / "1") as ledger, chatledger.open(place, index=tmp_path / "2") as other:
        history, repeated = MessageHistory(ledger, "trip"), MessageHistory(other, "trip")
        history.add([user("question 1", id="m1"), user("question 2", id="m2")])
        popped: list[Message | None] = []

        def overtaken(commit: Commit) -> Message | None:
            if not popped:
                popped.append(repeated.pop())
            return commit.pop(lambda _message: ())

        with ledger.context(command_id="pop 1"):
            answer = history.commit(overtaken)

        assert ["m2"] == [message.id for message in popped if message is not None]
        assert answer is None
        assert ["m1"] == ids(history)


def test_a_call_that_is_repeated_under_its_command_id(ledger: Ledger, history: MessageHistory) -> None:
    for _ in range(2):
        with ledger.context(command_id="pop 1"):
            history.pop()

    assert ids(history) == ["m1", "m2", "m3", "m4"]


def test_callers_at_the_same_time_pop_different_messages(ledger: Ledger) -> None:
    history = MessageHistory(ledger, "busy")
    history.add([user(str(number), id=f"b{number}") for number in range(24)])
    popped: list[str] = []

    def pop() -> None:
        for _ in range(6):
            message = MessageHistory(ledger, "busy").pop()
            assert message is not None
            popped.append(message.id)

    threads = [threading.Thread(target=pop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(popped) == sorted(f"b{number}" for number in range(24))
    assert history.messages() == []


async def tell(ledger: AsyncLedger) -> list[str]:
    history = AsyncMessageHistory(ledger, "trip")
    await history.add([user("Where?", id="m1"), user("When?", id="m2")])
    popped = await history.pop()
    assert popped is not None
    chat_id = await history.commit(lambda commit: commit.state.chat_id)
    return [popped.id, str(chat_id), *(message.id for message in await history.messages())]


@pytest.mark.anyio
async def test_awaiting(async_ledger: AsyncLedger) -> None:
    """Every method of the one is one of the other, with the same arguments."""
    assert await tell(async_ledger.for_user("ada")) == ["m2", "trip", "m1"]
    chat = await async_ledger.get_chat("trip")
    assert chat is not None
    assert chat.user_id == "ada"
    public = [name for name in vars(MessageHistory) if not name.startswith("_")]
    assert public
    for name in public:
        ours, theirs = getattr(MessageHistory, name), getattr(AsyncMessageHistory, name)
        assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters), name


def test_what_becomes_several_events_is_returned(ledger: Ledger) -> None:
    """More messages than one event has room for, in a chat that is there."""
    history = MessageHistory(ledger, "long")
    history.add([user("Fado?")])
    added = history.add([user("x" * 200_000) for _ in range(12)])

    assert len(added) == 12
    assert len(ledger.get_messages("long")) == 13

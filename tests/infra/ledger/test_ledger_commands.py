"""Actors, correlation, and commands that happen once."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.store_world import anything, together
from tests.support.ledger_world import check_chat, length, text

import chatledger
from chatledger import Branch, ConfigurationError, InvalidValueError, Ledger, NewMessage
from chatledger.domain.chat.interchange import ImportedBranch, ImportedChat, ImportedMessage
from chatledger.errors import ChatExistsError, PayloadTooLargeError


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A ledger with a chat `c` of two messages, a branch and a checkpoint."""
    with chatledger.open(tmp_path / "data", durability="fast") as ledger:
        ledger.create_chat("c", "u", title="t")
        ledger.append("c", [text("a", id="a"), text("b", id="b")])
        ledger.create_branch("c", "side", "a")
        ledger.set_checkpoint("c", "mark", "a")
        yield ledger
        check_chat(ledger, "c")


COMMANDS: dict[str, Callable[[Ledger], Any]] = {
    "update_chat": lambda ledger: ledger.update_chat("c", title="new").title,
    "append": lambda ledger: ledger.append("c", [text("x", id="x"), text("y", id="y")]),
    "append with new ids": lambda ledger: ledger.append("c", [text("x"), text("y")]),
    "append large": lambda ledger: ledger.append("c", [text("x" * 600_000), text("y" * 600_000)]),
    "add_messages": lambda ledger: ledger.add_messages("c", [text("x", id="x", parent_id="a")]),
    "create_branch": lambda ledger: ledger.create_branch("c", "b", "b", activate=True),
    "fork": lambda ledger: ledger.fork("c", "a"),
    "set_active_branch": lambda ledger: ledger.set_active_branch("c", "side").name,
    "move_head": lambda ledger: ledger.move_head("c", "main", "a", expected="b"),
    "set_checkpoint": lambda ledger: ledger.set_checkpoint("c", "mark", "b"),
    "delete_checkpoint": lambda ledger: ledger.delete_checkpoint("c", "mark"),
    "delete_chat": lambda ledger: ledger.delete_chat("c"),
}


@pytest.mark.matrix
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_a_repeated_command_has_its_first_answer(ledger: Ledger, name: str, late: bool) -> None:  # noqa: FBT001 - a parameter
    """Repeated under its id, a command writes nothing and answers as it did, however much happened since (PS-22)."""
    command = COMMANDS[name]
    with ledger.context(command_id="command 1"):
        first = command(ledger)
    if late and name != "delete_chat":
        ledger.append("c", [text("later")], branch="side")
        ledger.set_active_branch("c", "main")
        ledger.move_head("c", "main", None, expected=chatledger.ANY)
        ledger.set_checkpoint("c", "mark", "a")
    events = length(ledger, "c")
    with ledger.context(command_id="command 1"):
        again = command(ledger)

    assert again == first
    assert length(ledger, "c") == events


BRANCH_COMMANDS: dict[str, Callable[[Ledger], Branch]] = {
    "set_active_branch": lambda ledger: ledger.set_active_branch("c", "side"),
    "rename_branch": lambda ledger: ledger.rename_branch("c", "side", "other"),
    "show": lambda ledger: ledger.show("z"),
    "fork": lambda ledger: ledger.fork("c", "a"),
}


@pytest.mark.parametrize("is_limited", [False, True])
@pytest.mark.parametrize("name", BRANCH_COMMANDS)
def test_a_repeated_command_on_a_branch_that_is_gone(ledger: Ledger, name: str, *, is_limited: bool) -> None:
    """It answers as it did the first time, also once the branch has another name, or was deleted; and writes nothing."""
    acting = ledger.for_user("u") if is_limited else ledger
    ledger.append("c", [text("z", id="z")], branch="side")
    with acting.context(command_id="command 1"):
        first = BRANCH_COMMANDS[name](acting)
    ledger.set_active_branch("c", "main")
    ledger.rename_branch("c", first.name, "renamed")
    with acting.context(command_id="command 1"):
        renamed = BRANCH_COMMANDS[name](acting)
    ledger.delete_branch("c", "renamed")
    position = ledger.last_position()
    with acting.context(command_id="command 1"):
        again = BRANCH_COMMANDS[name](acting)

    assert renamed.id == first.id
    assert again == first
    assert ledger.last_position() == position


def test_create_chat_is_a_command(ledger: Ledger) -> None:
    """Creating a chat twice under one id creates it once; without the id the second one is refused."""
    with ledger.context(command_id="creation"):
        first = ledger.create_chat("new", "u", title="t")
    ledger.append("new", [text("x")])
    with ledger.context(command_id="creation"):
        assert ledger.create_chat("new", "u", title="t") == first
    with ledger.context(command_id="another"), pytest.raises(ChatExistsError):
        ledger.create_chat("new", "u", title="t")
    assert length(ledger, "new") == 2


def test_a_command_that_is_sent_by_many_at_once(ledger: Ledger) -> None:
    """Of several threads with the same command one carries it out, and all have its answer."""

    def send(_: int) -> str:
        with ledger.context(command_id="once"):
            return ledger.fork("c", "a").id

    assert len(set(together(8, send))) == 1
    assert length(ledger, "c") == 5


def test_a_command_id_serves_one_command(ledger: Ledger) -> None:
    """Under the id of another command nothing is silently left out: the call is refused."""
    with ledger.context(command_id="one"):
        ledger.append("c", [text("x", id="x")])
        with pytest.raises(InvalidValueError, match="'one'"):
            ledger.fork("c", "a")
        with pytest.raises(InvalidValueError, match="'one'"):
            ledger.delete_checkpoint("c", "mark")
    assert length(ledger, "c") == 5


def test_a_command_id_serves_one_append(ledger: Ledger) -> None:
    """A second append under the same id is taken for the first one, and says so: its answer is what is stored."""
    with ledger.context(command_id="one"):
        first = ledger.append("c", [text("x", id="x")])
        assert ledger.append("c", [text("y", id="y")]) == first
    assert ledger.get_message("y") is None
    assert length(ledger, "c") == 5


def test_command_ids_are_of_one_chat(ledger: Ledger) -> None:
    ledger.upsert_chat("other", "u")
    with ledger.context(command_id="shared"):
        ledger.append("c", [text("x")])
        ledger.append("other", [text("x")])
    assert length(ledger, "c") == 5
    assert length(ledger, "other") == 2


def test_commands_survive_a_rebuild(ledger: Ledger) -> None:
    """An index built anew knows the commands, too."""
    with ledger.context(command_id="before"):
        first = ledger.fork("c", "a")
    ledger.rebuild()
    with ledger.context(command_id="before"):
        assert ledger.fork("c", "a") == first
    assert length(ledger, "c") == 5


@pytest.mark.timeout(60)
def test_a_large_import_is_a_command(ledger: Ledger) -> None:
    """An import that takes several commits ends, complete, under a command id too, and repeating it adds nothing."""
    chat = ImportedChat(
        id="imported",
        user_id="u",
        title=None,
        metadata=None,
        messages=(ImportedMessage(id="im", parent_id=None, name="user", type="message", data="x", created_at=1),),
        branches=(
            ImportedBranch(id=None, name="main", head_message_id="im", created_at=None, is_active=True),
            *(
                ImportedBranch(id=None, name=f"b{number}", head_message_id="im", created_at=None, is_active=False)
                for number in range(1200)
            ),
        ),
        checkpoints=(),
        created_at=None,
        updated_at=None,
    )
    for _ in range(2):
        with ledger.context(command_id="import"):
            ledger.import_chat(chat)
        assert len(ledger.list_branches("imported")) == 1201
    assert length(ledger, "imported") == 1202


def test_what_is_said_of_an_operation_is_recorded(ledger: Ledger) -> None:
    """Actor, correlation, cause and command are in the history; the inner context adds to the outer one."""
    with ledger.context(actor="ada", correlation_id="request"):
        with ledger.context(actor="bot", causation_id="cause", command_id="command"):
            ledger.append("c", [text("x" * 600_000), text("y" * 600_000)])
        ledger.append("c", [text("z")])
    ledger.append("c", [text("nobody")])
    *_, first, second, third, fourth = (event.to_dict() for event in ledger.history("c"))
    said = [
        [event[name] for name in ("actor", "correlation_id", "causation_id", "command_id")]
        for event in (first, second, third, fourth)
    ]

    assert said == [
        ["bot", "request", "cause", "command"],
        ["bot", "request", "cause", "command"],
        ["ada", "request", None, None],
        [None, None, None, None],
    ]


def test_the_size_of_events_is_a_setting() -> None:
    """What is too large for one ledger fits into the events of another (PS-25); nonsense is refused."""
    large = NewMessage("user", "x" * 100_000)
    with chatledger.open("memory:", max_event_bytes=64 * 1024) as ledger:
        ledger.create_chat("c", "u")
        with pytest.raises(PayloadTooLargeError):
            ledger.append("c", [large])
        ledger.append("c", [NewMessage("user", "x" * 30_000) for _ in range(5)])

        assert len(list(ledger.history("c"))) > 2
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "u")
        assert len(ledger.append("c", [large])) == 1
    with pytest.raises(ConfigurationError, match="max_event_bytes"):
        chatledger.open("memory:", max_event_bytes=0)


def test_times_of_a_chat_never_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the clock is set back, the events of a chat carry the time of the one before."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "u")
        (message,) = ledger.append("c", [text("a")])
        ledger.fork("c", message.id)
        latest = list(ledger.history("c"))[-1].occurred_at
        with monkeypatch.context() as clock:
            clock.setattr("time.time_ns", lambda: 1_000_000_000)
            ledger.set_checkpoint("c", "mark", message.id)
            ledger.append("c", [text("b")])
        times = [recorded.occurred_at for recorded in ledger.history("c")]

        assert times == sorted(times)
        assert times[-1] == latest


MISUSES: list[Callable[[Any], object]] = [
    lambda ledger: ledger.append("c", 5),
    lambda ledger: ledger.append("c", None),
    lambda ledger: ledger.append("c", [b"text"]),
    lambda ledger: ledger.append("c", [chatledger.user(anything(5))]),
    lambda ledger: ledger.list_chats(after=5),
    lambda ledger: ledger.feed(0, topics="message_appended"),
    lambda ledger: ledger.update_chat("c", updater=5),
    lambda ledger: ledger.update_chat("c", updater=anything(str)),
    lambda ledger: ledger.feed(0, topics=5),
    lambda ledger: ledger.append("c", [chatledger.user("x")], on_existing=[]),
    lambda ledger: ledger.move_head("c", "main", None, expected=None, on_conflict=[]),
    lambda ledger: ledger.import_chat("c"),
    lambda ledger: ledger.import_value("c"),
    lambda ledger: ledger.create_branch("c", "b", None, activate=1),
    lambda ledger: ledger.list_chats(order={}),
    lambda ledger: ledger.record_run("c", "r", thread_id="t", assistant_id="a", references=5),
    lambda ledger: ledger.record_run("c", "r", thread_id="t", assistant_id="a", status=[]),
    lambda ledger: ledger.repeat_run("c", "g", "r", status=[]),
    lambda ledger: chatledger.open(anything(5)),
    lambda ledger: chatledger.open("memory:", index=anything(5)),
]


@pytest.mark.parametrize("misuse", MISUSES)
def test_wrong_types_are_told(misuse: Callable[[Any], object]) -> None:
    """Arguments of a wrong type get an error of ours that says what was expected, and change nothing."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "u")
        with pytest.raises((InvalidValueError, ConfigurationError), match=r"must|expected|is a function|returns"):
            misuse(ledger)

        assert ledger.position == 1

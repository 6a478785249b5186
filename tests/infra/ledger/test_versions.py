"""Versions of messages, pages with them, and branches renamed, deleted and shown, on a real ledger."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from tests.support.ledger_world import check_chat, check_pages, check_versions, ids, length, text
from tests.support.operation_counting import counting
from tests.support.stories import Story, commands

import chatledger
from chatledger import ContextEngine, Ledger, LedgerView, NewMessage, Versions, assistant, user
from chatledger.domain.chat.events import (
    BranchActivated,
    BranchCreated,
    BranchDeleted,
    BranchRenamed,
    ChatCreated,
    HeadMoved,
    MemberRemoved,
    MemberSet,
    MessagesAppended,
)
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.values import Branch
from chatledger.errors import (
    BranchExistsError,
    BranchNotFoundError,
    ChatNotFoundError,
    InvalidValueError,
    LastBranchError,
    MessageNotFoundError,
)


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """The chat `trip` of Ada: two questions with answers, the second answered three times, each on a branch of its own."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [text(one, id=one) for one in ("q1", "a1", "q2", "a2")])
        for answer in ("a3", "a4"):
            ledger.fork("trip", "q2", base="main")
            ledger.append("trip", [text(answer, id=answer), text(f"next {answer}", id=f"next {answer}")])
        yield ledger


def names(branches: list[Branch]) -> list[str]:
    return [branch.name for branch in branches]


def test_versions_and_their_branches(ledger: Ledger) -> None:
    """Siblings in the order of their creation; shown is the active branch's, else that of the branch seen last."""
    assert ledger.versions("a2") == ledger.versions("a4") == Versions(ids=["a2", "a3", "a4"], index=2)
    assert ledger.versions("a2").shown == "a4"
    assert names(ledger.branches_of("q2")) == ["main-v3", "main-v2", "main"]
    ledger.append("trip", [text("aside", id="aside")], branch="main")
    assert names(ledger.branches_of("q2")) == ["main-v3", "main-v2", "main"]

    ledger.set_active_branch("trip", "main")
    ledger.create_branch("trip", "elsewhere", None, activate=True)
    assert ledger.versions("a4") == Versions(ids=["a2", "a3", "a4"], index=0)
    assert names(ledger.branches_of("q2")) == ["main", "main-v3", "main-v2"]


def test_show_switches_or_makes_a_branch(ledger: Ledger) -> None:
    """Also to a message that lost its branch; showing what is shown writes nothing."""
    assert ledger.show("a3").name == "main-v2"
    assert ledger.versions("a4").shown == "a3"
    before = length(ledger, "trip")
    assert ledger.show("q1").name == "main-v2"
    assert length(ledger, "trip") == before

    ledger.delete_branch("trip", "main-v3")
    assert ledger.versions("a4").ids == ["a2", "a3", "a4"]
    assert ledger.branches_of("a4") == []
    shown = ledger.show("a4")
    assert (shown.is_active, shown.head_message_id, shown.name) == (True, "next a4", "main-v2-v2")
    check_chat(ledger, "trip")


def test_unknown_messages(ledger: Ledger) -> None:
    """Reads answer nothing, what would change something raises."""
    assert ledger.versions("none") == Versions(ids=[], index=None)
    assert ledger.branches_of("none") == []
    with pytest.raises(MessageNotFoundError):
        ledger.show("none")


def test_a_message_on_no_branch_is_not_shown(ledger: Ledger) -> None:
    ledger.add_messages("trip", [text("lone", id="lone")])
    ledger.move_head("trip", "main", None, expected="a2")
    for name in ("main-v2", "main-v3"):
        ledger.move_head("trip", name, None, expected=chatledger.ANY)

    assert ledger.versions("lone") == Versions(ids=["q1", "lone"], index=None)
    assert ledger.versions("lone").shown is None


def test_pages(ledger: Ledger) -> None:
    """Pages of a branch go back to its root, each message with its versions."""
    page = ledger.get_page("trip", limit=2)
    assert [(entry.message.id, entry.versions.index) for entry in page.entries] == [("a4", 2), ("next a4", 0)]
    assert (page.branch, page.before) == ("main-v3", "a4")
    page = ledger.get_page("trip", branch=page.branch, limit=3, before=page.before)
    assert ids([entry.message for entry in page.entries]) == ["q1", "a1", "q2"]
    assert page.before is None
    assert ledger.get_page("trip", before="q1").entries == []
    [entry] = ledger.get_page("trip", branch="main", limit=1).entries
    assert entry.versions == Versions(ids=["a2", "a3", "a4"], index=0)
    ledger.create_branch("trip", "empty", None)
    empty = ledger.get_page("trip", branch="empty")
    assert (empty.entries, empty.first, empty.count) == ([], 0, 0)


def test_pages_by_depth(ledger: Ledger) -> None:
    """Any part of a path, to a branch or to a message, with its place in the whole."""
    chain = ids(ledger.get_messages("trip", branch="main-v3"))
    for first in range(len(chain) + 2):
        page = ledger.get_page("trip", along="main-v3", first=first, limit=2)
        assert ids([entry.message for entry in page.entries]) == chain[first : first + 2]
        assert (page.first, page.count, page.branch) == (min(first, len(chain)), len(chain), "main-v3")
        assert page.before == (chain[first] if 0 < first < len(chain) else None)
    to_message = ledger.get_page("trip", along="a1", first=0)
    assert (ids([entry.message for entry in to_message.entries]), to_message.branch) == (["q1", "a1"], None)
    assert ledger.get_page("trip", limit=2).first == len(chain) - 2


def test_wrong_pages(ledger: Ledger) -> None:
    with pytest.raises(ChatNotFoundError):
        ledger.get_page("none")
    with pytest.raises(BranchNotFoundError):
        ledger.get_page("trip", branch="none")
    with pytest.raises(BranchNotFoundError):
        ledger.get_page("trip", along="none")
    with pytest.raises(MessageNotFoundError):
        ledger.get_page("trip", before="none")
    wrongs: list[dict[str, Any]] = [{"before": "a2"}, {"limit": 0}, {"limit": -1}, {"limit": None}, {"first": -1}]
    wrongs += [{"branch": "main", "along": "main"}, {"before": "a4", "first": 0}]
    for wrong in wrongs:
        with pytest.raises(InvalidValueError):
            ledger.get_page("trip", **wrong)


def test_pages_on_the_wire(ledger: Ledger) -> None:
    """A page is one JSON object for a browser."""
    told = ledger.get_page("trip", limit=2).to_dict()
    assert told["entries"][0]["message"]["text"] == "a4"
    assert told["entries"][0]["versions"] == {"ids": ["a2", "a3", "a4"], "index": 2, "shown": "a4"}


def test_rename_and_delete(ledger: Ledger) -> None:
    """Both under a command id do what they did once; the counts of the chat follow."""
    for _ in range(2):
        with ledger.context(command_id="rename"):
            assert ledger.rename_branch("trip", "main-v3", "riga").is_active
        with ledger.context(command_id="delete"):
            assert ledger.delete_branch("trip", "main")
    assert names(ledger.list_branches("trip")) == ["main-v2", "riga"]
    assert not ledger.delete_branch("trip", "main")
    assert not ledger.delete_branch("none", "main")
    chat = ledger.get_chat("trip")
    assert chat is not None
    assert chat.branch_count == 2
    with pytest.raises(BranchExistsError):
        ledger.rename_branch("trip", "main-v2", "riga")

    assert ledger.delete_branch("trip", "riga")
    active = ledger.get_active_branch("trip")
    assert active is not None
    assert active.name == "main-v2"
    with pytest.raises(LastBranchError):
        ledger.delete_branch("trip", "main-v2")
    assert len(ledger.graph("trip").nodes) == 8
    check_chat(ledger, "trip")
    ledger.verify()


def test_an_engine_whose_branch_went(ledger: Ledger) -> None:
    """It says so, and `refresh` goes to the active branch."""
    engine = ContextEngine(ledger, "trip", "ada")
    engine.refresh()
    ledger.delete_branch("trip", "main-v3")
    engine.set(user("on?"), assistant("no"))
    with pytest.raises(BranchNotFoundError):
        engine.save()
    assert engine.refresh().name == "main-v2"
    assert engine.save().branch == "main-v2"


def test_many_regenerations_have_short_names() -> None:
    """Each of the one before; no name is looked for more than once."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [text("q", id="q")])
        made = [ledger.fork("trip", "q").name for _ in range(300)]
    assert len(set(made)) == 300
    assert max(map(len, made)) <= len("main-v300-v2")


def test_a_page_costs_the_same_with_many_branches() -> None:
    """What is asked of LMDB grows with the page and its versions, not with the branches."""
    costs: list[int] = []
    with chatledger.open("memory:") as ledger:
        for chat, count in (("few", 5), ("many", 300)):
            ledger.create_chat(chat, "ada")
            ledger.append(chat, [text(str(number), id=f"{chat} {number}") for number in range(200)])
            for number in range(count):
                ledger.create_branch(chat, f"branch {number}", f"{chat} {number % 100}")
                ledger.append(chat, [text("aside")], branch=f"branch {number}")
            with counting() as counts:
                ledger.get_page(chat, limit=50)
            costs.append(counts.total())
    assert costs[0] == costs[1] <= 40


def test_for_user(ledger: Ledger) -> None:
    """Of others' messages nothing is seen or shown."""
    mallory, ada = ledger.for_user("mallory"), ledger.for_user("ada")
    assert ada.versions("a2") == ledger.versions("a2")
    assert ada.show("a2").name == "main"
    assert mallory.versions("a2").ids == []
    assert mallory.branches_of("a2") == []
    assert not mallory.delete_branch("trip", "main")
    for call in (
        lambda: mallory.show("a2"),
        lambda: mallory.get_page("trip"),
        lambda: mallory.rename_branch("trip", "main", "mine"),
    ):
        with pytest.raises((ChatNotFoundError, MessageNotFoundError)):
            call()
    assert ada.rename_branch("trip", "main", "mine").is_active
    assert ada.delete_branch("trip", "mine")


def test_an_export_without_main_is_imported_without(ledger: Ledger) -> None:
    """A renamed `main` does not come back, and importing again does nothing."""
    ledger.rename_branch("trip", "main", "Riga")
    exported = ledger.export_chat("trip")
    with chatledger.open("memory:") as other:
        result = other.import_chat(exported)
        assert (result.is_new, result.branches_added) == (True, 3)
        numbers = {branch.name: branch.number for branch in other.list_branches("trip")}
        assert sorted(numbers.values()) == [1, 2, 3]  # 0 was that of `main`
        assert other.list_branches("trip") == [
            msgspec.structs.replace(branch, number=numbers[branch.name]) for branch in ledger.list_branches("trip")
        ]
        position = other.position
        other.import_chat(exported)
        assert other.position == position
        check_chat(other, "trip")
        other.verify()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=commands)
def test_every_moment_agrees_with_a_plain_walk(script: list[tuple[str, int, int, int]]) -> None:
    """At each event, as of then, versions, branches and pages are what a walk over the messages of then finds."""
    story = Story()
    for command in script:
        if command[0] not in {"delete", "update", "checkpoint", "drop"}:
            story.obey(command)
    with chatledger.open("memory:") as ledger:
        copy(story, ledger)
        events = list(ledger.history("chat-1"))
        for count in range(1, len(events) + 1, 4):
            with ledger.as_of(events[count - 1].position) as view:
                agree(view, ReplayedChat("chat-1", events[:count]))
        if events:
            check_chat(ledger, "chat-1")


def copy(story: Story, ledger: Ledger) -> None:
    """Write the events of a story to a ledger, by the calls that make them."""
    names = {0: "main"}
    for recorded in story.events:
        match recorded.body:
            case ChatCreated():
                ledger.create_chat("chat-1", "ada")
            case MessagesAppended(messages=messages, branch=branch, to_head=to_head):
                drafts = [NewMessage(one.name, one.data, id=one.id, parent_id=one.parent_id) for one in messages]
                ledger.add_messages("chat-1", drafts)
                if branch is not None:
                    ledger.move_head("chat-1", names[branch], to_head, expected=chatledger.ANY)
            case BranchCreated(number=number, name=str(name), head_message_id=head, is_active=is_active):
                names[number] = name
                ledger.create_branch("chat-1", name, head, activate=is_active)
            case BranchActivated(name=str(name)):
                ledger.set_active_branch("chat-1", name)
            case BranchRenamed(number=number, name=str(name), new_name=str(new_name)):
                names[number] = new_name
                ledger.rename_branch("chat-1", name, new_name)
            case BranchDeleted(name=str(name)):
                ledger.delete_branch("chat-1", name)
            case HeadMoved(branch=str(branch), to_head=to_head):
                ledger.move_head("chat-1", branch, to_head, expected=chatledger.ANY)
            case MemberSet(user_id=str(user_id), role=role):
                ledger.set_member("chat-1", user_id, role)
            case MemberRemoved(user_id=str(user_id)):
                ledger.remove_member("chat-1", user_id)
            case other:
                raise AssertionError(other)


def agree(reader: LedgerView, replayed: ReplayedChat) -> None:
    for message in replayed.messages:
        check_versions(reader, replayed, message)
    check_pages(reader, replayed)

"""Import and export of whole conversations, on a real ledger."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

import chatledger
from chatledger import ANY, Annotation, Ledger, NewMessage
from chatledger.domain.errors import ChainIntegrityError, InvalidValueError
from chatledger.importers import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportResult,
    read_chats,
    write_chats,
)
from chatledger.projections.chat.chains import Chains
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.lmdb.tables import Tables


def _message(message_id: str, parent_id: str | None, text: str = "") -> ImportedMessage:
    return ImportedMessage(
        id=message_id, parent_id=parent_id, name="user", data=text or message_id, created_at=5, form=None
    )


def _chat(
    messages: tuple[ImportedMessage, ...], *branches: ImportedBranch, checkpoints: tuple[ImportedCheckpoint, ...] = ()
) -> ImportedChat:
    return ImportedChat(
        id="trip",
        user_id="ada",
        title="Riga",
        metadata={"from": "elsewhere"},
        messages=messages,
        branches=branches,
        checkpoints=checkpoints,
        created_at=3,
    )


TRIP = _chat(
    (_message("a", None), _message("b", "a"), _message("c", "a"), _message("r", None)),
    ImportedBranch(name="main", head_message_id="b", created_at=3),
    ImportedBranch(name="other", head_message_id="c", created_at=7, is_active=True, id="branch-7"),
    ImportedBranch(name="empty", head_message_id=None, created_at=8),
    checkpoints=(ImportedCheckpoint(name="start", message_id="a", created_at=9, id="checkpoint-9"),),
)


def _same(chat: ImportedChat) -> dict[str, Any]:
    """A chat as a round trip keeps it: all but the time of the last change, and ids that were made on the way in."""
    form: dict[str, Any] = msgspec.to_builtins(chat)
    form["updated_at"] = None
    for pointer in (*form["branches"], *form["checkpoints"]):
        pointer["id"] = None
    return form


def test_export_gives_what_was_imported(ledger: Ledger) -> None:
    """Messages, branches, checkpoints, times and the active branch survive the way in and out; a reader sees all or nothing."""
    result = ledger.import_chat(TRIP)
    exported = ledger.export_chat("trip")
    rests = [recorded.event.rest for recorded in ledger.history("trip")]

    assert (True, 4, 3, 1) == (result.is_new, result.messages_added, result.branches_added, result.checkpoints_set)
    assert _same(TRIP) == _same(exported)
    assert ["branch-7"] == [branch.id for branch in exported.branches if branch.name == "other"]
    assert list(range(len(rests) - 1, -1, -1)) == rests


def test_import_leaves_what_went_elsewhere(ledger: Ledger) -> None:
    """A branch that was moved or continued here, and the active branch, stay as they are."""
    ledger.import_chat(TRIP)
    ledger.append("trip", [NewMessage("user", "mine", id="mine")], branch="main")
    ledger.move_head("trip", "other", "r", expected=ANY)
    ledger.set_active_branch("trip", "main")
    result = ledger.import_chat(TRIP)

    assert 0 == result.heads_moved
    heads = {branch.name: branch.head_message_id for branch in ledger.list_branches("trip")}
    assert {"main": "mine", "other": "r", "empty": None} == heads
    assert ["main"] == [branch.name for branch in ledger.list_branches("trip") if branch.is_active]


def test_import_under_another_id(ledger: Ledger) -> None:
    """A copy stands beside its original: the same tree, texts and pointers, with message ids of its own."""
    ledger.create_chat("trip", "ada")
    ledger.append("trip", [chatledger.user("Plan"), chatledger.assistant("Old Town?")])
    original = ledger.export_chat("trip")
    ledger.set_checkpoint("trip", "start", original.messages[0].id)
    ledger.import_chat(ledger.export_chat("trip"), chat_id="copy")
    copy = ledger.export_chat("copy")

    assert [message.text for message in ledger.get_messages("trip")] == [
        message.text for message in ledger.get_messages("copy")
    ]
    assert {message.id for message in original.messages}.isdisjoint(message.id for message in copy.messages)
    assert [message.data for message in original.messages] == [message.data for message in copy.messages]
    assert copy.messages[0].id == ledger.list_checkpoints("copy")[0].message_id
    assert original == msgspec.structs.replace(ledger.export_chat("trip"), checkpoints=())


@pytest.mark.soak
def test_more_branches_than_a_commit_holds(tmp_path: Path) -> None:
    """A chat with 2,500 branches is imported whole, with the right one active, and once; it has no `main`."""
    many = tuple(ImportedBranch(name=f"b{n:04}", head_message_id="a", created_at=n) for n in range(2500))
    chat = _chat((_message("a", None),), *many[:-1], msgspec.structs.replace(many[-1], is_active=True))
    with chatledger.open(tmp_path, durability="fast") as ledger:
        result = ledger.import_chat(chat)

        assert 2500 == result.branches_added == len(ledger.list_branches("trip"))
        active = ledger.get_active_branch("trip")
        assert active is not None
        assert "b2499" == active.name
        assert 0 == ledger.import_chat(chat).branches_added


# What was said of messages, and what assistants did


def _ran(ledger: Ledger) -> None:
    """A chat that ends, with annotations, runs, and a regeneration that is under way."""
    ledger.create_chat("c", "ada", expires_at=4_000_000_000_000)
    for number in (1, 2):
        ledger.append("c", [NewMessage("user", "a question", id=f"M{number}")])
        ledger.record_run("c", f"R{number}", thread_id="c", assistant_id="writer", trigger_message_id=f"M{number}")
        ledger.complete_run(
            "c", f"R{number}", answer=NewMessage("assistant", "an answer", id=f"A{number}"), checkpoint_id="cp"
        )
    ledger.record_run("c", "open", thread_id="c", assistant_id="critic", trigger_message_id="M2", references=["A1"])
    ledger.record_run("c", "failed", thread_id="c", assistant_id="critic", trigger_message_id="M2")
    ledger.fail_run("c", "failed")
    ledger.record_run("c", "asking", thread_id="c", assistant_id="critic", trigger_message_id="M2")
    ledger.suspend_run("c", "asking", checkpoint_id="cp", metadata={"question": "really?"})
    ledger.add_messages("c", [NewMessage("user", "another question", id="M1b")])
    ledger.create_branch("c", "edited", "M1b")
    begun = ledger.begin_regeneration(ledger.plan_regeneration("c", "M1", 1), new_message_id="M1b")
    ledger.repeat_run("c", begun.id, "R1", run_id="R1b")
    ledger.complete_run("c", "R1b", answer=NewMessage("assistant", "better", id="A1b"), branch="edited")
    ledger.annotate("c", "M2", hidden=True, metadata={"why": ["private", 1, 1.0, True]})


@pytest.fixture(scope="module")
def ran() -> ImportedChat:
    """The export of `_ran`."""
    with chatledger.open("memory:") as ledger:
        _ran(ledger)
        return ledger.export_chat("c")


def _all(ledger: Ledger, chat_id: str = "c") -> dict[str, Any]:
    """All that a chat says of itself, as plain values."""
    chat = ledger.get_chat(chat_id)
    assert chat is not None
    found: dict[str, Any] = msgspec.to_builtins(
        {
            "ends": chat.expires_at,
            "annotations": ledger.get_annotations(chat_id),
            "runs": ledger.runs(chat_id),
            "regenerations": ledger.regenerations(chat_id),
        }
    )
    return found


def test_annotations_runs_and_the_end_travel(tmp_path: Path) -> None:
    """A file has all that the chat had, times included; taken in again it changes nothing, and what goes on goes on."""
    with chatledger.open("memory:") as ledger:
        _ran(ledger)
        before = _all(ledger)
        with (tmp_path / "c.jsonl").open("wb") as stream:
            write_chats(stream, [ledger.export_chat("c")])
    with chatledger.open("memory:") as ledger:
        (chat,) = read_chats(tmp_path / "c.jsonl", strict=True, on_problem=print)
        result = ledger.import_chat(chat)
        after, position = _all(ledger), ledger.position

        assert before == after
        assert {"M2", "A1"} <= before["annotations"].keys()
        assert len(before["annotations"]) == result.messages_annotated
        assert (6, 1) == (result.runs_added, result.regenerations_added)
        assert ledger.import_chat(chat) == ImportResult(chat_id="c")
        assert position == ledger.position
        assert ledger.export_chat("c").runs == chat.runs
        ledger.complete_run("c", "open", answer=NewMessage("assistant", "fine", id="A3"))
        ledger.verify()


def test_an_annotation_that_says_nothing_is_not_written(ledger: Ledger) -> None:
    """An import that is repeated would write it again."""
    said = msgspec.structs.replace(_message("m", None), annotation=Annotation())
    result = ledger.import_chat(
        _chat((said,), ImportedBranch(name="main", head_message_id="m", created_at=3, is_active=True))
    )

    assert result.messages_annotated == 0
    assert [event.type for event in ledger.history("trip")].count("message_annotated") == 0


def test_a_copy_speaks_of_its_own_messages(ledger: Ledger) -> None:
    """Under another id annotations, runs and regenerations name the copies, and the records of runs are others."""
    _ran(ledger)
    ledger.import_chat(ledger.export_chat("c"), chat_id="copy")
    old = {message.id: message for message in ledger.export_chat("c").messages}
    new = [message.id for message in ledger.export_chat("copy").messages]
    there = dict(zip(old, new, strict=True))

    def mapped(value: Any) -> Any:
        text = json.dumps(msgspec.to_builtins(value))
        for one, other in there.items():
            text = text.replace(f'"{one}"', f'"{other}"')
        return json.loads(text)

    def plain(chat_id: str) -> dict[str, Any]:
        found = _all(ledger, chat_id)
        steps = [step for one in found["regenerations"] for step in one["steps"]]
        for run in (*found["runs"], *(step["run"] for step in steps if step["run"] is not None)):
            run["id"] = run["chat_id"] = ""
        for one in found["regenerations"]:
            one["chat_id"] = ""
        return found

    assert mapped(plain("c")) == plain("copy")
    ids = {chat_id: {run.id for run in ledger.runs(chat_id)} for chat_id in ("c", "copy")}
    assert not ids["c"] & ids["copy"]
    assert len(ids["copy"]) == 6


def test_what_was_said_here_stays(ledger: Ledger, ran: ImportedChat) -> None:
    """An annotation, a run and the end of a chat that is there are not those of the import."""
    ledger.import_chat(msgspec.structs.replace(ran, runs=(), regenerations=(), expires_at=None))
    ledger.annotate("c", "M2", hidden=False, stale=True)
    ledger.record_run("c", "open", thread_id="other", assistant_id="other")
    result = ledger.import_chat(ran)

    assert (0, 5, 1) == (result.messages_annotated, result.runs_added, result.regenerations_added)
    run, found = ledger.get_run("c", "open"), ledger.get_chat("c")
    assert run is not None
    assert found is not None
    assert (run.thread_id, found.expires_at) == ("other", None)
    assert ledger.get_annotations("c")["M2"].stale


def test_many_runs_take_several_commits(ledger: Ledger, ran: ImportedChat) -> None:
    """More events than fit into one commit: all come, in their order, and repeating adds nothing."""
    runs = tuple(msgspec.structs.replace(ran.runs[0], id="", run_id=f"run {number}") for number in range(1200))
    many = msgspec.structs.replace(ran, runs=runs)

    assert 1200 == ledger.import_chat(many).runs_added
    assert [one.run_id for one in runs] == [one.run_id for one in ledger.runs("c")]
    assert 0 == ledger.import_chat(many).runs_added


@pytest.mark.parametrize(
    ("name", "change", "error"),
    [
        ("runs", {"trigger_message_id": "gone"}, ChainIntegrityError),
        ("runs", {"message_id": "gone"}, ChainIntegrityError),
        ("regenerations", {"new_message_id": "gone"}, ChainIntegrityError),
        ("messages", {"annotation": chatledger.Annotation(replaced_by="gone")}, ChainIntegrityError),
        ("messages", {"parent_id": "gone"}, ChainIntegrityError),
        ("messages", {"parent_id": "A1"}, ChainIntegrityError),
        ("runs", {"thread_id": ""}, InvalidValueError),
    ],
    ids=["trigger", "answer", "regeneration", "annotation", "parent", "cycle", "thread"],
)
def test_what_leads_nowhere_is_refused(
    ledger: Ledger, ran: ImportedChat, name: str, change: dict[str, Any], error: type[Exception]
) -> None:
    """Before anything is written."""
    first, *rest = getattr(ran, name)
    broken = msgspec.structs.replace(first, **change)
    with pytest.raises(error):
        ledger.import_chat(msgspec.structs.replace(ran, **{name: (broken, *rest)}))
    assert ledger.last_position() == 0


def _many_branches(chat_id: str, count: int) -> ImportedChat:
    """A root with so many answers, each with a branch of its own."""
    answers = tuple(_message(f"{chat_id}-{at}", f"{chat_id}-root") for at in range(count))
    branches = tuple(
        ImportedBranch(name=f"main-v{at}" if at else "main", head_message_id=answer.id, is_active=not at)
        for at, answer in enumerate(answers)
    )
    chat = _chat((_message(f"{chat_id}-root", None), *answers), *branches)
    return msgspec.structs.replace(chat, id=chat_id)


def test_branches_take_look_ups_in_proportion(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each further branch takes as many look-ups in the index as the one before, also in later commits and when repeated."""
    asked = 0

    def counted(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def count(part: Any, *args: Any, **options: Any) -> Any:
            nonlocal asked
            asked += not (isinstance(part, IndexedChat) and part.chat_no is None)  # a chat that is new has no rows
            return original(part, *args, **options)

        monkeypatch.setattr(owner, name, count)

    def look_ups(chat: ImportedChat) -> int:
        nonlocal asked
        asked = 0
        ledger.import_chat(chat)
        return asked

    for name in ("_row", "_plain_row", "branch_record"):
        counted(IndexedChat, name)
    for owner, name in ((Tables, "first_location"), (Tables, "locations"), (Chains, "segment")):
        counted(owner, name)
    chats = [_many_branches(f"c{count}", count) for count in (550, 800, 1050)]
    first, second, third = map(look_ups, chats)
    again = [look_ups(chat) for chat in chats]

    assert 0 < third - second <= 1.05 * (second - first)
    assert 0 < again[2] - again[1] <= 1.05 * (again[1] - again[0])


def test_messages_of_a_new_chat_are_not_looked_up_one_by_one(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other chats' messages are looked for in one pass, and a chat that is new has none of its own."""
    asked: list[str] = []
    original = Tables.first_location

    def first_location(tables: Tables, txn: Transaction, message_id: str) -> Any:
        asked.append(message_id)
        return original(tables, txn, message_id)

    monkeypatch.setattr(Tables, "first_location", first_location)
    ledger.import_chat(TRIP)
    messages = ledger.append("trip", [NewMessage("user", "x", id=f"n{at}") for at in range(10)])

    assert 10 == len(messages)
    assert not {message.id for message in messages}.intersection(asked)
    assert not {"a", "b", "r"}.intersection(asked)
    ledger.import_chat(msgspec.structs.replace(TRIP, id="other"))
    assert all(message.id.startswith("other:") for message in ledger.export_chat("other").messages)

"""Whole conversations in and out of a real ledger."""

import collections
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

import chatledger
from chatledger import ANY, Ledger, NewMessage
from chatledger.domain.errors import ChainIntegrityError, InvalidValueError
from chatledger.errors import MessageConflictError
from chatledger.importers import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportResult,
    read_chats,
    write_chats,
)
from chatledger.runs import Regeneration

OASST = Path(os.environ.get("CHATLEDGER_OASST") or Path(__file__).parents[4] / "shared/data/oasst1-en-validation.jsonl")


def _message(message_id: str, parent_id: str | None, text: str = "") -> ImportedMessage:
    return ImportedMessage(id=message_id, parent_id=parent_id, name="user", data=text or message_id, created_at=5)


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
    """What a round trip keeps: all but the time of the last change, and ids that were made on the way in."""
    form: dict[str, Any] = msgspec.to_builtins(chat)
    form["updated_at"] = None
    for pointer in (*form["branches"], *form["checkpoints"]):
        pointer["id"] = None
    return form


def test_export_gives_what_was_imported() -> None:
    """Messages, branches, checkpoints, times and the active branch survive the way in and out."""
    with chatledger.open("memory:") as ledger:
        result = ledger.import_chat(TRIP)
        exported = ledger.export_chat("trip")

    assert (True, 4, 3, 1) == (result.is_new, result.messages_added, result.branches_added, result.checkpoints_set)
    assert _same(TRIP) == _same(exported)
    assert ["branch-7"] == [branch.id for branch in exported.branches if branch.name == "other"]


def test_import_is_one_commit() -> None:
    """A reader never sees a part of an imported chat."""
    with chatledger.open("memory:") as ledger:
        ledger.import_chat(TRIP)
        rests = [recorded.event.rest for recorded in ledger.history("trip")]

    assert list(range(len(rests) - 1, -1, -1)) == rests


def test_repeated_import_writes_nothing(ledger: Ledger) -> None:
    """The second time there is nothing to do."""
    ledger.import_chat(TRIP)
    position = ledger.position
    again = ledger.import_chat(TRIP)

    assert position == ledger.position
    assert not any((again.is_new, again.messages_added, again.branches_added, again.heads_moved))


def test_longer_import_moves_branches_forward() -> None:
    """A newer export of the same chat adds what is new; the branch follows, as its old head is an ancestor."""
    longer = msgspec.structs.replace(
        TRIP,
        messages=(*TRIP.messages, _message("d", "b")),
        branches=(msgspec.structs.replace(TRIP.branches[0], head_message_id="d"), *TRIP.branches[1:]),
    )
    with chatledger.open("memory:") as ledger:
        ledger.import_chat(TRIP)
        result = ledger.import_chat(longer)

        assert (1, 1) == (result.messages_added, result.heads_moved)
        assert ["a", "b", "d"] == [message.id for message in ledger.get_messages("trip", branch="main")]


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


def test_conflicting_import_writes_nothing() -> None:
    """A message id with other content refuses the whole chat."""
    other = msgspec.structs.replace(TRIP, messages=(_message("a", None, "changed"), *TRIP.messages[1:]))
    with chatledger.open("memory:") as ledger:
        ledger.import_chat(TRIP)
        position = ledger.position
        with pytest.raises(MessageConflictError, match="'a'"):
            ledger.import_chat(other)

        assert position == ledger.position


@pytest.mark.parametrize(
    "messages", [(_message("x", "y"), _message("y", "x")), (_message("x", "nowhere"),)], ids=["cycle", "dangling"]
)
def test_foreign_damage_is_refused(messages: tuple[ImportedMessage, ...]) -> None:
    """A cycle or a missing parent raises before anything is written."""
    damaged = _chat(messages, ImportedBranch(name="main", head_message_id="x", is_active=True))
    with chatledger.open("memory:") as ledger:
        with pytest.raises(ChainIntegrityError):
            ledger.import_chat(damaged)

        assert 0 == ledger.position


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
    assert [message.id for message in copy.messages] == [message.data["id"] for message in copy.messages]
    assert copy.messages[0].id == ledger.list_checkpoints("copy")[0].message_id
    assert original == msgspec.structs.replace(ledger.export_chat("trip"), checkpoints=())


@pytest.mark.soak
def test_more_branches_than_a_commit_holds(tmp_path: Path) -> None:
    """A chat with 2,500 branches is imported whole, with the right one active, and once."""
    many = tuple(ImportedBranch(name=f"b{n:04}", head_message_id="a", created_at=n) for n in range(2500))
    chat = _chat((_message("a", None),), *many[:-1], msgspec.structs.replace(many[-1], is_active=True))
    with chatledger.open(tmp_path, durability="fast") as ledger:
        result = ledger.import_chat(chat)

        assert 2501 == result.branches_added == len(ledger.list_branches("trip"))
        active = ledger.get_active_branch("trip")
        assert active is not None
        assert "b2499" == active.name
        assert 0 == ledger.import_chat(chat).branches_added


def _walk() -> dict[str, dict[str, Any]]:
    with OASST.open(encoding="utf-8") as lines:
        return {record["message_id"]: record for record in map(json.loads, lines)}


def _check_oasst(ledger: Ledger, records: dict[str, dict[str, Any]]) -> None:
    """Every parent link, fork and leaf is as a plain walk of the file says."""
    children: dict[str | None, list[str]] = collections.defaultdict(list)
    for message_id, record in records.items():
        children[record["parent_id"] if record["parent_id"] in records else None].append(message_id)
    for message_id, record in records.items():
        message = ledger.get_message(message_id)
        assert message is not None
        parent_id = record["parent_id"] if record["parent_id"] in records else None
        assert (record["message_tree_id"], parent_id, record["text"]) == (
            message.chat_id,
            message.parent_id,
            message.text,
        )
        assert children[message_id] == [child.id for child in ledger.children(message_id)]
        assert bool(children[message_id]) == ledger.has_children(message_id)
    leaves = {message_id for message_id in records if not children[message_id]}
    heads = [branch.head_message_id for chat in ledger.list_chats() for branch in ledger.list_branches(chat.id)]
    assert leaves == set(heads)
    assert len(leaves) == len(heads) == 1005
    for leaf in leaves:
        chain = [message.id for message in ledger.get_chain(leaf)]
        expected = [leaf]
        while (parent := records[expected[-1]]["parent_id"]) in records:
            expected.append(parent)
        assert expected[::-1] == chain


@pytest.mark.soak
@pytest.mark.skipif(not OASST.exists(), reason=f"the OASST sample is not at {OASST}; set CHATLEDGER_OASST to its path")
def test_oasst_file_end_to_end(tmp_path: Path) -> None:
    """2,022 real messages in 191 trees: the same after import, after rebuild and after reopening."""
    records = _walk()
    assert 2022 == len(records)
    with chatledger.open(tmp_path, durability="fast") as ledger:
        for chat in read_chats(OASST, on_problem=lambda problem: None):
            ledger.import_chat(chat)
        assert 191 == len(ledger.list_chats())
        _check_oasst(ledger, records)
        ledger.rebuild()
        _check_oasst(ledger, records)
    with chatledger.open(tmp_path, durability="fast") as ledger:
        _check_oasst(ledger, records)


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
    ledger.add_messages("c", [NewMessage("user", "another question", id="M1b")])
    ledger.create_branch("c", "edited", "M1b")
    begun = ledger.begin_regeneration(ledger.plan_regeneration("c", "M1", 1), new_message_id="M1b")
    ledger.repeat_run("c", begun.id, "R1", run_id="R1b")
    ledger.complete_run("c", "R1b", answer=NewMessage("assistant", "better", id="A1b"), branch="edited")
    ledger.annotate("c", "M2", hidden=True, metadata={"why": ["private", 1, 1.0, True]})


def _all(ledger: Ledger, chat_id: str = "c") -> dict[str, Any]:
    """What a chat says of itself, but for ids that were made on the way."""
    chat = ledger.get_chat(chat_id)
    assert chat is not None
    return {
        "ends": chat.expires_at,
        "annotations": ledger.get_annotations(chat_id),
        "runs": [msgspec.structs.replace(run, chat_id="") for run in ledger.runs(chat_id)],
        "regenerations": [msgspec.structs.replace(one, chat_id="") for one in _regenerations(ledger, chat_id)],
    }


def _regenerations(ledger: Ledger, chat_id: str) -> list[Regeneration]:
    return [
        msgspec.structs.replace(
            one,
            steps=[
                msgspec.structs.replace(
                    step, run=None if step.run is None else msgspec.structs.replace(step.run, chat_id="")
                )
                for step in one.steps
            ],
        )
        for one in ledger.regenerations(chat_id)
    ]


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
        assert (5, 1) == (result.runs_added, result.regenerations_added)
        assert ledger.import_chat(chat) == ImportResult(chat_id="c")
        assert position == ledger.position
        assert ledger.export_chat("c").runs == chat.runs
        ledger.complete_run("c", "open", answer=NewMessage("assistant", "fine", id="A3"))
        ledger.verify()


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
        found: dict[str, Any] = msgspec.to_builtins(_all(ledger, chat_id))
        for run in (*found["runs"], *(step["run"] for one in found["regenerations"] for step in one["steps"])):
            if run is not None:
                run["id"] = ""
        return found

    assert mapped(plain("c")) == plain("copy")
    ids = {chat_id: {run.id for run in ledger.runs(chat_id)} for chat_id in ("c", "copy")}
    assert not ids["c"] & ids["copy"]
    assert len(ids["copy"]) == 5


def test_what_was_said_here_stays() -> None:
    """An annotation, a run and the end of a chat that is there are not those of the import."""
    with chatledger.open("memory:") as ledger:
        _ran(ledger)
        chat = ledger.export_chat("c")
    with chatledger.open("memory:") as ledger:
        ledger.import_chat(msgspec.structs.replace(chat, runs=(), regenerations=(), expires_at=None))
        ledger.annotate("c", "M2", hidden=False, stale=True)
        ledger.record_run("c", "open", thread_id="other", assistant_id="other")
        result = ledger.import_chat(chat)

        assert (0, 4, 1) == (result.messages_annotated, result.runs_added, result.regenerations_added)
        run, found = ledger.get_run("c", "open"), ledger.get_chat("c")
        assert run is not None
        assert found is not None
        assert (run.thread_id, found.expires_at) == ("other", None)
        assert ledger.get_annotations("c")["M2"].stale


def test_many_runs_take_several_commits() -> None:
    """More events than fit into one commit: all come, in their order, and repeating adds nothing."""
    with chatledger.open("memory:") as ledger:
        _ran(ledger)
        chat = ledger.export_chat("c")
    run = chat.runs[0]
    runs = tuple(msgspec.structs.replace(run, id="", run_id=f"run {number}") for number in range(1200))
    many = msgspec.structs.replace(chat, runs=runs)
    with chatledger.open("memory:") as ledger:
        assert 1200 == ledger.import_chat(many).runs_added
        assert [one.run_id for one in runs] == [one.run_id for one in ledger.runs("c")]
        assert 0 == ledger.import_chat(many).runs_added


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"runs": "trigger_message_id"}, ChainIntegrityError),
        ({"runs": "message_id"}, ChainIntegrityError),
        ({"regenerations": "new_message_id"}, ChainIntegrityError),
        ({"messages": "annotation"}, ChainIntegrityError),
        ({"runs": "thread_id"}, InvalidValueError),
    ],
    ids=["trigger", "answer", "regeneration", "annotation", "thread"],
)
def test_what_leads_nowhere_is_refused(changes: dict[str, str], error: type[Exception]) -> None:
    """Before anything is written."""
    with chatledger.open("memory:") as ledger:
        _ran(ledger)
        chat = ledger.export_chat("c")
    ((name, field),) = changes.items()
    value: Any = chatledger.Annotation(replaced_by="gone") if field == "annotation" else "gone"
    first, *rest = getattr(chat, name)
    broken = msgspec.structs.replace(first, **{field: "" if field == "thread_id" else value})
    with chatledger.open("memory:") as ledger:
        with pytest.raises(error):
            ledger.import_chat(msgspec.structs.replace(chat, **{name: (broken, *rest)}))
        assert ledger.last_position() == 0

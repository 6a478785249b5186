"""Conversations as values: their messages under other ids, copies that stand beside the original, and problems of files."""

from typing import Any

import msgspec
import pytest

from chatledger.domain.chat.interchange import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportedRegeneration,
    Problem,
    draft_of,
    renamed,
    with_message_ids,
)
from chatledger.domain.chat.runs import CarryOver, MessageRun, PlannedRun, Stretch, copy_id
from chatledger.domain.values import Annotation, Message, NewMessage


def conversation(
    first: str, answer: str, new: str, copy: str, *, chat_id: str = "c", built: str = "built", is_copy: bool = False
) -> ImportedChat:
    """A conversation with everything that names a message, under these ids. As a copy it has no other ids of its own."""
    planned = PlannedRun(
        run_id="r", assistant_id="bot", runtime="python", trigger_message_id=first, message_id=answer, checkpoint_id="k",
        depth=1, cause="trigger", thread_id="t", references=[first, new],
    )  # fmt: skip
    run = MessageRun(
        id="" if is_copy else "record", run_id="r", thread_id="t", assistant_id="bot", trigger_message_id=first,
        references=[new, first], message_id=answer, status="completed", created_at=1, updated_at=2, metadata={"a": 1},
    )  # fmt: skip
    regeneration = ImportedRegeneration(
        id="g", edited_message_id=first, new_message_id=new, runs=(planned,), approved=("r",), created_at=3
    )
    stretches = (Stretch(first=answer, last=copy, run_ids=("r",)), Stretch(run_ids=("s",)))
    branch_ids = (built, None) if is_copy else (built, "other")
    return ImportedChat(
        id=chat_id,
        user_id="ada",
        title="Trip",
        metadata={"first": "m1"},
        messages=(
            ImportedMessage(id=first, parent_id=None, name="user", data={"id": "m1", "at": "m1"}, sender_id="ada"),
            ImportedMessage(
                id=answer, parent_id=first, name="assistant", data="m1", type=None, created_at=4, agent_id="bot",
                annotation=Annotation(replaced_by=copy, stale=True),
            ),
            ImportedMessage(id=new, parent_id=None, name="user", data={"id": "m1"}, annotation=Annotation(hidden=True)),
            ImportedMessage(
                id=copy, parent_id=new, name="assistant", data=["m1"], reply_to=new, copied_from=answer
            ),
        ),
        branches=(
            ImportedBranch(name="main", head_message_id=answer, is_active=True, id=branch_ids[0], created_at=5),
            ImportedBranch(name="empty", head_message_id=None, id=branch_ids[1]),
        ),
        checkpoints=(ImportedCheckpoint(name="cp", message_id=new, created_at=6, id=None if is_copy else "mark"),),
        runs=(run, msgspec.structs.replace(run, run_id="s", trigger_message_id=None, references=[], message_id=None)),
        regenerations=(
            msgspec.structs.replace(regeneration, carries=CarryOver(branch_id=built, stretches=stretches)),
            msgspec.structs.replace(regeneration, id="h", runs=()),
        ),
        created_at=7,
        updated_at=8,
        expires_at=9,
    )  # fmt: skip


@pytest.mark.parametrize(
    "new_ids", [{}, {"m1": "n1"}, {"m2": "n2", "m4": "n4"}, {"m1": "n1", "m2": "m1", "m3": "n3", "m4": "n4", "x": "y"}]
)
def test_messages_under_other_ids(new_ids: dict[str, str]) -> None:
    """Everything that names one of them names it so; what merely reads like an id of another one stays."""
    old = ("m1", "m2", "m3", "m4")

    assert conversation(*(new_ids.get(one, one) for one in old)) == with_message_ids(conversation(*old), new_ids)


def test_a_copy_stands_beside_its_original() -> None:
    """It shares no id with it that must be one of a kind: those of records are given anew, that of a built branch follows."""
    new_ids = {"m1": "n1", "m2": "n2", "m3": "n3", "m4": "n4"}

    assert conversation(
        "n1", "n2", "n3", "n4", chat_id="d", built=copy_id("d", "built"), is_copy=True
    ) == renamed(conversation("m1", "m2", "m3", "m4"), "d", new_ids)  # fmt: skip


@pytest.mark.parametrize(
    ("copy", "new_ids", "expected"),
    [
        (copy_id("g", "m2"), {"m2": "n2", copy_id("g", "m2"): "n4"}, copy_id("g", "n2")),
        (copy_id("g", "m2"), {copy_id("g", "m2"): "n4"}, copy_id("g", "m2")),
        (copy_id("g", "m2"), {"m2": "n2"}, copy_id("g", "m2")),
        (copy_id("g", "m1"), {"m2": "n2", copy_id("g", "m1"): "n4"}, "n4"),
        (copy_id("h", "m2"), {"m2": "n2", copy_id("h", "m2"): "n4"}, "n4"),
    ],
    ids=["follows", "original stays", "stays", "of another message", "of what carries nothing over"],
)
def test_what_a_regeneration_carried_over_is_found_again(copy: str, new_ids: dict[str, str], expected: str) -> None:
    """The id of a copy follows from those of the regeneration and of the original: so in a renamed conversation too."""
    chat = renamed(conversation("m1", "m2", "m3", copy), "d", new_ids)

    assert expected == chat.messages[3].id
    assert chat.messages[1].annotation == Annotation(replaced_by=expected, stale=True)


def test_a_draft_has_all_that_a_message_has() -> None:
    """Whether it was imported or stored."""
    fields: dict[str, Any] = {
        "id": "m", "parent_id": "p", "name": "user", "data": [1], "type": "t", "created_at": 1, "sender_id": "s",
        "agent_id": "a", "reply_to": "r", "copied_from": "c", "form": "acme",
    }  # fmt: skip
    notes = {"page": 3}
    expected = NewMessage(**fields, metadata=notes)

    assert expected == draft_of(ImportedMessage(**fields, notes=notes)) == draft_of(Message(**fields, notes=notes))


def test_a_problem_says_where() -> None:
    """In which file, and in which line where there are any."""
    in_line = Problem(source="a.jsonl", line=3, message="no id")

    assert ("a.jsonl, line 3: no id", "a.zip: no id") == (
        str(in_line),
        str(msgspec.structs.replace(in_line, source="a.zip", line=None)),
    )

"""Conversations that are given in Python, with values of other types than those of their fields."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import msgspec
import pytest
from tests.support.stories import CHAT

from chatledger.domain.chat.decide_import import decide_import
from chatledger.domain.chat.import_check import validate_chat
from chatledger.domain.chat.interchange import (
    ImportedBranch,
    ImportedChat,
    ImportedCheckpoint,
    ImportedMessage,
    ImportedRegeneration,
)
from chatledger.domain.chat.replay import ReplayedChat
from chatledger.domain.chat.runs import CarryOver, MessageRun, PlannedRun, Stretch
from chatledger.domain.errors import ChatledgerError, InvalidValueError
from chatledger.domain.log.codec import NO_HASH, Envelope, decode_event, encode_events
from chatledger.domain.values import Annotation

RUN = MessageRun(
    id="run", run_id="r", thread_id="t", assistant_id="bot", trigger_message_id="m1", references=["m1"],
    message_id="m2", checkpoint_id="k", status="completed", created_at=1, updated_at=2,
)  # fmt: skip
PLANNED = PlannedRun(
    run_id="r", assistant_id="bot", runtime="python", trigger_message_id="m1", message_id="m2", checkpoint_id="k",
    depth=1, cause="trigger", thread_id="t", references=["m1"],
)  # fmt: skip
CHAT_WITH_ALL = ImportedChat(
    id=CHAT,
    user_id="ada",
    title="Trip",
    metadata={"a": 1},
    messages=(
        ImportedMessage(id="m1", parent_id=None, name="user", data="q", annotation=Annotation(hidden=True)),
        ImportedMessage(id="m2", parent_id="m1", name="assistant", data="a", agent_id="bot", reply_to="m1"),
    ),
    branches=(ImportedBranch(name="main", head_message_id="m2", is_active=True, id="b", created_at=1),),
    checkpoints=(ImportedCheckpoint(name="cp", message_id="m1", id="c", created_at=1),),
    runs=(RUN,),
    regenerations=(
        ImportedRegeneration(
            id="g",
            edited_message_id="m1",
            new_message_id="m1",
            runs=(PLANNED,),
            approved=("r",),
            carries=CarryOver(branch_id="b", stretches=(Stretch(first="m2", last="m2", run_ids=("r",)),)),
        ),
    ),
)
WRONG: list[Any] = [
    None, 0, 1, 1.5, True, b"x", "", [], {}, object(), "\0", "\ud800", 2**70, ("a",), [None], (1,), "x", {"a": 1}, {1: 2},
]  # fmt: skip


def variants(value: Any, replace: Callable[[Any], Any]) -> Iterator[Any]:
    """A struct with each wrong value in each field of it, and of the structs in it, put in its place by `replace`."""
    for field in value.__struct_fields__:
        found: Any = getattr(value, field)

        def put(new: Any, field: str = field) -> Any:
            return replace(msgspec.structs.replace(value, **{field: new}))

        items = cast("tuple[Any, ...]", found) if isinstance(found, tuple) else ()

        def put_first(new: Any, put: Callable[[Any], Any] = put, items: tuple[Any, ...] = items) -> Any:
            return put((new, *items[1:]))

        yield from map(put, WRONG)
        if isinstance(found, msgspec.Struct):
            yield from variants(found, put)
        elif items and isinstance(items[0], msgspec.Struct):
            yield from variants(items[0], put_first)


def test_what_is_imported_can_be_read_back() -> None:
    """Whatever stands in whichever field: it is refused, or its events are read as they were written."""
    taken = refused = 0
    for chat in variants(CHAT_WITH_ALL, lambda new: new):
        with suppress(ChatledgerError):
            refused += 1
            validate_chat(chat)
            bodies = decide_import(ReplayedChat(chat.id), chat, ids=["new"] * 9, now=1)
            for encoded in encode_events(
                bodies,
                stream_id=CHAT,
                version=0,
                previous_hash=NO_HASH,
                occurred_at=1,
                event_ids=["e"] * len(bodies),
                envelope=Envelope(),
            ):
                decode_event(encoded.topic, encoded.state)
            refused, taken = refused - 1, taken + 1
    assert refused > taken > 0


@pytest.mark.parametrize("branch_id", [7, b"x", object(), "\ud800"])
def test_an_error_says_where(branch_id: Any) -> None:
    """An id from a table of one's own is often a number."""
    branch = msgspec.structs.replace(CHAT_WITH_ALL.branches[0], id=branch_id)
    with pytest.raises(InvalidValueError, match=f"chat '{CHAT}'"):
        validate_chat(msgspec.structs.replace(CHAT_WITH_ALL, branches=(branch,)))

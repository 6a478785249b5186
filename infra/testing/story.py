"""A story with every kind of event, to be written into any ledger."""

import tempfile
from collections.abc import Callable
from typing import Any, Final

from chatledger.domain.chat.events import Recorded
from chatledger.domain.errors import ProjectionError
from chatledger.domain.values import NewMessage
from chatledger.domain.versioned.content import Tree, leaf_tree
from chatledger.domain.versioned.decide import decide_set_expiry
from chatledger.domain.versioned.keys import item_id, state_id
from chatledger.domain.versioned.pruning import Removal
from chatledger.domain.versioned.record import PutVersion
from chatledger.projections.custom.records import Projection
from chatledger.projections.custom.rows import Key, ProjectionRows
from chatledger.projections.log.kinds import ITEMS

from ..ledger.graph.state_store import StateStore
from ..ledger.items.item_store import ItemStore
from ..ledger.ledger import Ledger
from ..ledger.open import open as open_ledger
from ..ledger.port import store_of
from ..ledger.threads import Threads
from ..testing import expect

_DAY_S = 86_400
_LARGE_BYTES = 600_000  # two such messages are two events of one commit


def tell_story(ledger: Ledger, prefix: str = "story") -> None:
    """
    Write every kind of event: chats, branches, runs, threads of LangGraph, states of graphs, items, and deletions.

    Args:
        ledger: Any ledger of all users. What it has already stays.
        prefix: The prefix of all ids. A story is written once under each.
    """
    tell_chat(ledger, prefix)
    # A run of an assistant, repeated after an edit, and a fork of the chat.
    chat = f"{prefix} runs"
    question, answer, edited = (f"{chat} {name}" for name in ("question", "answer", "edited"))
    ledger.create_chat(chat, "u")
    ledger.append(chat, [_text("2 + 3?", question)])
    ledger.record_run(chat, "first", thread_id=chat, assistant_id="a", trigger_message_id=question)
    ledger.complete_run(chat, "first", answer=NewMessage("assistant", "5", id=answer))
    ledger.annotate(chat, answer, metadata={"rating": 1})
    plan = ledger.plan_regeneration(chat, question, 0)
    ledger.create_branch(chat, "edited", None, activate=True)
    ledger.append(chat, [_text("2 + 4?", edited)])
    ledger.begin_regeneration(plan, new_message_id=edited, regeneration_id=chat)
    ledger.approve_regeneration(chat, chat)
    ledger.repeat_run(chat, chat, "first", run_id="second")
    ledger.complete_run(chat, "second", answer=NewMessage("assistant", "6", id=f"{chat} again"))
    ledger.fork_chat(chat, answer, new_chat_id=f"{chat} fork")
    thread_id = f"{prefix} thread"
    threads = Threads(ledger)
    _put_checkpoint(threads, thread_id, "1")
    _put_checkpoint(threads, thread_id, "2", parent_id="1")
    threads.put_writes(thread_id, "", "2", task_id="task", task_path="", writes=[(0, "said", _leaf("w"))])
    threads.copy(thread_id, f"{thread_id} copy")
    threads.remove(thread_id, lambda _thread: Removal([("", "1")], []), reason="pruned")
    _put_checkpoint(threads, f"{thread_id} gone", "1")
    threads.delete(f"{thread_id} gone")
    threads.copy(thread_id, f"{thread_id} copied in vain")
    threads.delete(f"{thread_id} copied in vain")
    _tell_state(ledger, f"{prefix} state")


def tell_chat(ledger: Ledger, prefix: str) -> None:
    """Write what happens to chats without agents: one with branches and a checkpoint, and one that is deleted."""
    chat = f"{prefix} chat"
    ledger.create_chat(chat, "u", title="t", metadata={"a": 1})
    with ledger.context(actor="ada", correlation_id="r"):
        ledger.append(chat, [_text(str(number), f"{prefix} {number}") for number in range(3)])
    ledger.fork(chat, f"{prefix} 1")
    ledger.append(chat, [NewMessage("assistant", {"parts": []}, id=f"{prefix} 9", created_at=7)])
    ledger.add_messages(chat, [_text("side", f"{prefix} 8", parent_id=f"{prefix} 0")])
    ledger.set_checkpoint(chat, "c", f"{prefix} 8")
    ledger.set_active_branch(chat, "main")
    ledger.create_branch(chat, "aside", f"{prefix} 0")
    ledger.rename_branch(chat, "aside", "apart")
    ledger.delete_branch(chat, "apart")
    ledger.move_head(chat, "main", f"{prefix} 0", expected=f"{prefix} 2")
    ledger.append(chat, [_text("x" * _LARGE_BYTES, f"{prefix} 10"), _text("y" * _LARGE_BYTES, f"{prefix} 11")])
    ledger.redact(f"{prefix} 10", reason="a card number")
    ledger.update_chat(chat, title=None)
    ledger.delete_checkpoint(chat, "c")
    ledger.set_member(chat, "guest", "writer")
    ledger.remove_member(chat, "guest")
    ledger.revoke_link(chat, ledger.create_link(chat).id)
    ledger.create_chat(f"{prefix} gone", "u")
    ledger.delete_chat(f"{prefix} gone")


def _put_checkpoint(threads: Threads, thread_id: str, checkpoint_id: str, *, parent_id: str | None = None) -> None:
    put = PutVersion(
        id=checkpoint_id,
        parent=parent_id,
        frames=(("text", checkpoint_id.encode()), ("text", b"metadata")),
        values={"said": _leaf(checkpoint_id * 600)},
    )
    threads.put_checkpoint(thread_id, put)


def _tell_state(ledger: Ledger, name: str) -> None:
    """A graph's state of two versions, and one that is deleted."""
    states = StateStore(ledger)
    for number in (1, 2):
        states.put(state_id("u", name), {"number": number, "text": "x" * 5000})
    gone = state_id("u", f"{name} gone")
    states.put(gone, {"number": 1})
    states.delete(gone)
    items = ItemStore(ledger)
    items.put((name,), "item", {"number": 1}, ttl_seconds=_DAY_S)
    item = item_id("", (name,), "item")
    later = 2 * 1000 * _DAY_S  # a refresh at once would write nothing
    store_of(ledger).execute(ITEMS, item, lambda state, now: decide_set_expiry(state, later, now))


def _text(content: str, message_id: str, *, parent_id: str | None = None) -> NewMessage:
    return NewMessage("user", content, id=message_id, parent_id=parent_id)


def _leaf(text: str) -> Tree:
    return leaf_tree("text", text.encode())


Rows = dict[tuple[str | None, Key], Any]
"""The rows of a projection by chat, None for those under no chat, and key."""
_SHOWN: Final = 5
_NO_ROW: Final = "no such row"


def check_projection(
    make_projection: Callable[[], Projection], *, story: Callable[[Ledger], object] = tell_story
) -> None:
    """
    Check that a projection gives the same rows however it is built, before and after chats are deleted.

    It follows a ledger while a story is written to it; then other objects of it build their rows from the log: each event once,
    and each event twice as after a crash. At last all chats are deleted, and nothing of them may stay. Takes about a second.

    Args:
        make_projection: Makes a new object, each time the same projection.
        story: Writes to an empty ledger, in place of `tell_story`, what the projection is about.

    Raises:
        AssertionError: The rows differ, or `apply` failed; says how.
        ConfigurationError: It is no projection, or has no proper name or version.
    """
    with tempfile.TemporaryDirectory(prefix="chatledger-check-") as folder:
        location = f"sqlite:///{folder}/log.db"
        with open_ledger(location, index=f"{folder}/followed", projections=[make_projection()]) as ledger:
            story(ledger)
            _compare(_rows(ledger), make_projection, location, f"{folder}/built")
            for chat in ledger.list_chats():
                ledger.delete_chat(chat.id)
            _compare(_rows(ledger), make_projection, location, f"{folder}/left", "after all chats were deleted, ")


def _compare(followed: Rows, make: Callable[[], Projection], location: str, index: str, when: str = "") -> None:
    built = _built(make(), location, f"{index}-once")
    _expect_same(followed, built, f"{when}a build from the log must give the rows that came while it was written")
    # As after a crash in the middle of a transaction.
    repeated = _built(_Repeated(make()), location, f"{index}-twice")
    _expect_same(followed, repeated, f"{when}applying an event again, of which nothing was kept, must change nothing")


def _expect_same(expected: Rows, actual: Rows, rule: str) -> None:
    differing = [row for row in {**expected, **actual} if expected.get(row, _NO_ROW) != actual.get(row, _NO_ROW)]
    some = differing[:_SHOWN]
    expect({row: expected.get(row, _NO_ROW) for row in some}, {row: actual.get(row, _NO_ROW) for row in some}, rule)


def _built(projection: Projection, location: str, index: str) -> Rows:
    with open_ledger(location, index=index, projections=[projection]) as ledger:
        return _rows(ledger)


def _rows(ledger: Ledger) -> Rows:
    (name,) = (info.name for info in ledger.projections() if info.is_attached)
    chat_ids = dict.fromkeys(recorded.chat_id for recorded in ledger.history())
    try:
        with ledger.projection(name) as view:
            rows: Rows = {(None, key): value for key, value in view.range()}
            for chat_id in chat_ids:
                rows.update({(chat_id, key): value for key, value in view.of(chat_id).range()})
    except ProjectionError as error:
        event = next((recorded for recorded in ledger.history() if recorded.position == error.position), None)
        msg = f"apply takes every event: {error}" + (f" It is a {event.type}" if event is not None else "")
        raise AssertionError(msg) from error
    return rows


class _Repeated(Projection):
    """Applies each event twice; what it did the first time is undone."""

    def __init__(self, inner: Projection) -> None:
        self._inner = inner
        self.name, self.version = inner.name, inner.version

    def apply(self, rows: ProjectionRows, recorded: Recorded) -> None:
        self._inner.apply(rows, recorded)
        rows._reach.undo()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - as after a failure; not for users
        self._inner.apply(rows, recorded)

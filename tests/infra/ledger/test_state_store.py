import json
import logging
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import pytest
from tests.contracts.store_world import together

import chatledger
from chatledger.domain.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptStateError,
    InvalidValueError,
    LedgerClosedError,
    NotFoundError,
    PayloadTooLargeError,
    StateConflictError,
)
from chatledger.domain.versioned import serials
from chatledger.domain.versioned.content import Edited, Leaf
from chatledger.domain.versioned.events import VersionPut, VersionsDeleted
from chatledger.graph_state import AgentState, StateStore, initial_state, parse_state_id, state_id
from chatledger.infra.ledger.graph import stored as stored_module

ID = state_id("ada", "trip")
NODES = [f"node-{number}" for number in range(1, 11)]


@pytest.fixture
def store(ledger: chatledger.Ledger) -> StateStore:
    """Its states."""
    return StateStore(ledger, nodes=NODES)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time in ms, to be set."""
    moment = [1_700_000_000_000]
    for module in ("ledger.graph.stored", "ledger.graph.state_store", "store.group_commit"):
        monkeypatch.setattr(f"chatledger.infra.{module}.clock_ms", lambda: moment[0])
    return moment


def doc(number: int, words: str = "body") -> dict[str, Any]:
    return {"id": f"d{number}", "title": "Riga", "body": f"{words} {number}", "metadata": {"source": "atlas"}}


def reasons(ledger: chatledger.Ledger) -> list[str]:
    return [recorded.body.reason for recorded in ledger.history() if isinstance(recorded.body, VersionsDeleted)]


def bodies(ledger: chatledger.Ledger) -> list[VersionPut]:
    return [recorded.body for recorded in ledger.history() if isinstance(recorded.body, VersionPut)]


def test_a_view_of_an_earlier_time(store: StateStore, clock: list[int]) -> None:
    store.put(ID, {"step": 1}, node="node-1")
    clock[0] += 1000
    between = datetime.fromtimestamp(clock[0] / 1000 - 0.5, UTC)
    store.put(ID, {"step": 2}, node="node-2")
    view = store.as_of(between)
    assert view.get(ID) == {"step": 1}
    assert [(info.version, info.node, info.updated_at) for info in view.list()] == [(1, "node-1", clock[0] - 1000)]
    assert store.as_of(0).get(ID) is None
    assert (store.as_of(0).list(), store.as_of(0).history(ID)) == ([], [])
    with pytest.raises(AccessDeniedError):
        store.for_identity("bob").as_of(between).get(ID)
    with pytest.raises(AccessDeniedError):
        store.for_identity(None).as_of(between)


def test_ids_keep_pairs_apart(store: StateStore) -> None:
    """Acceptance 6, as the source gets wrong: a colon inside a part is not the one between the parts."""
    for user_id, conversation_id in (("a:b", "c"), ("a", "b:c"), ("100%", "%3A"), ("%25", "é 🦜")):
        assert parse_state_id(state_id(user_id, conversation_id)) == (user_id, conversation_id)
    store.put(state_id("a:b", "c"), {"is": 1})
    store.put(state_id("a", "b:c"), {"is": 2})
    assert [store.get(state_id("a:b", "c")), store.get(state_id("a", "b:c"))] == [{"is": 1}, {"is": 2}]
    assert [info.conversation_id for info in store.list(user_id="a:b")] == ["c"]
    assert [info.user_id for info in store.list(conversation_id="b:c")] == ["a"]
    assert store.list(user_id="a", conversation_id="c") == []
    for user_id, conversation_id in (("", "c"), ("u", ""), ("u", "a\0b")):
        with pytest.raises(InvalidValueError):
            state_id(user_id, conversation_id)


@pytest.mark.parametrize(
    "wrong", ["", "chat:a", "chat:a:", "chat::b", "chat:a:b:c", "chat:a:b%", "chat:a:%3a", "x:a:b", None, 1]
)
def test_what_is_no_id_is_refused(store: StateStore, wrong: Any) -> None:
    with pytest.raises(InvalidValueError):
        store.get(wrong)
    with pytest.raises(InvalidValueError):
        store.put(wrong, {})


def test_versions_are_never_overwritten(store: StateStore, clock: list[int]) -> None:
    """GS-10, GS-13: each put is a version, with its node, times and size; the first one sets `created_at`."""
    given: dict[str, Any] = {"steps": [1]}
    assert store.put(ID, given, node="plan") == 1
    given["steps"].append(2)
    clock[0] += 5
    assert store.put(ID, given) == 2
    assert [store.get(ID, 1), store.get(ID, 2), store.get(ID)] == [{"steps": [1]}, {"steps": [1, 2]}, {"steps": [1, 2]}]
    newest, first = store.history(ID)
    assert (newest.version, newest.node, first.node, newest.stored_at - first.stored_at) == (2, None, "plan", 5)
    (info,) = store.list()
    assert (info.version, info.updated_at - info.created_at, info.size_bytes) == (2, 5, newest.size_bytes)
    assert [one.version for one in store.history(ID, limit=1)] == [2]
    assert [one.version for one in store.history(ID, before=2)] == [1]
    assert store.get(ID, 3) is None
    assert store.get(ID, 0) is None


def test_reading_changes_nothing(store: StateStore, clock: list[int]) -> None:
    """GS-11, as the source gets wrong: reading does not touch `updated_at`."""
    store.put(ID, {"a": 1})
    position, (before,) = store._stored._store.log.last_position(), store.list()  # pyright: ignore[reportPrivateUsage]
    clock[0] += 1000
    for read in (store.get, store.history, store.resume):
        read(ID)
    store.get_stats()
    assert store.list() == [before]
    assert store._stored._store.log.last_position() == position  # pyright: ignore[reportPrivateUsage]


def test_what_is_read_is_the_readers(store: StateStore) -> None:
    """GS-4: stored states never change."""
    store.put(ID, {"docs": [doc(1)]})
    store.get(ID)["docs"].append(doc(2))  # type: ignore[index]
    assert len(store.get(ID)["docs"]) == 1  # type: ignore[index]


def test_of_two_puts_that_expect_the_same_version_one_wins(store: StateStore) -> None:
    """Acceptance 11, by threads that decide at the same moment."""
    store.put(ID, {"by": "nobody"})

    def put(number: int) -> int | None:
        try:
            return store.put(ID, {"by": number}, expected_version=1)
        except ConflictError:
            return None

    assert sorted(together(8, put), key=str) == [2, *[None] * 7]
    assert len(store.history(ID, limit=20)) == 2


def test_puts_without_expectation_are_all_kept(store: StateStore) -> None:
    """GS-10: concurrent puts never lose a version silently."""
    together(8, lambda number: store.put(ID, {"by": number}))
    found = [store.get(ID, version) for version in range(1, 9)]
    assert sorted(state["by"] for state in found if state is not None) == list(range(8))


def test_concurrent_updates_all_count(ledger: chatledger.Ledger) -> None:
    """The reducers run on what is newest: no update is lost, whoever was faster."""
    store = StateStore(ledger, reducers={"steps": lambda old, new: (old or 0) + new})
    together(4, lambda _: [store.update(ID, {"steps": 1}, node="count") for _ in range(5)])
    assert (store.get(ID) or {})["steps"] == 20


def test_a_state_that_was_made_anew_is_another_one(ledger: chatledger.Ledger) -> None:
    """A reducer runs again where the state was deleted and made again meanwhile, with as many versions."""
    seen: list[int] = []

    def add(old: int | None, new: int) -> int:
        seen.append(old or 0)
        if len(seen) == 1:
            plain.delete(ID)
            plain.put(ID, {"steps": 100})
        return (old or 0) + new

    plain, store = StateStore(ledger), StateStore(ledger, reducers={"steps": add})
    plain.put(ID, {"steps": 5})

    store.update(ID, {"steps": 1}, node="node")
    assert seen == [5, 100]
    assert (store.get(ID) or {})["steps"] == 101


def test_expected_version_zero_means_there_is_none(store: StateStore) -> None:
    assert store.put(ID, {}, expected_version=0) == 1
    with pytest.raises(StateConflictError, match="version 1") as raised:
        store.put(ID, {}, expected_version=0)
    assert (raised.value.expected, raised.value.actual) == (0, 1)


def test_a_step_is_stored_as_what_changed(ledger: chatledger.Ledger, store: StateStore) -> None:
    """GS-30: unchanged fields, documents and messages are not written again, neither on the log nor in the index."""
    store.put(ID, {"docs": [doc(number, "long " * 300) for number in range(200)], "generated_text": "t" * 10_000})
    store.update(ID, {"docs": [doc(200, "n" * 600)]}, node="search")
    step = bodies(ledger)[-1]
    new = [piece.content.data for piece in step.pieces if isinstance(piece.content, Leaf)]
    new += [data for piece in step.pieces if isinstance(piece.content, Edited) for _, _, data in piece.content.edits]
    assert 600 < sum(map(len, new)) < 900
    assert len(msgspec.msgpack.encode(step)) < 2_000
    assert len((store.get(ID) or {})["docs"]) == 201


def test_a_step_reads_only_what_it_changes(ledger: chatledger.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """GS-30: the cost of a step does not depend on the fields that it leaves alone; observers get the whole state."""
    joined: list[bytes] = []
    join = serials.join

    def counted(digest: bytes, content_of: Callable[[bytes], Any]) -> Any:
        joined.append(digest)
        return join(digest, content_of)

    store = StateStore(ledger)
    store.put(ID, {"docs": [doc(number, "long " * 300) for number in range(50)], "options": {}, "tasks": {}})
    monkeypatch.setattr(stored_module, "join", counted)
    store.update(ID, {"tasks": {"tool_to_run": "search"}}, node="plan")
    assert len(joined) == 1  # tasks; there is no metadata yet
    store.on_state_change(lambda old, new, node, diff: None)
    store.update(ID, {"tasks": {"tool_to_run": "search"}}, node="plan")
    assert len(joined) == 5


@pytest.mark.soak
def test_many_turns_need_space_for_what_is_new(ledger: chatledger.Ledger) -> None:
    """NS-18 for states: n turns need O(n) bytes on the log, not O(n^2)."""
    store, messages = StateStore(ledger), list[Any]()
    for number in range(300):
        messages.append({"role": "user", "content": f"{number:04}" + "x" * 508})
        store.put(ID, {"messages": messages})
    written = sum(len(msgspec.msgpack.encode(body)) for body in bodies(ledger))
    assert written < 3 * 300 * 512
    for version in (1, 33, 250, 299, 300):
        assert (store.get(ID, version) or {})["messages"] == messages[:version]
    ledger.rebuild()
    assert (store.get(ID, 267) or {})["messages"] == messages[:267]


def test_a_state_larger_than_an_event(store: StateStore) -> None:
    """Values and lists that no event holds are spread over several."""
    state = {
        "text": "é" * 1_500_000,
        "list": [f"{number}" * 40 for number in range(30_000)],
        "numbers": [0.5] * 100_000,
    }
    store.put(ID, state)
    assert store.get(ID) == state


def test_a_state_that_is_too_large_is_refused(ledger: chatledger.Ledger) -> None:
    """GS-29: above the limit `PayloadTooLargeError`, and nothing is written."""
    store = StateStore(ledger, max_state_bytes=1_000)
    store.put(ID, {"text": "x" * 900})
    position = ledger.last_position()
    with pytest.raises(PayloadTooLargeError, match="the state") as raised:
        store.put(ID, {"text": "x" * 1_000})
    with pytest.raises(PayloadTooLargeError):
        store.update(ID, {"more": "x" * 100}, node="n")
    assert "ada" not in str(raised.value)
    assert ledger.last_position() == position


def test_excluded_fields_are_not_stored(ledger: chatledger.Ledger) -> None:
    """GS-21."""
    store = StateStore(ledger, exclude=["docs", "secret"])
    store.put(ID, {"docs": [doc(1)], "secret": "hunter2", "kept": 1})
    store.update(ID, {"secret": "hunter2", "kept": 2}, node="n")
    assert (store.get(ID) or {}).keys() == {"kept", "metadata"}
    assert "hunter2" not in json.dumps([recorded.to_dict() for recorded in ledger.history()], default=repr)


@pytest.mark.parametrize(
    "wrong", [{"a": (1,)}, {"a": float("nan")}, {"a": {1: 2}}, {"a": b""}, [], "text", {1: 2}], ids=repr
)
def test_what_is_not_json_is_refused(ledger: chatledger.Ledger, store: StateStore, wrong: Any) -> None:
    with pytest.raises(InvalidValueError):
        store.put(ID, wrong)
    with pytest.raises(InvalidValueError):
        store.update(ID, wrong, node="n")
    assert ledger.last_position() == 0


def test_unknown_fields_and_kinds_of_numbers_are_kept(store: StateStore) -> None:
    """GS-1: any other JSON state is stored by the same means."""
    state: dict[str, Any] = {"z": None, "a": [True, 1, 1.0, -(2**63), 2**64 - 1, "\0"], "": {"nested": [[], {}]}}
    store.put(ID, state)
    assert repr(store.get(ID)) == repr(state)


def test_a_run_that_stops_goes_on_at_the_next_node(store: StateStore) -> None:
    """GS-14: after node 6 of 10 the next is node 7; any version can be the start of a resumed run (GS-13)."""
    store.put(ID, initial_state("ada", "Where is Riga?"))
    start = store.resume(ID)
    assert start is not None
    assert (start.node, start.next, start.version) == (None, "node-1", 1)
    for node in NODES[:6]:
        store.update(ID, {"docs": [doc(NODES.index(node))]}, node=node)
    point, earlier = store.resume(ID), store.resume(ID, 4)
    assert point is not None
    assert earlier is not None
    assert (point.node, point.next, len(point.state["docs"])) == ("node-6", "node-7", 6)
    assert (earlier.node, earlier.next, len(earlier.state["docs"])) == ("node-3", "node-4", 3)
    assert store.update(ID, {"docs": [doc(99)]}, node="node-4", base_version=4).version == 8
    assert [one["id"] for one in (store.get(ID) or {})["docs"]] == ["d0", "d1", "d2", "d99"]
    assert [one.parent for one in store.history(ID, limit=2)] == [4, 6]


def test_the_end_node_has_no_next(store: StateStore) -> None:
    store.update(ID, {}, node=NODES[-1])
    point = store.resume(ID)
    assert point is not None
    assert (point.is_final, point.next, point.state["metadata"]["is_final_state"]) == (True, None, True)
    assert store.history(ID)[0].is_final
    assert store.resume(state_id("ada", "other")) is None


def test_a_function_can_say_which_node_is_next(ledger: chatledger.Ledger) -> None:
    store = StateStore(ledger, nodes=lambda node, state: f"{node}-{len(state['docs'])}")
    store.update(ID, {"docs": [doc(1)]}, node="search")
    assert getattr(store.resume(ID), "next", None) == "search-1"


def test_nodes_that_can_not_be(ledger: chatledger.Ledger, store: StateStore) -> None:
    store.update(ID, {}, node="unheard-of")
    with pytest.raises(InvalidValueError, match="unheard-of"):
        store.resume(ID)
    with pytest.raises(NotFoundError, match="no version 7"):
        store.update(ID, {}, node="n", base_version=7)
    with pytest.raises(InvalidValueError):
        store.update(ID, {}, node="")
    more: list[dict[str, Any]] = [
        {"checkpointing": "never"},
        {"exclude": "docs"},
        {"ttl_seconds": 0},
        {"queue_size": 0},
    ]
    for wrong in more:
        with pytest.raises(InvalidValueError):
            StateStore(ledger, **wrong)


def test_observers_see_what_is_stored(store: StateStore) -> None:
    """GS-17: told after each transition with copies; one that fails changes neither the state nor the run."""
    seen: list[Any] = []

    def watch(old: AgentState, new: AgentState, node: str, diff: Any) -> None:
        seen.append((len(old.get("docs", [])), len(new.get("docs", [])), node, diff, store.get(ID) == new))
        new["user_id"] = "changed"
        raise RuntimeError

    stop = store.on_state_change(watch)
    store.update(ID, {"docs": [doc(1)]}, node="search")
    stop()
    store.update(ID, {"docs": [doc(2)]}, node="search")
    assert seen == [(0, 1, "search", {"docs_count": {"from": 0, "to": 1}}, True)]
    assert "user_id" not in (store.get(ID) or {})


def test_observers_of_a_view_see_its_updates_only(store: StateStore) -> None:
    seen: list[tuple[str, str]] = []
    bob = store.for_identity("bob")
    bob.on_state_change(lambda old, new, node, diff: seen.append(("bob", node)))
    store.on_state_change(lambda old, new, node, diff: seen.append(("all", node)))
    store.for_identity("ada").update(ID, {}, node="hers")
    bob.update(state_id("bob", "trip"), {}, node="his")
    assert seen == [("all", "hers"), ("all", "his"), ("bob", "his")]


def test_a_state_that_does_not_live_on_is_absent(ledger: chatledger.Ledger, clock: list[int]) -> None:
    """Acceptance 10: however often it is read, it expires; cleanup counts and erases it, and says so by an event."""
    store, other = StateStore(ledger, ttl_seconds=1), StateStore(ledger)
    ledger.create_chat("trip", "ada")
    store.put(ID, {"text": "hunter2"})
    other.put(state_id("ada", "other"), {})
    for _ in range(4):
        clock[0] += 249
        assert store.get(ID) is not None
    clock[0] += 4
    assert (store.get(ID), store.get(ID, 1), store.history(ID), store.resume(ID)) == (None, None, [], None)
    assert [info.conversation_id for info in store.list()] == ["other"]
    assert store.get_stats()["total_checkpoints"] == 1
    clock[0] += 1000
    assert store.cleanup() == 1
    assert store.cleanup() == 0
    assert [recorded.type for recorded in ledger.history()] == ["chat_created", "version_put", "versions_deleted"]
    assert reasons(ledger) == ["expired"]
    assert ledger.get_chat("trip") is not None


def test_each_version_gives_a_state_more_time(ledger: chatledger.Ledger, clock: list[int]) -> None:
    store = StateStore(ledger, ttl_seconds=1)
    store.put(ID, {})
    clock[0] += 900
    store.put(ID, {})
    clock[0] += 900
    assert store.cleanup() == 0
    assert store.get(ID) == {}


def test_a_put_on_an_expired_state_begins_anew(ledger: chatledger.Ledger, clock: list[int]) -> None:
    store = StateStore(ledger, ttl_seconds=1)
    store.put(ID, {"docs": [doc(1, "gone " * 400)]})
    store.put(ID, {"docs": [doc(1, "gone " * 400)]})
    clock[0] += 1000
    assert store.put(ID, {"docs": [doc(1, "gone " * 400)]}, expected_version=0) == 1
    for _ in range(2):
        assert len(store.history(ID)) == 1
        assert (store.get(ID) or {})["docs"] == [doc(1, "gone " * 400)]
        ledger.rebuild()
    clock[0] += 1000
    assert store.update(ID, {"a": 1}, node="n").version == 1
    assert (store.get(ID) or {}).keys() == {"a", "metadata"}
    clock[0] += 1000
    assert not store.delete(ID)


def test_cleanup_erases_what_is_old(ledger: chatledger.Ledger, store: StateStore, clock: list[int]) -> None:
    """GS-28: by `updated_at`; of 250 states those that were not written since."""
    for number in range(250):
        store.put(state_id("ada", f"c{number}"), {})
    clock[0] += 10_000
    store.put(state_id("ada", "c7"), {})
    assert store.cleanup(timedelta(seconds=10)) == 0
    clock[0] += 1
    assert store.cleanup(10) == 249
    assert [info.conversation_id for info in store.list()] == ["c7"]
    assert set(reasons(ledger)) == {"too_old"}
    with pytest.raises(InvalidValueError):
        store.cleanup(-1)


def test_a_deleted_state_leaves_the_log(ledger: chatledger.Ledger, store: StateStore) -> None:
    store.put(ID, {"text": "hunter2"})
    assert store.delete(ID)
    assert not store.delete(ID)
    assert store.get(ID) is None
    (left,) = ledger.history()
    assert isinstance(left.body, VersionsDeleted)
    assert left.body.version_count == 1
    assert store.put(ID, {"again": 1}) == 1
    ledger.rebuild()
    assert store.get(ID) == {"again": 1}
    assert ledger.verify().event_count == 2


def test_with_a_chat_go_the_states_of_its_conversation(ledger: chatledger.Ledger, store: StateStore) -> None:
    """PS-13: those whose conversation id is the chat id; others stay, and so do later ones."""
    ledger.create_chat("trip", "ada")
    store.put(ID, {"text": "hunter2"})
    store.put(state_id("bob", "trip"), {"text": "hunter2"})
    store.put(state_id("ada", "trip2"), {})
    assert not ledger.delete_chat("trip", user_id="bob")
    assert len(store.list()) == 3
    assert ledger.delete_chat("trip")
    assert [info.id for info in store.list()] == [state_id("ada", "trip2")]
    store.put(ID, {})
    ledger.create_chat("other", "ada")
    ledger.delete_chat("other")
    assert len(store.list()) == 2


def test_statistics(store: StateStore, clock: list[int]) -> None:
    """GS-16."""
    assert store.get_stats()["oldest_checkpoint"] is None
    began = clock[0]
    store.put(ID, {"a": 1})
    store.put(ID, {"a": 1})
    clock[0] += 7
    store.put(state_id("bob", "trip"), {"a": 1, "bc": "d"})
    assert store.get_stats() == {
        "total_checkpoints": 3,
        "oldest_checkpoint": began,
        "newest_checkpoint": began + 7,
        "average_state_size": (2 + 6) / 2,
        "checkpoints_by_user": {"ada": 2, "bob": 1},
    }
    own = store.for_identity("bob").get_stats()
    assert (own["total_checkpoints"], own["checkpoints_by_user"]) == (1, None)
    assert store.for_identity("root", is_admin=True).get_stats() == store.get_stats()


FORBIDDEN: dict[str, tuple[str, Callable[[StateStore], Any]]] = {
    "get": ("access", lambda store: store.get(ID)),
    "history": ("access", lambda store: store.history(ID)),
    "resume": ("access", lambda store: store.resume(ID)),
    "put": ("modify", lambda store: store.put(ID, {"mine": True})),
    "update": ("modify", lambda store: store.update(ID, {"mine": True}, node="n")),
    "delete": ("delete", lambda store: store.delete(ID)),
}
COMMON: dict[str, Callable[[StateStore], Any]] = {
    "list": lambda store: store.list(),
    "list_part": lambda store: store.list_part(),
    "as_of": lambda store: store.as_of(0),
    "get_stats": lambda store: store.get_stats(),
    "cleanup": lambda store: store.cleanup(),
    "flush": lambda store: store.flush(),
    "on_state_change": lambda store: store.on_state_change(print),
}


@pytest.mark.parametrize("name", FORBIDDEN)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_foreign_state_is_refused_by_its_id(store: StateStore, name: str, *, is_there: bool) -> None:
    """Acceptance 7, GS-23: whether or not the state exists, by the kind of access; it stays as it is."""
    if is_there:
        store.put(ID, {"hers": True})
    kind, call = FORBIDDEN[name]
    with pytest.raises(AccessDeniedError, match=f"may not {kind} state") as raised:
        call(store.for_identity("bob"))
    assert "ada" not in str(raised.value)
    assert store.get(ID) == ({"hers": True} if is_there else None)


@pytest.mark.parametrize("name", [*FORBIDDEN, *COMMON])
@pytest.mark.parametrize("nobody", [None, ""])
def test_without_an_identity_every_call_is_refused(store: StateStore, name: str, nobody: str | None) -> None:
    """Acceptance 7, GS-22: as the source gets wrong, for whom a missing identity is a permission."""
    store.put(ID, {"hers": True})
    call = COMMON.get(name) or FORBIDDEN[name][1]
    for is_admin in (False, True):
        with pytest.raises(AccessDeniedError, match="without an identity"):
            call(store.for_identity(nobody, is_admin=is_admin))
    assert store.get(ID) == {"hers": True}


def test_every_public_method_is_guarded() -> None:
    """A new one needs a place in the tables above."""
    public = {name for name, member in vars(StateStore).items() if callable(member) and not name.startswith("_")}
    assert public - {"close", "for_identity"} == FORBIDDEN.keys() | COMMON.keys()


def test_a_user_sees_what_is_theirs(store: StateStore) -> None:
    """GS-22, GS-23: listings omit what is foreign, an admin sees all, and a view of a view shows never more."""
    store.put(ID, {"hers": True})
    view, admin = store.for_identity("bob"), store.for_identity("root", is_admin=True)
    view.put(state_id("bob", "trip"), {"his": True})
    assert [info.user_id for info in view.list()] == ["bob"]
    assert view.list(user_id="ada") == view.list_part(user_id="ada").states == []
    assert view.list_part().states == view.list()
    assert [info.user_id for info in view.list(conversation_id="trip")] == ["bob"]
    assert admin.get(ID) == {"hers": True}
    assert len(admin.list()) == len(admin.list_part().states) == 2
    with pytest.raises(AccessDeniedError):
        view.for_identity("root", is_admin=True).list()
    assert admin.for_identity("bob").list() == view.list()
    assert (view.cleanup(), store.cleanup()) == (0, 0)


def test_cleanup_of_a_user_spares_others(ledger: chatledger.Ledger, clock: list[int]) -> None:
    store = StateStore(ledger, ttl_seconds=1)
    for user_id in ("ada", "bob"):
        store.put(state_id(user_id, "trip"), {})
    clock[0] += 1000
    assert store.for_identity("bob").cleanup() == 1
    assert store.cleanup() == 1


def test_the_owner_never_changes(store: StateStore) -> None:
    """GS-10, as the source gets wrong: a state of another user does not come under the owner of the id."""
    for call in (lambda: store.put(ID, {"user_id": "bob"}), lambda: store.update(ID, {"user_id": "bob"}, node="n")):
        with pytest.raises(AccessDeniedError, match="modify"):
            call()
    assert store.get(ID) is None
    store.put(ID, {"user_id": "ada"})
    store.put(ID, {"user_id": None})


def test_a_ledger_of_a_user_has_a_store_of_that_user(ledger: chatledger.Ledger, store: StateStore) -> None:
    store.put(ID, {"hers": True})
    with ledger.for_user("bob") as limited:
        own = StateStore(limited)
        with pytest.raises(AccessDeniedError):
            own.get(ID)
        own.put(state_id("bob", "trip"), {})
        assert [info.user_id for info in own.list()] == ["bob"]
    with pytest.raises(LedgerClosedError):
        own.list()


def test_histories_of_users_have_their_states(ledger: chatledger.Ledger, store: StateStore) -> None:
    store.put(ID, {"text": random.Random(1).randbytes(1_500_000).hex()})
    store.put(state_id("bob", "trip"), {})
    types = [recorded.type for recorded in ledger.history(user_id="ada")]
    assert (set(types[:-1]), types[-1]) == ({"version_content_put"}, "version_put")
    assert [recorded.type for recorded in ledger.for_user("bob").history()] == ["version_put"]
    assert [recorded.type for recorded in ledger.for_user("eve").history()] == []
    store.delete(ID)
    assert [recorded.type for recorded in ledger.history(user_id="bob")] == ["version_put"]


def test_no_log_line_and_no_subject_tells_of_users_or_content(
    ledger: chatledger.Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """Acceptance 12, GS-20: a full run at debug level, with failures; the records are searched with all they carry."""
    caplog.set_level(logging.DEBUG)
    user_id, secret = "user-4711", "hunter2"
    key = state_id(user_id, "trip")

    def fail(*_: Any) -> None:
        raise RuntimeError(secret)

    errors: list[Exception] = []
    with StateStore(ledger, ttl_seconds=100, checkpointing="background", max_state_bytes=10_000) as store:
        store.on_state_change(fail)
        store.put(key, initial_state(user_id, secret))
        changes: dict[str, Any] = {
            "docs": [doc(1, secret)],
            "tasks": {"tool_results": [{"tool_name": secret, "input": secret, "output": secret}]},
            "generated_text": secret,
            "metadata": {"errors": [{"node": secret, "message": secret, "timestamp": 1}]},
        }
        for node in NODES:
            store.update(key, changes, node=node)
        attempts: list[Callable[[], Any]] = [
            lambda: store.put(key, {"text": secret * 10_000}),
            lambda: store.put(key, {"text": secret}, expected_version=1),
            lambda: store.put(key, {"user_id": secret}),
            lambda: store.put(key, {"text": (secret,)}),
            lambda: store.update(key, {"docs": [{"title": secret}]}, node="n"),
            lambda: store.for_identity(secret).get(key),
            lambda: store.update(key, {}, node="n", base_version=99),
        ]
        for attempt in attempts:
            with pytest.raises(chatledger.ChatledgerError) as raised:
                attempt()
            errors.append(raised.value)
    logged = [repr(record.__dict__) for record in caplog.records]
    assert [record.getMessage() for record in caplog.records].count("State transition") == len(NODES)
    streams = [recorded.chat_id for recorded in ledger.history()]
    for text in (*logged, *streams, *map(str, errors)):
        assert user_id not in text
        assert secret not in text


ROWS = ("version", "field", "element")


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("place", [0, 3, -2])
def test_one_flipped_byte_is_noticed(ledger: chatledger.Ledger, store: StateStore, row: str, place: int) -> None:
    """Acceptance 5, as the source gets wrong: an error that says where, not None, and the version before is readable."""
    store.put(ID, {"text": "first" * 300, "list": ["a" * 300] * 5})
    store.put(ID, {"text": "second" * 300, "list": ["a" * 300] * 5 + ["b" * 300]})
    before, sound = store.get(ID, 1), store.get(ID, 2)
    damage(store, row, place)
    for version in (None, 2):
        with pytest.raises(CorruptStateError, match="at version 2") as raised:
            store.get(ID, version)
        assert (raised.value.chat_id, raised.value.version) == (ID, 2)
        assert "second" not in str(raised.value)
        assert "ada" not in str(raised.value)
    assert store.get(ID, 1) == before
    point = store.resume(ID, 1)
    assert point is not None
    ledger.rebuild()
    assert store.get(ID, 2) == sound


def test_a_put_repairs_what_it_has(store: StateStore) -> None:
    """The values of a new version are stored again where those of an earlier one are damaged."""
    store.put(ID, {"text": "first" * 300, "list": ["a" * 300] * 5})
    state = {"text": "second" * 300, "list": ["a" * 300] * 5 + ["b" * 300]}
    store.put(ID, state)
    for row in ("version", "field"):
        damage(store, row, 3)
    assert store.put(ID, state) == 3
    assert store.get(ID) == state


def test_a_missing_piece_is_noticed(store: StateStore) -> None:
    store.put(ID, {"text": "first" * 300})
    damage(store, "piece", None)
    with pytest.raises(CorruptStateError, match="at version 1"):
        store.get(ID)


def test_a_damaged_record_is_noticed(ledger: chatledger.Ledger, store: StateStore) -> None:
    """What lists are made of. Versions can be read by their number."""
    store.put(ID, {"a": 1})
    damage(store, "record", 5)
    for call in (lambda: store.get(ID), store.list, lambda: store.put(ID, {}), lambda: store.history(ID)):
        with pytest.raises(CorruptStateError):
            call()
    assert store.get(ID, 1) == {"a": 1}
    ledger.rebuild()
    assert store.get(ID) == {"a": 1}


KINDS: Final = {"record": 1, "version": 0, "element": 4, "field": 4, "piece": 4}
MARKS: Final = {"field": b"secondsecond", "element": b"b" * 300}


def damage(store: StateStore, kind: str, place: int | None) -> None:
    """Flip a byte of what version 2 alone has: its row, the piece of its text, or its new element; None removes a row."""
    live = store._stored._store.whole("repair").index._live  # pyright: ignore[reportPrivateUsage]
    assert live is not None
    table = live.tables.version_rows if kind == "version" else live.tables.versioned

    def change(txn: Any) -> None:
        rows = [(bytes(key), bytearray(row)) for key, row in txn.cursor(table) if key[8] == KINDS[kind]]
        key, row = [one for one in rows if MARKS.get(kind, b"") in one[1]][-1]
        if place is None:
            txn.delete(key, db=table)
        else:
            row[place] ^= 1
            txn.put(key, bytes(row), db=table)

    live.update(change)


@pytest.mark.parametrize(
    "value",
    [
        {f"key {number}": number for number in range(40_000)},
        [{"row": number} for number in range(53_000)],
        "x" * 2_000_000,
    ],
    ids=["keys", "rows", "text"],
)
def test_no_shape_is_refused(ledger: chatledger.Ledger, store: StateStore, value: Any) -> None:
    """And a version takes what it changed."""
    changed: Any = (
        {**value, "key 7": 0}
        if isinstance(value, dict)
        else [*value[:70], 0, *value[70:]]
        if isinstance(value, list)
        else "y" + value
    )
    store.put(ID, {"value": value})
    store.put(ID, {"value": changed})
    assert len(msgspec.msgpack.encode(bodies(ledger)[-1])) < 4_000
    for number, expected in ((1, value), (2, changed)):
        assert store.get(ID, version=number) == {"value": expected}
    ledger.rebuild()
    assert store.get(ID) == {"value": changed}

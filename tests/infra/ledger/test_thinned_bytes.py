"""Rules about versions, to the last byte: what they take is in no file, what stays reads as before, and everything verifies."""

import contextlib
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from tests.support.alchemy_world import new_alchemy_location
from tests.support.files_in_clear import files_with, in_clear
from tests.support.jetstream_world import TOKEN, new_name, running
from tests.support.soak import IS_SOAK

import chatledger
from chatledger import Ledger
from chatledger.admin import restore
from chatledger.domain.retention import RetentionKind
from chatledger.errors import HeldError
from chatledger.graph_state import StateStore
from chatledger.infra.ledger.items.item_store import ItemStore
from chatledger.infra.ledger.threads import Threads
from chatledger.langgraph import LedgerSaver

LATE = 2**42
STATE = "chat:ada:trip"
NAMESPACE = ("memories",)
WORD = "kohlrabi{}z"


def secret(number: int) -> str:
    return WORD.format(number)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with chatledger.open(tmp_path / "ledger") as ledger:
        kinds: tuple[RetentionKind, ...] = ("thread", "state", "item")
        for kind in kinds:
            ledger.set_retention(kind, kind=kind, keep_days=1, erases="versions")
        yield ledger


def put_checkpoint(ledger: Ledger, config: Any, messages: list[str], number: int, last: str) -> Any:
    """Put a checkpoint with messages, a value of its own, and the write of a task that led to it."""
    checkpoint: Any = empty_checkpoint()
    checkpoint["channel_values"] = {"messages": [HumanMessage(text, id=text) for text in messages], "last": last}
    checkpoint["channel_versions"] = {"messages": number, "last": number}
    metadata: Any = {"source": "loop", "step": number, "parents": {}}
    saver = LedgerSaver(ledger)
    config = saver.put(config, checkpoint, metadata, {"messages": number, "last": number})
    saver.put_writes(config, [("last", f"written {last}")], f"task {number}")
    return config


def fill_thread(ledger: Ledger, count: int, thread_id: str = "trip", first: int = 0, config: Any = None) -> Any:
    config = config or {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    for number in range(first, first + count):
        messages = [f"said {at}" for at in range(number + 1)]
        config = put_checkpoint(ledger, config, messages, number, secret(number))
    return config


def answers(ledger: Ledger) -> Any:
    """Return what everything reads as."""
    thread: Any = {"configurable": {"thread_id": "trip"}}
    return (
        ledger.export_thread("trip"),
        [each.checkpoint for each in LedgerSaver(ledger).list(thread)],
        [(hit.message.text, hit.message.created_at) for hit in ledger.search("said", limit=50)],
        ledger.export_state(STATE),
        ItemStore(ledger.for_user("ada")).history(NAMESPACE, "card"),
        [event.to_dict() for event in ledger.history()],
    )


def test_what_earlier_versions_had_is_in_no_file(ledger: Ledger, tmp_path: Path) -> None:
    config = fill_thread(ledger, 6)
    items = ItemStore(ledger.for_user("ada"))
    for number in range(4):
        StateStore(ledger).put(STATE, {"step": number, "own": secret(100 + number), "shared": "stays here"})
        items.put(NAMESPACE, "card", {"own": secret(200 + number)})
    for again in range(2):
        last = 5 + again
        ledger.sweep(now=LATE)
        ledger.wait_erased()
        gone = [*range(last), *range(100, 103), *range(200, 203)]
        assert [number for number in gone if files_with(tmp_path, secret(number).encode())] == []
        found = ledger.verify()
        assert (found.redaction_pending, found.overdue_count, found.broken_holds) == ((), 0, ())
        before = answers(ledger)
        ledger.rebuild()
        assert before == answers(ledger)
        ledger.verify()
        newest = LedgerSaver(ledger).get_tuple(config)
        assert newest is not None
        assert newest.checkpoint["channel_values"]["last"] == secret(last)
        assert [each.content for each in newest.checkpoint["channel_values"]["messages"]] == [
            f"said {at}" for at in range(last + 1)
        ]
        state = StateStore(ledger).get(STATE)
        assert state is not None
        assert (state["own"], state["shared"]) == (secret(103), "stays here")
        config = fill_thread(ledger, 1, first=6, config=config)


KINDS = ["memory", "directory", "sqlite", "nats", "sqlite+pysqlite"]
SERVERS = [pytest.param(kind, marks=pytest.mark.guard) for kind in ("postgresql+psycopg", "mysql+pymysql")]


@pytest.mark.parametrize("kind", [*KINDS, *SERVERS])
def test_on_every_kind_of_log(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """No record has what went; a database of its own may have it on its disk, as the page says."""
    with contextlib.ExitStack() as stack:
        location = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/log.db"}.get(kind, str(tmp_path / "data"))
        if "+" in kind:
            location = new_alchemy_location(request, kind, tmp_path)()
        elif kind == "nats":
            server = stack.enter_context(running(tmp_path / "server"))
            location = f"nats://{TOKEN}@127.0.0.1:{server.port}/{new_name()}"
        places: dict[str, Any] = {} if kind == "memory" else {"index": tmp_path / "index"}
        ledger = stack.enter_context(chatledger.open(location, create=kind == "nats", **places))
        ledger.set_retention("state", kind="state", keep_days=1, erases="versions")
        text = "".join(random.Random(3).choices("abcdefgh ", k=50_000))
        for number in range(3):
            StateStore(ledger).put(STATE, {"own": secret(number), "text": f"{secret(10 + number)}{text}"})
        ledger.sweep(now=LATE)
        ledger.wait_erased()
        records = b"".join(in_clear(record.state) for record in ledger._store.whole("verify").log.stored(0))
        assert [number for number in (0, 1, 2, 10, 11, 12) if secret(number).encode() in records] == [2, 12]
        if "+" not in kind or "sqlite" in kind:
            assert files_with(tmp_path, secret(0).encode()) == files_with(tmp_path, secret(11).encode()) == []
        state = StateStore(ledger).get(STATE)
        assert state is not None
        assert (state["own"], state["text"]) == (secret(2), f"{secret(12)}{text}")
        assert ledger.verify().redaction_pending == ()


STEPS = (
    *("put", "put", "put", "put", "put back", "fork", "large", "large", "writes", "sweep", "sweep", "sweep some"),
    *("prune", "copy", "delete copy", "rebuild", "backup", "move", "hold", "export"),
)
PART = 40_000


class Story:
    """
    Threads and states of which versions lose their content, and what their living versions should read as.

    Each version has a word of its own, a list that grows, a long text of which a part changes, and what later ones make a delta channel from.
    """

    def __init__(self, folder: Path, location: str) -> None:
        self.folder, self.template, self.moves, self.count = folder, location, 0, 0
        self.dice = random.Random(5)
        self.text = "".join(self.dice.choices("abcdefgh ", k=3 * PART))
        self.living: dict[str, dict[str, Any]] = {}
        """By threads, the values of their checkpoints by id, in their order."""
        self.states: list[tuple[int, Any]] = []
        self.ledger = self.open()

    def open(self) -> Ledger:
        place = self.folder / str(self.moves)
        place.mkdir(exist_ok=True)
        return chatledger.open(self.template.format(place), erase="soon")

    def values(self, thread_id: str) -> dict[str, Any]:
        before = [*self.living.get(thread_id, {}).values()]
        self.count += 1
        values = dict(before[-1]) if before else {"messages": [], "text": ""}
        values.pop("delta", None)
        messages = [*values["messages"], f"said {secret(self.count)}"][-5:]
        return {**values, "messages": messages, "last": secret(self.count + 10_000)}

    def put(self, thread_id: str, values: dict[str, Any], parent: str | None = None) -> None:
        known = self.living.setdefault(thread_id, {})
        parent = parent or next(reversed(known), None)
        config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
        if parent is not None:
            config["configurable"]["checkpoint_id"] = parent
        checkpoint: Any = {**empty_checkpoint(), "channel_values": {**values}}
        versions: Any = dict.fromkeys(values, self.count)
        checkpoint["channel_versions"] = versions
        metadata: Any = {"source": "loop", "step": self.count, "parents": {}}
        saver = LedgerSaver(self.ledger)
        if (
            parent is not None and self.count % 3
        ):  # made from the writes of all versions since the last that has a value
            metadata["counters_since_delta_snapshot"] = {"delta": [1, 1]}
            saver.put_writes(config, [("delta", f"delta {self.count}")], f"delta {self.count}")
        else:
            checkpoint["channel_values"]["delta"] = values["delta"] = f"delta {self.count}"
        saver.put(config, checkpoint, metadata, versions)
        known[checkpoint["id"]] = values
        stored = StateStore(self.ledger).put(STATE, {"step": self.count, **values})
        self.states.append((stored, {"step": self.count, **values}))

    def step(self, name: str, number: int) -> None:
        threads = [*self.living]
        thread_id = threads[number % len(threads)]
        known = self.living[thread_id]
        match name:
            case "put":
                self.put(thread_id, self.values(thread_id))
            case "put back" if known:  # the values of an earlier version once more
                self.count += 1
                earlier = {**list(known.values())[number % len(known)]}
                earlier.pop("delta", None)
                self.put(thread_id, earlier)
            case "fork" if known:
                self.put(thread_id, self.values(thread_id), [*known][number % len(known)])
            case "large":
                at = self.dice.randrange(len(self.text) - 100)
                word = secret(self.count + 20_001)
                values = self.values(thread_id)
                before = values["text"] or self.text
                self.put(thread_id, {**values, "text": before[:at] + word + before[at + len(word) :]})
            case "writes" if known:
                config: Any = {
                    "configurable": {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": [*known][-1]}
                }
                self.count += 1
                LedgerSaver(self.ledger).put_writes(config, [("note", secret(self.count + 30_000))], f"task {number}")
            case "sweep" | "sweep some":
                self.sweep(1 + number % 3, thread_id if name == "sweep some" else None)
            case "prune" if known:
                LedgerSaver(self.ledger).prune([thread_id])
                self.living[thread_id] = {next(reversed(known)): known[next(reversed(known))]}
            case "copy" if known and f"copy {number}" not in threads:
                Threads(self.ledger).copy(thread_id, f"copy {number}")
                self.living[f"copy {number}"] = {**known}
            case "delete copy" if thread_id != "trip":
                Threads(self.ledger).delete(thread_id)
                del self.living[thread_id]
            case "rebuild":
                self.ledger.rebuild()
            case "backup":
                self.ledger.backup(self.folder / "backup")
            case "move":
                self.move()
            case "hold":
                self.ledger.hold("thread", thread_id)
                with pytest.raises(HeldError):
                    LedgerSaver(self.ledger).delete_thread(thread_id)
                before = self.read(thread_id)
                self.ledger.set_retention("thread", kind="thread", keep_days=1, erases="versions")
                self.ledger.sweep(now=LATE)
                self.ledger.remove_retention("thread")
                assert self.read(thread_id) == before
                for other in self.living.keys() - {thread_id}:
                    self.thin(other, 1)
                self.ledger.release("thread", thread_id)
            case _:
                pass

    def sweep(self, keep_last: int, _thread_id: str | None) -> None:
        self.ledger.set_retention("thread", kind="thread", keep_days=1, keep_last=keep_last, erases="versions")
        self.ledger.set_retention("state", kind="state", keep_days=1, keep_last=keep_last, erases="versions")
        self.ledger.sweep(now=LATE)
        self.ledger.remove_retention("thread")
        self.ledger.remove_retention("state")
        for thread_id in self.living:
            self.thin(thread_id, keep_last)
        self.states = self.states[-keep_last:]

    def thin(self, thread_id: str, keep_last: int) -> None:
        newest = sorted(self.living[thread_id])[-keep_last:]
        self.living[thread_id] = {each: values for each, values in self.living[thread_id].items() if each in newest}

    def move(self) -> None:
        self.ledger.backup(self.folder / "backup")
        self.ledger.close()
        shutil.rmtree(self.folder / str(self.moves))
        self.moves += 1
        (self.folder / str(self.moves)).mkdir()
        restore(self.folder / "backup", self.template.format(self.folder / str(self.moves)))
        self.ledger = self.open()

    def read(self, thread_id: str) -> dict[str, Any]:
        config: Any = {"configurable": {"thread_id": thread_id}}
        found = reversed(list(LedgerSaver(self.ledger).list(config)))
        return {each.checkpoint["id"]: each.checkpoint["channel_values"] for each in found}

    def check(self) -> None:
        """All that stays reads as it did, before and behind a rebuild; what went is in no file."""
        self.ledger.wait_erased()
        store, exported = StateStore(self.ledger), [self.ledger.export_thread(each) for each in self.living]
        for _ in range(2):
            assert exported == [self.ledger.export_thread(each) for each in self.living]
            for thread_id, versions in self.living.items():
                assert self.read(thread_id) == versions
            for version, values in self.states:
                state = store.get(STATE, version)
                assert state is not None
                assert {name: state[name] for name in values} == values
            found = self.ledger.verify()
            assert (found.redaction_pending, found.broken_holds) == ((), ())
            self.ledger.rebuild()
            store = StateStore(self.ledger)

    def check_bytes(self) -> None:
        """After a sweep of all, no file has a word of what is not there any more, nor of what was pruned before."""
        for thread_id in self.living:
            self.put(thread_id, self.values(thread_id))
        self.sweep(1, None)
        self.check()
        self.ledger.backup(self.folder / "backup")
        self.ledger.close()
        stays = repr((self.living, self.states))
        for number in range(1, self.count + 1):
            for kind in (0, 10_000, 20_000):
                word = secret(number + kind)
                assert word in stays or files_with(self.folder, word.encode()) == [], word


@pytest.mark.guard
@pytest.mark.timeout(1200)
@settings(max_examples=200 if IS_SOAK else 12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), min_size=4, max_size=18),
    is_directory=st.booleans() if IS_SOAK else st.sampled_from([False]),
)
def test_any_order(steps: list[tuple[str, int]], *, is_directory: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = Story(Path(folder), "{}/data" if is_directory else "sqlite:///{}/log.db")
        try:
            story.put("trip", story.values("trip"))
            for name, number in steps:
                story.step(name, number)
            story.check()
            story.check_bytes()
        finally:
            story.ledger.close()

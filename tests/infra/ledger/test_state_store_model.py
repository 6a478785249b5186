"""Random operations on a store of states against a model of dictionaries, in every way of checkpointing."""

import copy
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.soak import examples

import chatledger
from chatledger.domain.errors import StateConflictError
from chatledger.graph_state import StateStore, append_messages, reduce_state, state_id

IDS = [state_id("ada", "a"), state_id("ada", "b"), state_id("b:b", "a")]
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, 1, 1.5, "é", "x" * 300, "y" * 1500, "z" * 5000]),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.sampled_from("pqr"), inner, max_size=3),
    max_leaves=10,
)
STATES = st.dictionaries(st.sampled_from(["", "docs-like", "c", "d"]), VALUES, max_size=4)
MESSAGES: st.SearchStrategy[list[Any]] = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 40).map(lambda number: f"m{number}"),
            "text": st.sampled_from(["w", "w" * 100, "w" * 400]),
        }
    ),
    min_size=1,
    max_size=15,
)
REDUCERS = {"messages": append_messages}


class StateStoreMachine(RuleBasedStateMachine):
    """Versions by state, as dictionaries; the store must say the same of them, also after a rebuild of the index."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = chatledger.open("memory:")
        self.store = StateStore(self.ledger, reducers=REDUCERS)
        self.versions: dict[str, list[tuple[dict[str, Any], int | None]]] = {key: [] for key in IDS}
        self.moments: list[tuple[int, dict[str, int]]] = []

    @rule(key=st.sampled_from(IDS), state=STATES, drift=st.sampled_from([None, 0, 0, 1]))
    def put(self, key: str, state: dict[str, Any], drift: int | None) -> None:
        newest = len(self.versions[key])
        expected = None if drift is None else newest + drift
        if drift:
            with pytest.raises(StateConflictError):
                self.store.put(key, state, expected_version=expected)
            return
        assert self.store.put(key, state, expected_version=expected) == newest + 1
        self.versions[key].append((copy.deepcopy(state), None))

    @rule(key=st.sampled_from(IDS), messages=MESSAGES, more=STATES)
    def update(self, key: str, messages: list[Any], more: dict[str, Any]) -> None:
        self._update(key, {**more, "messages": messages}, base=len(self.versions[key]) or None)

    @precondition(lambda self: self.versions[IDS[0]])
    @rule(data=st.data(), more=STATES)
    def go_on_from_an_earlier_version(self, data: st.DataObject, more: dict[str, Any]) -> None:
        base = data.draw(st.integers(1, len(self.versions[IDS[0]])))
        self._update(IDS[0], more, base=base, base_version=base)

    def _update(self, key: str, changes: dict[str, Any], *, base: int | None, **options: Any) -> None:
        before = {} if base is None else self.versions[key][base - 1][0]
        after = dict(reduce_state(copy.deepcopy(before), copy.deepcopy(changes), reducers=REDUCERS))
        after["metadata"] = {"current_node": "n", "is_final_state": False}
        assert self.store.update(key, changes, node="n", **options).version == len(self.versions[key]) + 1
        self.versions[key].append((after, base))

    @rule(key=st.sampled_from(IDS))
    def delete(self, key: str) -> None:
        assert self.store.delete(key) == bool(self.versions[key])
        self.versions[key].clear()
        for _, counts in self.moments:
            counts[key] = 0

    @rule()
    def note_the_moment(self) -> None:
        self.moments.append((self.ledger.position, {key: len(versions) for key, versions in self.versions.items()}))

    @precondition(lambda self: self.moments)
    @rule(data=st.data())
    def look_back(self, data: st.DataObject) -> None:
        position, counts = data.draw(st.sampled_from(self.moments))
        view = self.store.as_of(position)
        for key, count in counts.items():
            assert view.get_version(key) == count
            assert repr(view.get(key)) == repr(self.versions[key][count - 1][0] if count else None)
            assert [one.version for one in view.history(key, limit=2)] == [*range(count, 0, -1)][:2]
        assert {info.id: info.version for info in view.list()} == {key: count for key, count in counts.items() if count}

    @rule()
    def rebuild(self) -> None:
        self.ledger.rebuild()

    @rule()
    def verify(self) -> None:
        """The index equals the fold of the log."""
        self.ledger.verify()

    @invariant()
    def every_version_is_there(self) -> None:
        for key, versions in self.versions.items():
            assert self.store.get(key) == (versions[-1][0] if versions else None)
            for number, (state, _) in enumerate(versions, 1):
                assert repr(self.store.get(key, number)) == repr(state)
            history = self.store.history(key, limit=1000)
            assert [(one.version, one.parent) for one in reversed(history)] == [
                (number, parent) for number, (_, parent) in enumerate(versions, 1)
            ]
        listed = {info.id: info.version for info in self.store.list()}
        assert listed == {key: len(versions) for key, versions in self.versions.items() if versions}

    @invariant()
    def nothing_is_left(self) -> None:
        """Check that what is deleted takes no room."""
        if not any(self.versions.values()):
            with self.ledger._store.snapshot() as snapshot:  # pyright: ignore[reportPrivateUsage]
                for table in (snapshot.tables.states, snapshot.tables.state_order):
                    assert snapshot.txn.stat(table)["entries"] == 0

    def teardown(self) -> None:
        self.ledger.close()


TestStateStore = StateStoreMachine.TestCase
TestStateStore.settings = settings(
    max_examples=examples(8), stateful_step_count=20, deadline=None, phases=[Phase.generate]
)


class KeptMachine(RuleBasedStateMachine):
    """Where updates are kept in memory: `get` has all of them, and the stored versions those that are checkpoints."""

    checkpointing: Any = "significant"

    def __init__(self) -> None:
        super().__init__()
        self.ledger = chatledger.open("memory:")
        self.store = StateStore(self.ledger, reducers=REDUCERS, checkpointing=self.checkpointing, queue_size=3)
        self.states: dict[str, dict[str, Any]] = {}
        self.stored: dict[str, list[dict[str, Any]]] = {key: [] for key in IDS}

    @rule(
        key=st.sampled_from(IDS),
        messages=MESSAGES,
        documents=st.integers(0, 3),
        is_end=st.sampled_from([False, False, True]),
        is_interrupt=st.sampled_from([False, False, True]),
    )
    def update(self, key: str, messages: list[Any], documents: int, *, is_end: bool, is_interrupt: bool) -> None:
        changes = {"messages": messages, "docs": [{"id": f"d{number}"} for number in range(documents)]}
        before = self.states.get(key, {})
        is_significant = len(before.get("docs", [])) != documents or is_end or is_interrupt
        state = dict(reduce_state(before, copy.deepcopy(changes), reducers=REDUCERS))
        state["metadata"] = {"current_node": "n", "is_final_state": is_end}
        self.states[key] = state
        step = self.store.update(key, changes, node="n", is_end=is_end, is_interrupt=is_interrupt)
        assert step.is_checkpoint == (is_significant or self.checkpointing == "background")
        if step.is_checkpoint:
            self.stored[key].append(state)
        assert step.version == len(self.stored[key])

    @rule(key=st.sampled_from(IDS), state=STATES)
    def put(self, key: str, state: dict[str, Any]) -> None:
        self.stored[key].append(state)
        self.states[key] = state
        assert self.store.put(key, state) == len(self.stored[key])

    @rule(key=st.sampled_from(IDS))
    def delete(self, key: str) -> None:
        self.store.delete(key)
        self.states.pop(key, None)
        self.stored[key].clear()

    @rule()
    def flush(self) -> None:
        self.store.flush()
        for key, state in self.states.items():
            if not self.stored[key] or self.stored[key][-1] is not state:
                self.stored[key].append(state)

    @invariant()
    def what_is_read_is_newest(self) -> None:
        for key in IDS:
            assert self.store.get(key) == self.states.get(key)
            assert [self.store.get(key, one.version) for one in reversed(self.store.history(key, limit=99))] == (
                self.stored[key]
            )

    def teardown(self) -> None:
        self.store.close()
        self.flush_is_not_needed()
        self.ledger.close()

    def flush_is_not_needed(self) -> None:
        """Closing has stored everything."""
        other = StateStore(self.ledger)
        assert {key: other.get(key) for key in self.states} == self.states


class BackgroundMachine(KeptMachine):
    """The same by a thread of the store."""

    checkpointing = "background"


TestSignificant = KeptMachine.TestCase
TestSignificant.settings = settings(
    max_examples=examples(10), stateful_step_count=20, deadline=None, phases=[Phase.generate]
)
TestBackground = BackgroundMachine.TestCase
TestBackground.settings = TestSignificant.settings

"""Random operations on stores of items against a model of dictionaries: now, as of every earlier moment, and after a rebuild."""

import copy
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.soak import examples

import chatledger
from chatledger.domain.errors import StateConflictError
from chatledger.items import ItemPut, ItemReader, ItemStore

Key = tuple[tuple[str, ...], str]
Contents = dict[Key, tuple[int, dict[str, Any]]]
"""Version and value of each item."""

NAMESPACES = [("memories",), ("memories", "ada"), ("memories", "ada/b"), ("memories", "ada", "b"), ("a:b", "%")]
KEYS = [(namespace, key) for namespace in NAMESPACES for key in ("food", "x/y:z")]
VALUES = st.dictionaries(
    st.sampled_from(["text", "", "n"]), st.sampled_from([None, 1, "é", "x" * 3000, ["a"] * 900]), max_size=3
)
USERS = ["ada", "bob", None]


class ItemStoreMachine(RuleBasedStateMachine):
    """Items by user and key; the stores must say the same of them."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = chatledger.open("memory:")
        self.stores = {user: ItemStore(self.ledger if user is None else self.ledger.for_user(user)) for user in USERS}
        self.items: dict[str | None, Contents] = {user: {} for user in USERS}
        self.versions: dict[tuple[str | None, Key], int] = {}
        self.moments: list[tuple[int, dict[str | None, Contents]]] = []

    def _note(self) -> None:
        self.moments.append((self.ledger.position, copy.deepcopy(self.items)))

    @rule(user=st.sampled_from(USERS), key=st.sampled_from(KEYS), value=VALUES, drift=st.sampled_from([None, 0, 0, 1]))
    def put(self, user: str | None, key: Key, value: dict[str, Any], drift: int | None) -> None:
        living = self.items[user].get(key, (0, {}))[0]
        expected = None if drift is None else living + drift
        if drift:
            with pytest.raises(StateConflictError):
                self.stores[user].put(*key, value, expected_version=expected)
            return
        version = self.stores[user].put(*key, value, expected_version=expected)
        assert version == self.versions.get((user, key), 0) + 1
        self.versions[user, key] = version
        self.items[user][key] = version, copy.deepcopy(value)
        self._note()

    @rule(user=st.sampled_from(USERS), chosen=st.sets(st.sampled_from(KEYS), min_size=1), value=VALUES | st.none())
    def change(self, user: str | None, chosen: set[Key], value: dict[str, Any] | None) -> None:
        keys = sorted(chosen)
        written = self.stores[user].write([ItemPut(namespace=one[0], key=one[1], value=value) for one in keys])
        for key, version in zip(keys, written, strict=True):
            if value is None:
                assert bool(version) == (key in self.items[user])
                self.items[user].pop(key, None)
            else:
                self.items[user][key] = version, copy.deepcopy(value)
            if version:
                self.versions[user, key] = version
        self._note()

    @rule(user=st.sampled_from(USERS), key=st.sampled_from(KEYS))
    def delete(self, user: str | None, key: Key) -> None:
        assert self.stores[user].delete(*key) == (key in self.items[user])
        self.items[user].pop(key, None)
        self.versions.pop((user, key), None)
        for _, then in self.moments:
            then[user].pop(key, None)
        self._note()

    @precondition(lambda self: self.moments)
    @rule(data=st.data())
    def look_back(self, data: st.DataObject) -> None:
        position, then = data.draw(st.sampled_from(self.moments))
        for user, store in self.stores.items():
            self._compare(store.as_of(position), then[user])

    @rule()
    def rebuild(self) -> None:
        self.ledger.rebuild()

    @invariant()
    def says_the_same(self) -> None:
        for user, store in self.stores.items():
            self._compare(store, self.items[user])

    def _compare(self, store: ItemReader, items: Contents) -> None:
        for labels in [(), ("memories",), ("memories", "ada"), ("a",)]:
            expected = {key: kept for key, kept in items.items() if key[0][: len(labels)] == labels}
            listed = store.list(labels)
            assert {(one.namespace, one.key): (one.version, one.value) for one in listed} == expected
            assert [one.updated_at for one in listed] == sorted((one.updated_at for one in listed), reverse=True)
            assert store.list(labels, offset=1, limit=2) == listed[1:3]
            namespaces = sorted({namespace for namespace, _ in expected})
            assert store.namespaces(labels) == namespaces
            assert store.namespaces(labels, offset=1, limit=1) == namespaces[1:2]
        for key in KEYS[::3]:
            item = store.get(*key)
            assert (None if item is None else (item.version, item.value)) == items.get(key)

    def teardown(self) -> None:
        self.ledger.verify()
        self.ledger.close()


TestItemStoreMachine = ItemStoreMachine.TestCase
TestItemStoreMachine.settings = settings(max_examples=examples(15), stateful_step_count=20, deadline=None)

"""Lists of agents' threads and of graphs' states, part by part, in the order of the index."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.support.agent_threads import put

import chatledger
from chatledger import Ledger
from chatledger.domain.errors import InvalidValueError
from chatledger.graph_state import StateStore, state_id
from chatledger.infra.ledger.threads import Threads

USERS = (None, "ada", "bob")


@pytest.fixture
def ledger() -> Any:
    """A ledger in memory."""
    with chatledger.open("memory:") as ledger:
        yield ledger


def listed(threads: Threads, **query: Any) -> list[str]:
    """All threads, part by part."""
    found: list[str] = []
    after: str | None = None
    while True:
        infos, after = threads.ledger.list_threads(limit=2, after=after, **query)
        assert len(infos) <= 2
        found += [info.thread_id for info in infos]
        if after is None:
            return found


@pytest.mark.guard
@given(st.data())
@settings(max_examples=25, deadline=None)
def test_lists_of_threads(data: st.DataObject) -> None:
    """Whatever is written, copied and deleted: in the order of changes and of beginnings, of all and of a user's."""
    begun: dict[str, tuple[str | None, int]] = {}
    with chatledger.open("memory:") as ledger:
        of = {user: Threads(ledger if user is None else ledger.for_user(user)) for user in USERS}
        for number in range(data.draw(st.integers(1, 12))):
            name = data.draw(st.sampled_from("abcde"))
            owner = begun[name][0] if name in begun else data.draw(st.sampled_from(USERS))
            thread_id = f"{name}{owner}"
            if thread_id in begun and data.draw(st.booleans()):
                of[owner].delete(thread_id)
                del begun[thread_id]
                continue
            put(of[owner], thread_id, f"c{number:02}", {"step": str(number)})
            begun.setdefault(thread_id, (owner, number))
        infos = {user: {info.thread_id: info for info in one.infos()} for user, one in of.items()}
        changed = [recorded.chat_id for recorded in ledger.history() if recorded.type.startswith("version")]
        last = {stream.removeprefix("chatledger:v:t:"): at for at, stream in enumerate(changed)}
        by_change = sorted(begun, key=lambda one: last[one])
        by_beginning = sorted(begun, key=lambda one: begun[one][1])
        for user, threads in of.items():
            mine = [one for one in begun if user in {None, begun[one][0]}]
            assert set(infos[user]) == set(mine)
            for order, ids in (("updated", by_change), ("created", by_beginning)):
                own = [one for one in ids if one in mine]
                assert listed(threads, order=order, ascending=True) == own
                assert listed(threads, order=order) == own[::-1]
        assert listed(of[None], user_id="ada") == [one for one in by_change[::-1] if begun[one][0] == "ada"]
        assert listed(of["bob"], user_id="ada") == []
        ledger.verify()


def test_threads_that_name_no_owner_are_the_owners_of_their_chats(ledger: Ledger) -> None:
    """They are in the owner's list, at the place of their own changes."""
    own = Threads(ledger.for_user("ada"))
    put(own, "mine", "1", {"a": "b"})
    put(Threads(ledger), "talk", "1", {"a": "b"})
    put(Threads(ledger), "nobody", "1", {"a": "b"})
    ledger.create_chat("talk", "ada")
    put(own, "mine", "2", {"a": "c"}, parent_id="1")

    assert listed(own) == ["mine", "talk"]
    assert listed(own, order="created") == ["talk", "mine"]
    assert listed(Threads(ledger), user_id="ada") == ["mine", "talk"]


def test_a_part_begins_where_one_ended(ledger: Ledger) -> None:
    """Other text is refused."""
    for list_part in (ledger.list_threads, StateStore(ledger).list_part):
        with pytest.raises(InvalidValueError, match="`after` is the `next`"):
            list_part(limit=1, after="t1")


@pytest.mark.guard
@given(st.data())
@settings(max_examples=25, deadline=None)
def test_lists_of_states(data: st.DataObject) -> None:
    """Whatever is written and deleted: in the order of last versions and of beginnings, of all and of a user's."""
    begun: dict[str, int] = {}
    changed: dict[str, int] = {}
    with chatledger.open("memory:") as ledger:
        stores = {user: StateStore(ledger if user is None else ledger.for_user(user)) for user in USERS}
        for number in range(data.draw(st.integers(1, 12))):
            one = state_id(data.draw(st.sampled_from(("ada", "bob"))), data.draw(st.sampled_from("abc")))
            if one in begun and data.draw(st.booleans()):
                stores[None].delete(one)
                del begun[one], changed[one]
                continue
            stores[None].put(one, {"step": number}, node="work")
            begun.setdefault(one, number)
            changed[one] = number
        for user, store in stores.items():
            for order, known in (("updated", changed), ("created", begun)):
                own = [one for one in sorted(known, key=lambda one: known[one]) if user in {None, one.split(":")[1]}]
                assert order == "updated" or states_of(store, order=order, ascending=True) == own
                assert order == "updated" or states_of(store, order=order) == own[::-1]
                assert sorted(states_of(store, order=order)) == sorted(own)
            times = {info.id: info.updated_at for info in store.list()}
            found = [times[one] for one in states_of(store)]
            assert found == sorted(found, reverse=True)
            assert states_of(store)[::-1] == states_of(store, ascending=True)
        assert set(states_of(stores[None], user_id="ada")) == {one for one in begun if one.split(":")[1] == "ada"}
        assert states_of(stores["bob"], user_id="ada") == []
        ledger.verify()


def states_of(store: StateStore, **query: Any) -> list[str]:
    """All states, part by part."""
    found: list[str] = []
    after: str | None = None
    while True:
        infos, after = store.list_part(limit=2, after=after, **query)
        assert len(infos) <= 2
        found += [info.id for info in infos]
        if after is None:
            return found

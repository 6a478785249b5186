"""The elements of lists are the same whether they are remembered or read."""

# pyright: reportPrivateUsage=false

import hypothesis.strategies as st
from hypothesis import given, settings
from tests.support.agent_threads import put, tree_of
from tests.support.soak import examples

import chatledger
from chatledger.infra.ledger.threads import Threads
from chatledger.projections.lmdb.cache import Remembered
from chatledger.projections.versioned.pieces import MAX_DEPTH

STEPS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), min_size=1, max_size=2 * MAX_DEPTH)


@settings(max_examples=examples(30))
@given(STEPS, st.sets(st.integers(0, 2 * MAX_DEPTH)))
def test_lists_grow_alike_whatever_is_remembered(steps: list[tuple[int, int]], forgotten_at: set[int]) -> None:
    """Elements are added and sometimes cut off, and what is remembered is now and then forgotten, as by a new process."""
    with chatledger.open("memory:") as ledger:
        threads = Threads(ledger)
        values: list[str] = []
        lists: list[list[str]] = []
        for number, (cut, added) in enumerate(steps):
            if number in forgotten_at:
                _forget(ledger)
            values = [*values[: len(values) - cut % 3 * (len(values) > 9)], *(f"{number}-{at}" for at in range(added))]
            lists.append(values)
            parent_id = f"{number - 1:05}" if number else None
            put(threads, "t", f"{number:05}", {"messages": values}, parent_id=parent_id)
        for values in lists:
            tree = tree_of(values)
            expected = b"".join(child.digest for child in tree.children)
            with threads.reading("t") as thread:
                assert thread.elements(tree.digest) == expected
            _forget(ledger)
            with threads.reading("t") as thread:
                assert thread.elements(tree.digest) == expected


def _forget(ledger: chatledger.Ledger) -> None:
    with ledger._store.snapshot() as snapshot:
        snapshot.tables.caches.lists = Remembered()

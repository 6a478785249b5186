"""Fuzzed: rows of an index, asked for all that is read from them, and postings."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from tests.fuzz.fuzz_inputs import only_ours
from tests.fuzz.fuzz_target import Bench, Maker, Target
from tests.support.agent_threads import put, tree_of
from tests.support.ledger_world import internals
from tests.support.naive_index import dump

import chatledger
from chatledger import Ledger, user
from chatledger.infra.ledger.threads import Threads
from chatledger.projections.lmdb.cache import Remembered
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.search.blocks import PostingsBlock, encode
from chatledger.projections.search.postings import Postings

TABLES: Final = (
    *("meta", "chat_ids", "message_ids", "branch_ids", "order", "rows", "search", "expiry", "blobs"),
    *("versioned", "version_rows", "version_writes", "version_lists", "heads", "head_sums"),
)
DAMAGED_TABLES: Final = tuple(name for name in TABLES if name not in {"expiry", "blobs"})
Rows = Mapping[str, list[tuple[bytes, bytes]]]


def fill_threads(threads: Threads) -> None:
    """A list that grows, in a dict."""
    elements = [f"element {number}" for number in range(12)]
    for step in range(8, 12):
        values = {"list": elements[:step], "dict": {"log": elements[:step]}}
        put(threads, "t", f"{step:02}", values, parent_id=None if step == 8 else f"{step - 1:02}", run_id="r")
    writes = [(0, "list", tree_of("one")), (1, "other", tree_of("two"))]
    threads.put_writes("t", "", "11", task_id="task", task_path="", writes=writes)


def fill(opened: Ledger) -> None:
    """Something in each table."""
    for chat in ("a", "b"):
        opened.create_chat(chat, "u", title="t", metadata={"k": 1, "f": True})
        opened.append(chat, [user(f"salt {number} pepper {chat}") for number in range(70)])
        messages = opened.get_messages(chat)
        opened.fork(chat, messages[3].id)
        opened.append(chat, [user("salt and more salt")])
        opened.set_checkpoint(chat, "here", messages[5].id)
        opened.annotate(chat, messages[4].id, metadata={"n": 1})
    opened.create_chat("gone", "u", expires_at=9**15)
    opened.delete_chat("gone")
    fill_threads(Threads(opened))
    opened.rebuild()


def questions(ledger: Ledger) -> list[Callable[[], Any]]:
    """The questions that may be asked of it; reading only."""
    threads = Threads(ledger)
    pages = [lambda one=chat: ledger.get_messages(one, limit=3) for chat in ("a", "b")]
    return [
        *pages,
        *(lambda one=chat: ledger.get_chat(one) for chat in ("a", "b", "gone")),
        *(lambda one=chat: ledger.list_branches(one) for chat in ("a", "b")),
        lambda: ledger.get_messages("a"),
        ledger.list_chats,
        lambda: ledger.list_chats(user_id="u"),
        lambda: ledger.list_chats(metadata=("k", 1)),
        lambda: ledger.list_checkpoints("a"),
        lambda: ledger.graph("a"),
        lambda: ledger.search("salt", chat_id="a"),
        lambda: ledger.search('"salt 3" OR pep*', user_id="u"),
        lambda: ledger.export_chat("b"),
        threads.infos,
        lambda: list(threads.checkpoints("t", "")),
        lambda: list(threads.checkpoints()),
        lambda: threads.get("t", "", "11"),
        lambda: threads.of_run("r"),
        lambda: ledger.position,
    ]


def rows_of(ledger: Ledger) -> Rows:
    """The rows of each table as they are."""
    generation = internals(ledger).index._generation()  # pyright: ignore[reportPrivateUsage] - rows are changed
    with generation.reading() as txn:
        return {name: dump(txn, getattr(generation.tables, name)) for name in TABLES}


def replace(ledger: Ledger, table: str, key: bytes, value: bytes, by: bytes) -> None:
    """Put something else at a key of a table."""
    generation = internals(ledger).index._generation()  # pyright: ignore[reportPrivateUsage] - as above
    handle = getattr(generation.tables, table)

    def change(txn: Transaction) -> None:
        if table in {"message_ids", "branch_ids"}:  # its values are part of what it is sorted by
            txn.delete(key, value, db=handle)
        txn.put(key, by, db=handle)

    generation.update(change)
    generation.tables.caches.searched = Remembered()  # as after a restart


def ask_damaged(ledger: Ledger, table: str, row: tuple[bytes, bytes], damaged: bytes) -> None:
    """Ask everything while a row says something else; each question has an answer, or an error of ours."""
    key, value = row
    if table in {"message_ids", "branch_ids"}:
        damaged = damaged[:400] or b"\0"
    replace(ledger, table, key, value, damaged)
    try:
        for question in questions(ledger):
            only_ours(question)
    finally:
        replace(ledger, table, key, damaged, value)


def _row(bench: Bench) -> Target:
    """A table, a row of it, and what it says."""
    ledger = bench.stack.enter_context(chatledger.open("memory:"))
    fill(ledger)
    rows = rows_of(ledger)
    position = ledger.last_position()

    def read(raw: bytes) -> None:
        table = DAMAGED_TABLES[(raw[0] if raw else 0) % len(DAMAGED_TABLES)]
        row = rows[table][int.from_bytes(raw[1:3], "big") % len(rows[table])]
        ask_damaged(ledger, table, row, raw[3:])
        assert ledger.last_position() == position

    seeds = [
        bytes([number]) + at.to_bytes(2, "big") + rows[table][at][1]
        for number, table in enumerate(DAMAGED_TABLES)
        for at in range(0, len(rows[table]), max(len(rows[table]) // 8, 1))
    ]
    return Target(seeds, read, msgpack_at=3)


def postings() -> list[bytes]:
    """Blocks of the search index, which stand for more than they take."""
    documents = np.array([0, 1, 5, 70_000, 70_001, 3], np.uint32)
    frequencies = np.array([2, 1, 2, 1, 1, 300], np.uint32)
    positions = np.array([1, 7, 0, 2, 300, 1, 70_000, *range(300)], np.uint32)
    terms, sizes = [b"ab", b"b"], np.array([5, 1])
    found = Postings(terms, sizes, documents, frequencies, positions)
    return [encode(found), encode(found.sliced(0, 5)), encode(found.sliced(5, 6)), encode(found.sliced(1, 2))]


def _postings(_: Bench) -> Target:
    """One block: it stands for no more than its bytes can say."""

    def read(raw: bytes) -> None:
        found = only_ours(lambda: read_block(raw))
        if found is not None:
            assert len(found.positions) <= 8 * len(raw)

    return Target(postings(), read)


def read_block(raw: bytes) -> Postings | None:
    """The postings of a block; what goes wrong is an error of ours to who searches."""
    try:
        return PostingsBlock(raw).postings()
    except (ValueError, LookupError, OverflowError):
        return None


INDEX: Final[Mapping[str, Maker]] = {"index-row": _row, "postings": _postings}

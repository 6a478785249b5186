"""Damaged rows of an index: what is asked is answered, or it is an error of ours. The log stays as it was."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.fuzz_inputs import WILD, nearly, only_ours
from tests.infra.test_ledger_world import internals
from tests.projections.making import dump

import chatledger
from chatledger import CorruptStateError, Ledger, user
from chatledger.domain.agents.content import DIGEST_BYTES, ListNode, dict_piece, leaf_pieces, list_piece
from chatledger.domain.agents.decide import CheckpointPut, Tree
from chatledger.infra.agents.threads import Threads
from chatledger.projections.agents.indexed_thread import StoredContent
from chatledger.projections.environment import Transaction
from chatledger.projections.search.postings import Part, occurrences_of, pack, unpack, unpack_few

FEW = settings(max_examples=12, deadline=None)
TABLES: Final = (
    *("meta", "chat_ids", "message_ids", "order", "rows", "search", "expiry", "blobs"),
    *("agents", "agent_checkpoints", "agent_writes", "agent_content", "agent_order"),
)


def leaf(value: bytes) -> Tree:
    *_, whole = leaf_pieces("bytes", value)
    return Tree(whole.digest, whole.content)


def fill_threads(threads: Threads) -> None:
    """A list that grows, in a dict."""
    elements = [leaf(b"element %d" % number) for number in range(12)]
    for step in range(8, 12):
        piece = list_piece([one.digest for one in elements[:step]])
        listed = Tree(piece.digest, piece.content, elements[:step])
        outer = dict_piece({"log": listed.digest})
        threads.put_checkpoint(
            "t",
            CheckpointPut(
                namespace="",
                checkpoint_id=f"{step:02}",
                parent_id=None if step == 8 else f"{step - 1:02}",
                checkpoint=("msgpack", b"\x80"),
                metadata=("msgpack", b"\x80"),
                values={"list": listed, "dict": Tree(outer.digest, outer.content, [listed])},
                run_id="r",
            ),
        )
    threads.put_writes(
        "t", "", "11", task_id="task", task_path="", writes=[(0, "list", leaf(b"one")), (1, "other", leaf(b"two"))]
    )


@pytest.fixture(scope="module")
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as opened:
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
        yield opened


def questions(ledger: Ledger) -> list[Callable[[], Any]]:
    """What may be asked of it; reading only."""
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


def ask_all(ledger: Ledger) -> None:
    for question in questions(ledger):
        only_ours(question)


def test_the_questions_have_answers(ledger: Ledger) -> None:
    """Or else the tests below would say nothing."""
    for question in questions(ledger)[:-1]:
        question()


@pytest.fixture(scope="module")
def rows(ledger: Ledger) -> dict[str, list[tuple[bytes, bytes]]]:
    """The rows of each table as they are to be."""
    generation = internals(ledger).index._generation()
    with generation.env.reading() as txn:
        return {name: dump(txn, getattr(generation.tables, name)) for name in TABLES}


def replace(ledger: Ledger, table: str, key: bytes, value: bytes, by: bytes) -> None:
    generation = internals(ledger).index._generation()
    handle = getattr(generation.tables, table)

    def change(txn: Transaction) -> None:
        if table == "message_ids":  # its values are part of what it is sorted by
            txn.delete(key, value, db=handle)
        txn.put(key, by, db=handle)

    generation.env.update(change)


@pytest.mark.parametrize("table", [name for name in TABLES if name not in {"expiry", "blobs"}])
def test_a_damaged_row(table: str, ledger: Ledger, rows: dict[str, list[tuple[bytes, bytes]]]) -> None:
    position = ledger.last_position()

    @given(row=st.sampled_from(rows[table]), data=st.data())
    @FEW
    def check(row: tuple[bytes, bytes], data: st.DataObject) -> None:
        key, value = row
        damaged = data.draw(nearly([value]) | st.sampled_from(WILD))
        if table == "message_ids":
            damaged = damaged[:400] or b"\0"
        replace(ledger, table, key, value, damaged)
        try:
            ask_all(ledger)
        finally:
            replace(ledger, table, key, damaged, value)

    check()
    assert ledger.last_position() == position
    test_the_questions_have_answers(ledger)


def test_a_list_that_grew_out_of_itself(ledger: Ledger, rows: dict[str, list[tuple[bytes, bytes]]]) -> None:
    """What names itself as its base would be followed for ever."""
    grown: list[tuple[bytes, bytes, ListNode]] = []
    for key, value in rows["agent_content"]:
        if len(key) > DIGEST_BYTES + 1:
            continue
        stored = msgspec.msgpack.decode(value, type=StoredContent)
        if isinstance(stored.content, ListNode):
            grown.append((key, value, msgspec.structs.replace(stored.content, base=key[-DIGEST_BYTES:])))
    assert grown
    for key, value, content in grown:
        replace(ledger, "agent_content", key, value, msgspec.msgpack.encode(StoredContent(content, 1)))
    with pytest.raises(CorruptStateError, match="does not end"):
        Threads(ledger).get("t", "", "11")
    for key, value, _ in grown:
        replace(ledger, "agent_content", key, b"", value)


# Postings, which stand for more than they take


def packed() -> list[bytes]:
    documents = np.array([0, 0, 1, 5, 5, 70_000, 70_001], np.uint32)
    positions = np.array([1, 7, 0, 2, 300, 1, 70_000], np.uint32)
    return [*pack(documents, positions, np.array([0, 2, 3, 5])), *pack(documents, positions, np.array([0]))]


@given(raw=nearly([*packed(), b"".join(packed())]))
@settings(max_examples=150, deadline=None)
def test_damaged_postings(raw: bytes) -> None:
    found = only_ours(lambda: unpack([raw]))
    if found is not None:
        assert len(occurrences_of(found)) == len(found.positions) <= 70 * len(raw)
    only_ours(lambda: unpack_few([Part(0, [raw])]))


@pytest.mark.parametrize("count", [2**32 - 1, 2**31, 1000])
def test_postings_that_claim_to_be_many(count: int) -> None:
    """Refused before memory is taken for them."""
    row = bytes([2 << 4]) + (1).to_bytes(2, "little") + (1).to_bytes(4, "little") + bytes(4)
    row += count.to_bytes(4, "little") + b"\0"
    for read in (lambda: occurrences_of(unpack([row])), lambda: unpack_few([Part(0, [row])])):
        with pytest.raises(CorruptStateError, match="search index"):
            read()

"""`Ledger.verify`: sound logs pass, whatever happens to them meanwhile; any single change of log or index is found."""

# White-box: rows of the index are changed where no public method reaches.
# pyright: reportPrivateUsage=false

import shutil
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.ledger_world import internals, lagging
from tests.support.proof_world import SqliteFile, fill, say, verify_at, writing
from tests.support.salts import salts
from tests.support.soak import examples

import chatledger
from chatledger import ChainIntegrityError, ChatledgerError, CorruptStateError, Ledger
from chatledger.domain.log.codec import decode_event, encode_event
from chatledger.domain.search.fields import TOOLS
from chatledger.errors import UnsupportedFormatError
from chatledger.projections.lmdb.keys import Tag, id_key, number
from chatledger.projections.search.blocks import PostingsBlock, cut
from chatledger.projections.search.documents import BLOCKS, COLUMNS, LENGTHS, TIME, SegmentDocuments, pack_chunk
from chatledger.projections.search.manifest import PENDING, SearchSegment, manifest_of, segment_key, u32


class Crash(Exception):  # noqa: N818 - not an error, an event
    """The process dies here."""


@pytest.fixture(params=["memory", "sqlite", "directory"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/log.db", "directory": str(tmp_path / "data")}[
        request.param
    ]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed ledger in an SQLite file, to be copied and damaged."""
    folder = tmp_path_factory.mktemp("template")
    # So that some messages are in segments of the search index, and some wait for one.
    with (
        pytest.MonkeyPatch.context() as patch,
        chatledger.open(SqliteFile(folder).location, compression="none") as ledger,
    ):
        patch.setattr("chatledger.projections.search.indexer.FLUSH_MESSAGES", 40)
        fill(ledger)
    return folder


@pytest.fixture
def file(template: Path, tmp_path: Path) -> SqliteFile:
    return copied(template, tmp_path / "copy")


def copied(template: Path, to: Path) -> SqliteFile:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(template, to)
    return SqliteFile(to)


# What is sound


def test_a_sound_ledger(location: str) -> None:
    """Everything is counted, and progress goes from nothing to all of it."""
    progress: list[tuple[int, int]] = []
    with chatledger.open(location) as ledger:
        assert ledger.verify().event_count == 0
        fill(ledger)
        found = ledger.verify(progress=lambda done, total: progress.append((done, total)))
        assert found.position == ledger.position
        assert found.event_count == sum(1 for _ in ledger.history())
        assert found.chat_count == len(ledger.list_chats())
        assert found.message_count == sum(chat.message_count for chat in ledger.list_chats())
        assert found.deletion_count == 1
    assert progress == sorted(progress)
    assert progress[-1] == (2 * found.position, 2 * found.position)


def test_integers_beyond_64_bits() -> None:
    """Events are measured as they are read, whatever their messages hold."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        for _ in range(40):
            ledger.append("c", [chatledger.NewMessage("user", {"value": 2**70})])

        assert 40 == ledger.verify().message_count


@pytest.mark.soak
def test_a_rebuilt_index_is_as_good(location: str) -> None:
    """Pages, and blocks of the search index, lie otherwise then; they say the same."""
    with chatledger.open(location) as ledger:
        fill(ledger, messages=90)
        before = ledger.verify()
        ledger.rebuild()
        assert ledger.verify() == before
        ledger.append("a", [say(f"after {number}") for number in range(70)])
        assert ledger.verify().message_count == before.message_count + 70


@pytest.mark.soak
def test_while_others_write(location: str) -> None:
    """Writers and deletions in between raise no false alarm."""
    with chatledger.open(location) as ledger:
        fill(ledger)
        with writing(ledger) as failed:
            for _ in range(6):
                ledger.verify()
        assert failed == []
        ledger.verify()


def test_after_deletions(location: str) -> None:
    """What was erased is accounted for by tombstones, before a rebuild and after it."""
    with chatledger.open(location) as ledger:
        fill(ledger)
        ledger.delete_chat("b")
        ledger.delete_chat("last")
        assert ledger.verify().deletion_count == 3
        ledger.rebuild()
        assert ledger.verify().chat_count == 3


@pytest.mark.parametrize("erased", [[], [7], [3, 4, 6], [2, 3, 4, 5]], ids=str)
def test_an_erasure_that_is_not_finished(erased: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chat that was deleted and is half erased, also in the middle of a commit."""
    with chatledger.open(f"sqlite:///{tmp_path}/log.db", max_event_bytes=32 * 1024) as ledger:
        ledger.create_chat("other", "ada")
        ledger.create_chat("doomed", "ada")
        ledger.append("doomed", [say("x" * 14_000) for _ in range(5)])  # three events, one commit
        ledger.append("doomed", [say("more")])
        ledger.append("other", [say("kept")])
        store = internals(ledger)

        def crash(chat_id: str, **_: object) -> None:
            for position in erased:
                with store.log._sqlite.datastore.transaction(commit=True) as cursor:
                    cursor.execute("DELETE FROM stored_events WHERE rowid = ?", (position,))
            raise Crash

        with monkeypatch.context() as patch:
            patch.setattr(store.log, "erase", crash)
            with suppress(Crash):
                ledger.delete_chat("doomed")
        assert ledger.verify().chat_count == 1
        ledger.rebuild()
        assert ledger.verify().chat_count == 1


@pytest.mark.soak
def test_memory_does_not_grow_with_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six times the events take less than half as much memory again; pages are smaller here, so that there are many."""
    monkeypatch.setattr("chatledger.projections.verify.walk.PAGE_EVENTS", 50)

    def peak(events: int) -> int:
        with chatledger.open(f"sqlite:///{tmp_path}/{events}.db") as ledger:
            for chat in range(events // 20):
                ledger.create_chat(f"chat {chat}", "ada")
                for at in range(19):
                    ledger.append(f"chat {chat}", [say(f"message {at} about {at}")])
            ledger.verify()
            tracemalloc.start()
            try:
                ledger.verify()
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    assert peak(1200) < 1.5 * peak(200)


# Damage of the log


@settings(max_examples=examples(60))
@given(data=st.data())
def test_any_changed_byte_is_found(
    template: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """One byte of any stored event, in any column; the error names the event, or the one whose hash it breaks."""
    file = copied(template, tmp_path_factory.getbasetemp() / "flipped")
    rows = file.rows()
    position, chat_id, version, topic, state = data.draw(st.sampled_from(rows))
    column = data.draw(st.sampled_from(["state"] * 6 + ["topic", "originator_id", "originator_version", "rowid"]))
    mask = data.draw(st.integers(1, 255))
    before = {
        "state": state,
        "topic": topic.encode(),
        "originator_id": chat_id.encode(),
        "originator_version": version.to_bytes(8, "big"),
        "rowid": position.to_bytes(8, "big"),
    }[column]
    at = data.draw(st.integers(0, len(before) - 1))
    after = before[:at] + bytes([before[at] ^ mask]) + before[at + 1 :]
    if column in {"originator_version", "rowid"}:
        value: Any = int.from_bytes(after, "big", signed=True)
        taken = {row[0] for row in rows} if column == "rowid" else {row[2] for row in rows if row[1] == chat_id}
        assume(value not in taken)
        file.execute(f"UPDATE stored_events SET {column} = ? WHERE rowid = ?", value, position)
    elif column == "state":
        file.execute("UPDATE stored_events SET state = ? WHERE rowid = ?", after, position)
    else:
        assume((after, version) not in {(row[1].encode(), row[2]) for row in rows})
        file.execute(f"UPDATE stored_events SET {column} = CAST(? AS TEXT) WHERE rowid = ?", after, position)

    with pytest.raises(ChatledgerError) as caught:
        verify_at(file.location)
    following = [row[0] for row in rows if row[1] == chat_id and row[0] > position]
    named = getattr(caught.value, "position", None)
    expected = {position, *following[:1]}
    is_unreadable = "Could not decode to UTF-8" in str(caught.value)  # then SQLite does not say where it is
    assert column == "rowid" or is_unreadable or named in expected or f"position {position}" in str(caught.value)


@given(data=st.data())
@settings(max_examples=examples(25))
def test_any_dropped_event_is_found(
    template: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Also the last of a chat, and a chat's only one."""
    file = copied(template, tmp_path_factory.getbasetemp() / "dropped")
    file.drop(data.draw(st.sampled_from(file.rows()))[0])
    with pytest.raises(ChainIntegrityError):
        verify_at(file.location)


@given(data=st.data())
@settings(max_examples=examples(25))
def test_any_two_swapped_events_are_found(
    template: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Of one chat or of two: the index knows the places of all events by the trail."""
    file = copied(template, tmp_path_factory.getbasetemp() / "swapped")
    one, other = data.draw(
        st.lists(st.sampled_from([row[0] for row in file.rows()]), min_size=2, max_size=2, unique=True)
    )
    file.swap(one, other)
    with pytest.raises(ChainIntegrityError):
        verify_at(file.location)


def test_a_duplicated_event_is_found(file: SqliteFile) -> None:
    """The same event once more: as it is, which no log takes, or under the next version."""
    *_, (_, chat_id, version, topic, state) = (row for row in file.rows() if row[1] == "a")
    file.execute(
        "INSERT INTO stored_events (originator_id, originator_version, topic, state) VALUES (?, ?, ?, ?)",
        chat_id,
        version + 1,
        topic,
        state,
    )
    with pytest.raises(ChatledgerError, match=f"event {version + 1} of chat 'a' at position"):
        verify_at(file.location)


def test_a_changed_last_event_is_found(file: SqliteFile) -> None:
    """No later event names its hash; the index does. Once the index is gone, only an anchor tells."""
    position = file.rows()[-1][0]
    file.rewrite("last", b"ada", b"eve")
    with pytest.raises(ChainIntegrityError, match=f"position {position}"):
        verify_at(file.location)
    file.drop_index()
    assert verify_at(file.location).position == position


def test_a_changed_chat_is_found(file: SqliteFile) -> None:
    """A whole chat with all hashes anew: the index has another hash at its end, and the error names the chat."""
    file.rewrite("b", b"leeks", b"peaks")
    with pytest.raises(ChainIntegrityError, match="chat 'b'") as caught:
        verify_at(file.location)
    assert caught.value.chat_id == "b"


def test_times_that_go_back_are_found(file: SqliteFile) -> None:
    """A forger who dates an event back breaks the order of times, even where all hashes are right."""
    *_, (position, _, version, topic, state) = (row for row in file.rows() if row[1] == "a")
    event = decode_event(topic, state)
    early = encode_event(msgspec.structs.replace(event, occurred_at=event.occurred_at - 10_000_000), salts()).state
    file.execute("UPDATE stored_events SET state = ? WHERE rowid = ?", early, position)
    file.drop_index()
    with pytest.raises(ChainIntegrityError, match="lies before") as caught:
        verify_at(file.location)
    error = caught.value
    assert (error.chat_id, error.position, error.version) == ("a", position, version)


@pytest.mark.parametrize("is_last", [True, False], ids=["at the end", "before another chat"])
def test_a_broken_off_commit_is_found(tmp_path: Path, *, is_last: bool) -> None:
    """A commit of several events whose end is missing, though versions and hashes have no gap."""
    file = SqliteFile(tmp_path)
    with chatledger.open(file.location, max_event_bytes=32 * 1024) as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [say("x" * 14_000) for _ in range(5)])
        if not is_last:
            ledger.create_chat("later", "ada")
    last = max(row[0] for row in file.rows() if row[1] == "c")
    file.drop(last)
    file.drop_index()
    with pytest.raises(ChainIntegrityError, match="commit has 1 more") as caught:
        verify_at(file.location)
    assert (caught.value.chat_id, caught.value.position) == ("c", last - 1)


def test_an_unknown_event_is_named(file: SqliteFile) -> None:
    """Its topic was changed, or a newer chatledger wrote it."""
    file.execute("UPDATE stored_events SET topic = 'chatledger.new_thing/2' WHERE rowid = 5")
    with pytest.raises(UnsupportedFormatError, match="position 5"):
        verify_at(file.location)


def test_lost_events_of_a_dense_log_are_counted(ledger: Ledger) -> None:
    """A whole chat that is gone is no hole in any chain; the holes in the positions, and the index, tell."""
    fill(ledger)
    log = internals(ledger).log
    positions = [recorded.position for recorded in ledger.history("a")]
    log._events.erase("a", first=positions[0], before=positions[-1] + 1)
    with pytest.raises(ChainIntegrityError, match="chat 'a'") as caught:
        ledger.verify()
    assert caught.value.chat_id == "a"


@pytest.mark.matrix
@pytest.mark.parametrize("share", [0.05, 0.3, 0.55, 0.8, 0.97])
@pytest.mark.parametrize("is_index_gone", [False, True], ids=["index", "no index"])
def test_bytes_of_a_server_s_files(tmp_path: Path, share: float, *, is_index_gone: bool) -> None:
    """A flipped bit in a block of a closed directory: the server drops what it cannot read, and says nothing."""
    path = tmp_path / "data"
    with chatledger.open(path) as ledger:
        fill(ledger)
    (block,) = path.rglob("msgs/*.blk")
    raw = bytearray(block.read_bytes())
    raw[int(len(raw) * share)] ^= 0x10
    block.write_bytes(raw)
    if is_index_gone:
        shutil.rmtree(path / "index")
    with pytest.raises(ChatledgerError):
        verify_at(str(path))


# Damage of the index


def put(ledger: Ledger, table: str, key: bytes, value: bytes | None, *, old: bytes | None = None) -> None:
    generation = internals(ledger).index._live

    def change(txn: Any) -> None:
        db = getattr(generation.tables, table)
        if old is not None:
            txn.delete(key, old, db=db)
        else:
            txn.delete(key, db=db)
        if value is not None:
            txn.put(key, value, db=db)

    generation.update(change)


def rows_of(ledger: Ledger, table: str) -> list[tuple[bytes, bytes]]:
    generation = internals(ledger).index._live
    with generation.reading() as txn:
        return [(bytes(key), bytes(value)) for key, value in txn.cursor(getattr(generation.tables, table))]


def chat_no(ledger: Ledger, chat_id: str) -> int:
    with internals(ledger).index.snapshot() as snapshot:
        found = snapshot.chat(chat_id).chat_no
    assert found is not None
    return int(found)


def row(ledger: Ledger, table: str, prefix: bytes) -> tuple[bytes, bytes]:
    """The first row of a table whose key begins so."""
    return next(found for found in rows_of(ledger, table) if found[0].startswith(prefix))


def of_b(ledger: Ledger, tag: bytes = b"") -> bytes:
    """How keys of chat `b` begin."""
    return number(chat_no(ledger, "b")) + tag


def replaced(found: tuple[bytes, bytes], old: bytes, new: bytes) -> tuple[bytes, bytes]:
    key, value = found
    assert old in value
    return key, value.replace(old, new)


def flipped(found: tuple[bytes, bytes], at: int) -> tuple[bytes, bytes]:
    key, value = found[0], bytearray(found[1])
    value[at] ^= 1
    return key, bytes(value)


Changes = Sequence[tuple[str, bytes, bytes | None]]


def segments_of(ledger: Ledger) -> list[SearchSegment]:
    """The segments of the search index."""
    with internals(ledger).snapshot() as snapshot:
        return manifest_of(snapshot.txn, snapshot.tables).segments


def of_chat_b(ledger: Ledger, segment: SearchSegment) -> tuple[int, int]:
    """The documents of chat `b` in a segment: from the first to before the last."""
    with internals(ledger).snapshot() as snapshot:
        stored = SegmentDocuments(snapshot.txn, snapshot.tables, segment, may_remember=False)
        return stored.directory.bounds(chat_no(ledger, "b"))


def without_posting(ledger: Ledger, term: bytes) -> Changes:
    """A term is lost in one message of chat `b`."""
    for segment in segments_of(ledger):
        first, end = of_chat_b(ledger, segment)
        prefix = segment_key(segment.id, BLOCKS)
        for key, row in rows_of(ledger, "search"):
            place = PostingsBlock(row).place(term) if key.startswith(prefix) else -1
            if place >= 0:
                documents, before = PostingsBlock(row).documents_at(place)
                having = np.flatnonzero((documents >= first) & (documents < end))
                postings = PostingsBlock(row).postings()
                is_kept = np.ones(postings.length, np.bool_)
                is_kept[before + having[:1]] = False
                if not is_kept.all():
                    (left,) = cut(postings.kept(is_kept))
                    fresh = prefix + left.term + b"\0" + u32(left.document)
                    return [("search", key, None), ("search", fresh, left.row)]
    raise AssertionError


def changed_column(ledger: Ledger, column: int) -> tuple[str, bytes, bytes]:
    """Something else is noted of a message of chat `b`."""
    segment = next(one for one in segments_of(ledger) if of_chat_b(ledger, one)[1])
    with internals(ledger).snapshot() as snapshot:
        values = SegmentDocuments(snapshot.txn, snapshot.tables, segment, may_remember=False).column(column)
    values = values.astype(np.uint64)
    first, end = of_chat_b(ledger, segment)
    values[first + int(np.argmax(values[first:end]))] += np.uint64(1)
    return "search", segment_key(segment.id, COLUMNS) + bytes((column,)) + bytes(4), pack_chunk(values)


DAMAGES: dict[str, Callable[[Ledger], Changes]] = {
    "message": lambda ledger: [
        ("rows", *replaced(row(ledger, "rows", of_b(ledger, Tag.PAGE)), b"leeks", b"peaks")),
    ],
    "head": lambda ledger: [
        (
            "rows",
            row(ledger, "rows", of_b(ledger, Tag.BRANCH + id_key("main")))[0],
            row(ledger, "rows", of_b(ledger, Tag.BRANCH + id_key("main-v2")))[1],
        )
    ],
    "checkpoint": lambda ledger: [("rows", row(ledger, "rows", of_b(ledger, Tag.CHECKPOINT))[0], None)],
    "list": lambda ledger: [("order", key, None) for key, value in rows_of(ledger, "order") if value == of_b(ledger)][
        :1
    ],
    "location": lambda ledger: [("message_ids", id_key(ledger.get_messages("b")[3].id), None)],
    "posting": lambda ledger: without_posting(ledger, b"leek"),
    "tools": lambda ledger: without_posting(ledger, b"\x01leek"),
    "length of tools": lambda ledger: [changed_column(ledger, LENGTHS[TOOLS])],
    "document": lambda ledger: [changed_column(ledger, TIME)],
    "chat": lambda ledger: [("rows", key, None) for key, _ in rows_of(ledger, "rows") if key.startswith(of_b(ledger))],
    "owner": lambda ledger: [("rows", *replaced(row(ledger, "rows", of_b(ledger, Tag.PROFILE)), b"ada", b"eve"))],
    "tombstone": lambda ledger: [("chat_ids", *flipped(row(ledger, "chat_ids", b"t"), -5))],
}


@pytest.mark.soak
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_changed_row_of_the_index(damage: str, tmp_path: Path) -> None:
    """The error names the chat, and `rebuild` repairs it, as the error says."""
    with chatledger.open(f"sqlite:///{tmp_path}/log.db") as ledger:
        fill(ledger, messages=50)
        internals(ledger).rebuild_search()
        ledger.verify()
        changes = DAMAGES[damage](ledger)
        assert changes
        for change in changes:
            put(ledger, *change)
        with pytest.raises(CorruptStateError, match="'gone'" if damage == "tombstone" else "'b'") as caught:
            ledger.verify()
        assert "rebuild" in str(caught.value)
        ledger.rebuild()
        ledger.verify()


@given(data=st.data())
@settings(max_examples=examples(40))
def test_any_changed_row_of_the_index(
    template: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any byte of any row, but for what only says how rows were batched."""
    file = copied(template, tmp_path_factory.getbasetemp() / "rows")
    with chatledger.open(file.location) as ledger:
        table = data.draw(st.sampled_from(["rows", "rows", "chat_ids", "message_ids", "order", "search"]))
        key, value = data.draw(st.sampled_from([found for found in rows_of(ledger, table) if found[1]]))
        read = (PENDING, *(segment_key(segment.id, b"") for segment in segments_of(ledger)))
        assume(table != "search" or key.startswith(read))
        assume(table != "rows" or key[8:9] != Tag.SEGMENT)
        at = data.draw(st.integers(0, len(value) - 1))
        changed = value[:at] + bytes([value[at] ^ data.draw(st.integers(1, 255))]) + value[at + 1 :]
        put(ledger, table, key, data.draw(st.sampled_from([changed, None])), old=value)
        with pytest.raises((CorruptStateError, ChainIntegrityError)):
            ledger.verify()


ALONE = {
    "walk.GATHERED_EVENTS": 1,
    "walk.PAGE_EVENTS": 7,
    "verification._MANY_ROWS": 1,
    "verification._SLICE_S": 0,
    "search_check.BATCH_MESSAGES": 1,
    "search_sums._BATCH": 1,
}
"""Everything is looked at by itself."""


@given(data=st.data())
@settings(max_examples=examples(40))
def test_what_is_found_does_not_depend_on_batches(
    template: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Of several damages the same one is reported, in the same words, as when each row and message is looked at by itself."""
    file = copied(template, tmp_path_factory.getbasetemp() / "batches")
    with chatledger.open(file.location) as ledger:
        for _ in range(data.draw(st.integers(1, 3))):
            table = data.draw(st.sampled_from(["rows", "rows", "message_ids", "order", "search"]))
            key, value = data.draw(st.sampled_from([found for found in rows_of(ledger, table) if found[1]]))
            at = data.draw(st.integers(0, len(value) - 1))
            changed = value[:at] + bytes([value[at] ^ data.draw(st.integers(1, 255))]) + value[at + 1 :]
            put(ledger, table, key, data.draw(st.sampled_from([changed, None])), old=value)
        found = finding(ledger)
        with pytest.MonkeyPatch.context() as patch:
            for name, least in ALONE.items():
                patch.setattr(f"chatledger.projections.verify.{name}", least)
            assert finding(ledger) == found


def finding(ledger: Ledger) -> tuple[object, ...]:
    """Return the outcome of verifying."""
    try:
        return (ledger.verify(),)
    except ChatledgerError as error:
        return type(error), str(error), vars(error)


def test_a_row_too_many(tmp_path: Path) -> None:
    """A row that follows from no event, in the lists or of a chat that never was."""
    with chatledger.open(f"sqlite:///{tmp_path}/log.db") as ledger:
        fill(ledger)
        for table, key in (("order", b"\xff" * 30), ("rows", number(9999) + Tag.CHECKPOINT + b"x")):
            put(ledger, table, key, number(1))
            with pytest.raises(CorruptStateError):
                ledger.verify()
            put(ledger, table, key, None)
        ledger.verify()


def test_an_index_that_lags_behind_a_deletion(tmp_path: Path) -> None:
    """Another process deleted chats and erased their events; our index has not heard of it yet."""
    path = tmp_path / "data"
    with chatledger.open(path) as ahead, chatledger.open(path, index=tmp_path / "index") as behind:
        fill(ahead)
        behind.sync()
        with lagging(behind):
            ahead.delete_chat("b")
            ahead.delete_chat("last")
            ahead.append("a", [say("later")])
            assert behind.verify().deletion_count == 3

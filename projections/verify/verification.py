"""Verifying a log, and the index that was derived from it, which is compared with a replay of the log, a few chats at a time."""

import struct
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import lmdb
import msgspec

from chatledger.domain.errors import ChainIntegrityError, ChatledgerError, CorruptStateError
from chatledger.domain.proof.anchors import Anchor
from chatledger.domain.proof.verification import Verification
from chatledger.domain.values import Progress
from chatledger.domain.versioned.keys import FAMILIES

from ..chat.pages import seldom_collected
from ..chat.reader import IndexedChat
from ..generations import Generation
from ..index import Index
from ..lmdb.environment import INITIAL_MAP_BYTES, Transaction
from ..lmdb.keys import to_number
from ..lmdb.tables import Tables
from ..projector import has_content, has_remains
from ..versioned.lists import listed_values, searched_values
from ..versioned.messages import HeldMessages, value_at
from ..versioned.rows import is_of_copy
from .search_check import find_difference, next_chat
from .walk import AnchorWatch, Walk, WalkedLog

if TYPE_CHECKING:
    from .search_check import SearchCheck, TermHashes
    from .search_sums import SearchSums

T = TypeVar("T")

_SLICE_S: Final = 0.2
_ATTEMPTS: Final = 10
_NOT_COMPARED: Final = frozenset({"meta", "rows", "search"})
_DAMAGE: Final = (
    *(lmdb.Error, msgspec.MsgspecError, struct.error),
    *(ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError, AssertionError),
)
"""The errors that reading damaged rows may raise; each is reported with the chat."""


def verify(
    log: WalkedLog,
    index: Index,
    *,
    catch_up: Callable[[], object],
    folder: Path,
    anchor: Anchor | None,
    progress: Progress,
) -> Verification:
    """
    Walk the whole log, and compare the index with its replay.

    Args:
        log: The log.
        index: The index that serves.
        catch_up: Brings the index to the end of the log.
        folder: An empty folder for the replay, which gets about as large as the index without its search index.
        anchor: What the log must still have; its signature and leaves are checked.
        progress: Called with (positions done, positions in all), where each position counts twice: read and compared.

    Raises:
        ChainIntegrityError, CorruptStateError, UnsupportedFormatError: What is wrong, and where.
    """
    total = log.committed_position()
    watch = None if anchor is None else AnchorWatch(anchor)
    scratch = Generation(0, folder, map_bytes=INITIAL_MAP_BYTES, is_kept=False)
    try:
        with seldom_collected() as end_part:

            def advance(done: int, before: int = 0) -> None:
                progress(before + max(0, min(done, total)), 2 * total)
                end_part()

            walk = Walk(log, scratch, watch=watch, progress=advance)
            walk.to(total)
            catch_up()
            compared = IndexComparison(index, walk, catch_up=catch_up, progress=partial(advance, before=total))
            compared.run()
            # Last: what was written while the index was compared is walked too.
            walk.finish()
        progress(2 * total, 2 * total)
        with scratch.reading() as txn:
            counts = [sum(1 for _ in listed_values(txn, scratch.tables, family)) for family in FAMILIES]
            erasures = scratch.erasures(txn)
        return Verification(
            position=walk.state.position,
            event_count=walk.event_count,
            chat_count=compared.chat_count,
            message_count=compared.message_count,
            deletion_count=walk.tombstone_count,
            erased_since_anchor=() if watch is None else tuple(watch.erased),
            foreign=tuple(walk.foreign),
            foreign_count=walk.foreign_count,
            thread_count=counts[0],
            state_count=sum(counts[1:]),
            broken_holds=tuple(walk.holds.broken),
            erasure_pending=tuple(each.stream_id for each in erasures if has_remains(log, each)),
            redaction_pending=tuple(dict.fromkeys(each.stream_id for each in erasures if has_content(log, each))),
        )
    finally:
        scratch.close()


class IndexPair(NamedTuple):
    """The index and the replay of the log at the same position, each in one transaction."""

    live: Tables
    live_txn: Transaction
    replayed: Tables
    replayed_txn: Transaction
    position: int


class DifferenceError(Exception):
    """The index says something else than the log. It counts when it is there still after the index has caught up."""

    def __init__(self, error: ChatledgerError, *, position: int) -> None:
        super().__init__(str(error))
        self.error, self.position = error, position


class IndexComparison:
    """
    Compares an index with the replay of its log. Other writers wait for one slice of it at most.

    Args:
        index: The index that serves.
        walk: A walk that has not gone beyond the position of the index.
        catch_up: Brings the index to the end of the log.
        progress: Is told the number of the chat that is compared, which is the position of its first event.
    """

    def __init__(
        self, index: Index, walk: Walk, *, catch_up: Callable[[], object], progress: Callable[[int], None]
    ) -> None:
        self._index, self._walk, self._catch_up, self._progress = index, walk, catch_up, progress
        self.chat_count = self.message_count = 0

    def run(self) -> None:
        """
        Compare everything.

        Raises:
            ChainIntegrityError: The index has seen another event as the last of a chat than the log has.
            CorruptStateError: The index says something else than the log.
        """
        # NumPy takes a tenth of a second to import: only for those who verify.
        from .search_check import TermHashes
        from .search_sums import DAMAGE, SearchSums

        at: int | None = -1
        with self._index.snapshot() as snapshot:
            try:
                # Of the whole index at once: its rows are ordered by terms, not by chats.
                sums = SearchSums(snapshot.txn, snapshot.tables)
            except DAMAGE as error:
                msg = f"{error}. The log is not affected; 'chatledger rebuild --only search' repairs that"
                raise CorruptStateError(msg) from error
        terms = TermHashes()
        while at is not None:
            at = self._confirmed(lambda pair, at=at: self._chats(pair, at, sums, terms))  # type: ignore[misc]  # a default of a lambda
        after: int | None = 0
        while after is not None:
            after = self._confirmed(lambda pair, after=after: _values(pair, after, sums, terms))  # type: ignore[misc]  # as above
        sums.check_whole()
        tables = vars(self._walk.scratch.tables)
        kind = type(self._walk.scratch.tables.rows)
        is_equal = {name for name, table in tables.items() if isinstance(table, kind)} - _NOT_COMPARED
        for name in sorted(is_equal):
            key: bytes | None = b""
            while key is not None:
                key = self._confirmed(lambda pair, name=name, key=key: _table(pair, name, key))  # type: ignore[misc]  # as above

    def _confirmed(self, compare: Callable[[IndexPair], T]) -> T:
        """The answer of a comparison; a difference must outlive that the index catches up with deletions in progress."""
        seen = -1
        for attempt in range(_ATTEMPTS):
            try:
                with self._pair() as pair:
                    return compare(pair)
            except DifferenceError as difference:
                if difference.position == seen or attempt == _ATTEMPTS - 1:
                    raise difference.error from difference
                seen = difference.position
            # The index is written meanwhile: a difference counts that is still there when the position has not changed.
            self._catch_up()
        raise AssertionError

    @contextmanager
    def _pair(self) -> Generator[IndexPair]:
        with self._index.snapshot() as snapshot:
            state = snapshot.state
            self._walk.to(state.position)
            with self._walk.scratch.reading() as txn:
                pair = IndexPair(snapshot.tables, snapshot.txn, self._walk.scratch.tables, txn, state.position)
                if self._walk.state.position == state.position and self._walk.state.hash != state.hash:
                    msg = (
                        f"the event at position {state.position} of the log is not the one that the index has seen there: it was "
                        "changed, or the index is damaged. Compare the log with a backup or an anchor; if the log is right, "
                        "'chatledger rebuild'"
                    )
                    error = ChainIntegrityError(msg, position=state.position)
                    raise DifferenceError(error, position=state.position)
                yield pair

    def _chats(self, pair: IndexPair, after: int, sums: "SearchSums", terms: "TermHashes") -> int | None:
        """Compare the next chats; returns the last one that was, or None at the end."""
        from .search_check import SearchCheck

        search = SearchCheck(pair.live, pair.live_txn, sums, terms)
        deadline = time.monotonic() + _SLICE_S
        at, chats, messages = after, 0, 0
        while True:
            numbers = [
                next_chat(pair.live, pair.live_txn, at),
                next_chat(pair.replayed, pair.replayed_txn, at),
            ]
            present = [chat_no for chat_no in numbers if chat_no is not None]
            if present:
                at = min(present)
                try:
                    messages += compare_chat(pair, at, search)
                except DifferenceError:
                    # What is wrong with the search index of those before comes first, whatever batches they came in.
                    search.drop(at)
                    _check_search(pair, search)
                    raise
                chats += 1
            if not present or time.monotonic() > deadline:
                _check_search(pair, search)
                self.chat_count += chats
                self.message_count += messages
                self._progress(at)
                return at if present else None


def _values(pair: IndexPair, after: int, sums: "SearchSums", terms: "TermHashes") -> int | None:
    """Compare the search index with the messages of the next threads, states and items; returns the last one that was, or None at the end."""
    from .search_check import SearchCheck

    search = SearchCheck(pair.live, pair.live_txn, sums, terms)
    deadline = time.monotonic() + _SLICE_S
    last: int | None = None
    for messages_no, _, _ in searched_values(pair.live_txn, pair.live, after=after):
        last = messages_no
        with _readable(pair, messages_no):
            value = value_at(pair.live_txn, pair.live, messages_no)
            search.begin(messages_no)
            if value is not None:
                search.take_held(messages_no, HeldMessages(pair.live_txn, pair.live, value))
        if time.monotonic() > deadline:
            break
    else:
        last = None
    _check_search(pair, search)
    return last


def _check_search(pair: IndexPair, search: "SearchCheck") -> None:
    first = search.finish()
    if first is not None:
        chat_no, problem = first
        raise _difference(pair, chat_no, f"{problem}; 'chatledger rebuild --only search' repairs that")


def compare_chat(pair: IndexPair, chat_no: int, search: "SearchCheck") -> int:
    """Compare one chat, which one of both has, and let `search` take its messages; returns how many it has."""
    with _readable(pair, chat_no):
        search.begin(chat_no)
        kind = find_difference(
            (pair.live, pair.live_txn), (pair.replayed, pair.replayed_txn), chat_no, take=partial(search.take, chat_no)
        )
        if kind is not None:
            # Compare the last event of the chat: here the index may know what the log has lost.
            live = IndexedChat(pair.live, pair.live_txn, "", chat_no).record
            replayed = IndexedChat(pair.replayed, pair.replayed_txn, "", chat_no).record
            if live is None and replayed is not None:
                raise _difference(pair, chat_no, "it is not in the index")
            if live is not None and (replayed is None or live.head != replayed.head):
                name = _name(pair, chat_no)
                has = (
                    "has none of its events"
                    if replayed is None
                    else f"ends with event {replayed.head.version} at {replayed.head.position}"
                )
                msg = (
                    f"the index has seen event {live.head.version} of chat {name!r} at position {live.head.position}, with the hash "
                    f"{live.head.hash.hex()[:16]}… after events at certain positions; the log {has}, or differs in hash or positions. "
                    "Events were changed, dropped or moved, or the index is damaged: compare the log with a backup or an anchor, and "
                    "if the log is right, 'chatledger rebuild'"
                )
                raise DifferenceError(
                    ChainIntegrityError(msg, chat_id=name, position=live.head.position, version=live.head.version),
                    position=pair.position,
                )
            raise _difference(pair, chat_no, f"{kind} is not what the log says")
        record = IndexedChat(pair.replayed, pair.replayed_txn, "", chat_no).record
        return 0 if record is None else record.message_count


def _table(pair: IndexPair, name: str, start: bytes) -> bytes | None:
    """Compare the next rows of a table; returns the key to go on with, or None at the end."""
    deadline = time.monotonic() + _SLICE_S
    ours = _table_rows(pair.live_txn, pair.live, name, start)
    theirs = _table_rows(pair.replayed_txn, pair.replayed, name, start)
    count = _MANY_ROWS if name in _SHORT_ROWS else _FEW_ROWS
    while True:
        here, there = list(islice(ours, count)), list(islice(theirs, count))
        if here != there:
            first = next(rows for rows in zip_longest(here, there) if rows[0] != rows[1])
            raise _table_difference(pair, name, min(row for row in first if row is not None))
        if not here:
            return None
        last = here[-1][0]
        if last != start and time.monotonic() > deadline:
            return last


_SHORT_ROWS: Final = frozenset(
    {"branch_ids", "chat_ids", "expiry", "head_sums", "heads", "log_entries", "message_ids", "order", "tiles"}
)
_MANY_ROWS: Final = 512
_FEW_ROWS: Final = 8
"""So many rows of a table are in memory together; those of `_SHORT_ROWS` have some hundred bytes at most."""


def _table_rows(txn: Transaction, tables: Tables, name: str, start: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of a table from a key on, but for those that a replayed index may lack."""
    cursor = txn.cursor(getattr(tables, name))
    if not cursor.set_range(start):
        return iter(())
    rows = cursor.iternext()
    if name != "versioned":
        return rows
    return (row for row in rows if not is_of_copy(row[0]))


def _table_difference(pair: IndexPair, name: str, row: tuple[bytes, bytes]) -> DifferenceError:
    kinds = {
        "order": "its place in a list of chats",
        "message_ids": "where a message of it is",
        "branch_ids": "the look-up of a branch by its id",
        "chat_ids": "the look-up by its id, or the tombstone",
    }
    what = f"{kinds.get(name, f'table {name!r}')} is not what the log says"
    chat_no = to_number(row[1][:8]) if len(row[1]) >= 8 and name in kinds else None
    if chat_no is not None and (
        next_chat(pair.replayed, pair.replayed_txn, chat_no - 1) == chat_no if chat_no else False
    ):
        return _difference(pair, chat_no, what)
    readable = row[0][2:].decode(errors="replace") if name == "chat_ids" and row[0][1:2] == b"t" else row[0].hex()
    return DifferenceError(_corrupt(f"{what}, at key {readable!r}", None), position=pair.position)


def _difference(pair: IndexPair, chat_no: int, what: str) -> DifferenceError:
    return DifferenceError(_corrupt(what, _name(pair, chat_no)), position=pair.position)


def _corrupt(what: str, chat_id: str | None) -> CorruptStateError:
    where = "" if chat_id is None else f"chat {chat_id!r}: "
    msg = f"the index does not equal the log: {where}{what}. The log is sound up to there; 'chatledger rebuild' repairs the index"
    return CorruptStateError(msg, chat_id=chat_id)


def _name(pair: IndexPair, chat_no: int) -> str:
    """The id of a chat, as the log says, or else the index."""
    for tables, txn in ((pair.replayed, pair.replayed_txn), (pair.live, pair.live_txn)):
        try:
            profile = IndexedChat(tables, txn, "", chat_no).profile
        except msgspec.MsgspecError:
            continue
        if profile is not None:
            return profile.id
    value = value_at(pair.live_txn, pair.live, chat_no)
    return f"(number {chat_no})" if value is None else value.family.shown(value.key)


@contextmanager
def _readable(pair: IndexPair, chat_no: int) -> Generator[None]:
    try:
        yield
    except DifferenceError:
        raise
    except (*_DAMAGE, ChainIntegrityError) as error:
        raise _difference(pair, chat_no, f"its rows cannot be read ({error})") from error

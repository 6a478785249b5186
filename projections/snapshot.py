"""The index at one moment, and reading it without what writes it: an index that nobody changes answers soon after a start."""

import contextlib
import struct
import threading
from collections.abc import Callable, Generator
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple, Self

import lmdb

from chatledger.domain.errors import DECODE_ERRORS, CorruptStateError, LedgerClosedError, QuarantinedError
from chatledger.domain.legal_hold import HoldKind, LegalHold
from chatledger.domain.values import Branch, Chat

from .chat.chains import Place
from .chat.lists import (
    ALL_CHATS,
    ChatCursor,
    ChatList,
    count_chats,
    dropped_large,
    is_large_used,
    large_digests,
    list_chats,
    listed,
)
from .chat.reader import IndexedChat, chat_at
from .generations import Erasure, Generation, Generations, IndexState, read_state
from .lmdb.environment import INITIAL_MAP_BYTES, Transaction, UncleanStopError
from .log.kinds import CHATS, R, StreamKind
from .versioned.lists import searched_values
from .versioned.messages import readable_values

DAMAGE: Final = (lmdb.Error, *DECODE_ERRORS, struct.error, AssertionError)
"""Errors that reading damaged rows comes to."""

Refuse = Callable[[str], None]
"""Raises `QuarantinedError` when the stream is one of these."""
FindHold = Callable[[HoldKind, str], LegalHold | None]
"""Returns the legal hold that was put on something; None for none."""


class SettledIndex(NamedTuple):
    """An index in which nothing is left to be done: the number of its generation, and how far it is."""

    generation_no: int
    state: IndexState


class Snapshot:
    """
    The index at one moment, inside one transaction. With `user_id`, only what that user may read is to be shown of it.

    Attributes:
        txn, tables: The transaction, and the tables of its environment.
        is_past: Whether this is how it was at an earlier moment.
        hold_elsewhere: Finds the holds that an index of a part of the streams does not have; None where it has all.
    """

    user_id: str | None = None
    is_past = False
    until = None

    def __init__(
        self,
        generation: Generation,
        txn: Transaction,
        refuse: Refuse | None = None,
        hold_elsewhere: FindHold | None = None,
    ) -> None:
        self.txn, self.tables = txn, generation.tables
        self._generation, self._refuse = generation, refuse
        self.hold_elsewhere = hold_elsewhere

    @property
    def live(self) -> Self:
        """The index as it is now: this one."""
        return self

    @property
    def state(self) -> IndexState:
        """The position of the index and the hash of the last event."""
        return self._generation.state(self.txn)

    def refuse(self, stream: str) -> None:
        """Raise `QuarantinedError` when a stream lost events, or has a foreign message on its subject."""
        if self._refuse is not None:
            self._refuse(stream)
        foreign = self.tables.foreign(self.txn, stream)
        if foreign is not None:
            from .log.applying import describe_foreign

            raise QuarantinedError(describe_foreign(stream, *foreign), chat_id=stream, position=foreign[0])

    def chat(self, chat_id: str, *, even_quarantined: bool = False) -> IndexedChat:
        """The chat of that id; its record is None when there is none."""
        return self.stream(CHATS, chat_id, even_quarantined=even_quarantined)

    def stream(self, streams: StreamKind[R], key: str, *, even_quarantined: bool = False) -> R:
        """The stream of that kind and key; its record is None when there is none."""
        stream_id = streams.stream_of(key)
        if not even_quarantined:
            self.refuse(stream_id)
        return streams.read(self.tables, self.txn, stream_id)

    def chat_nos(self, *, user_id: str | None = None, reader: str | None = None) -> list[int]:
        """The numbers of all chats, or of those of an owner, or that a reader may see, the last changed first."""
        return listed(self.txn, self.tables, user_id=user_id, reader=reader)

    def searched_chats(self, *, user_id: str | None = None) -> list[int] | None:
        """The same for a search; None: all chats that the search index has."""
        return None if user_id is None else self.chat_nos(user_id=user_id)

    def searched_values(self, *, user_id: str | None = None) -> list[int]:
        """The numbers of the messages of all threads, states and items, or of an owner's."""
        if user_id is None:
            return [messages_no for messages_no, _, _ in searched_values(self.txn, self.tables)]
        return readable_values(self.txn, self.tables, user_id, self.chat_nos(user_id=user_id))

    def find(self, message_id: str) -> tuple[IndexedChat, Place] | None:
        found = self.tables.first_location(self.txn, message_id)
        if found is None:
            return None
        chat = IndexedChat(self.tables, self.txn, "", found[0])
        profile = chat.profile
        assert profile is not None, "a chat with messages has a profile"
        self.refuse(profile.id)
        chat.chat_id = profile.id
        return chat, found[1]

    def branch(self, branch_id: str) -> Branch | None:
        """The branch of that id, whatever its chat; of the oldest chat where several have it."""
        for chat_no, _ in self.tables.branch_keys(self.txn, branch_id):
            chat_id = chat_at(self.txn, self.tables, chat_no)
            assert chat_id is not None, "a chat with branches has a profile"
            return self.chat(chat_id).branch_with_id(branch_id)
        return None

    def list_chats(
        self, chats: ChatList = ALL_CHATS, *, limit: int | None = None, offset: int = 0, after: ChatCursor | None = None
    ) -> list[Chat]:
        return list_chats(self.txn, self.tables, chats, limit=limit, offset=offset, after=after)

    def count_chats(self, chats: ChatList) -> int:
        return count_chats(self.txn, self.tables, chats)

    def erasures(self, *, after: int = 0) -> list[Erasure]:
        """The deleted streams whose events may still be on the log, with tombstones after a position."""
        return self._generation.erasures(self.txn, after=after)

    def pending_slots(self) -> dict[int, set[int]]:
        """The slots of events that are to lose their content and may still have it on the log, by position."""
        slots_by_position: dict[int, set[int]] = {}
        for erasure in self.erasures():
            for position, slots in erasure.targets:
                slots_by_position.setdefault(position, set()).update(slots)
        return slots_by_position

    @property
    def redacted_at(self) -> int:
        """The position of the last event that took content away; 0 for none."""
        return self._generation.redacted_at(self.txn)

    def receipts(self, *, is_pending: bool | None = None) -> list[Erasure]:
        """Erasures that are to be done, or those of the last 30 days, or both, in the order of the tombstones."""
        to_do = [] if is_pending is False else self.erasures()
        done = [] if is_pending is True else self._generation.erased(self.txn)
        return sorted(to_do + done, key=attrgetter("tombstone_position"))

    def dropped_large(self) -> list[bytes]:
        """The digests of large data of deleted chats that may still be stored."""
        return dropped_large(self.txn, self.tables)

    def is_large_used(self, digest: bytes) -> bool:
        """Whether a chat has a message with large data of that digest."""
        return is_large_used(self.txn, self.tables, digest)

    def large_digests(self) -> list[bytes]:
        return list(large_digests(self.txn, self.tables))

    @property
    def entry_count(self) -> int:
        """The number of positions that hold an event of a living stream, a tombstone or a foreign message."""
        return int(self.txn.stat(self.tables.log_entries)["entries"])

    @property
    def is_scrub_due(self) -> bool:
        """Whether the files may still have what was deleted."""
        return self._generation.scrub_due(self.txn) is not None

    def settled(self) -> SettledIndex | None:
        """Return how far the index is; None when something is to be erased from it, or the search index is not complete."""
        from .search.indexer import is_behind, is_current

        is_searchable = is_current(self.txn, self.tables) and not is_behind(self.txn, self.tables)
        is_due = self.erasures() or self.dropped_large() or self.is_scrub_due
        return SettledIndex(self._generation.number, self.state) if is_searchable and not is_due else None


class IndexReader:
    """
    The index of one log, kept in LMDB and shared by the threads and processes that have it open.

    `open` tells whether it can serve.
    """

    def __init__(self, root: Path, *, identity: str, map_bytes: int = INITIAL_MAP_BYTES, is_kept: bool = True) -> None:
        self._generations = Generations(root, map_bytes=map_bytes, is_kept=is_kept)
        self._identity = identity
        self._live: Generation | None = None
        self._swap = threading.Lock()
        self._is_closed = False
        self.refuse: Refuse | None = None
        self.hold_elsewhere: FindHold | None = None

    def open(self) -> str | None:
        """Open the current generation. Returns why it cannot serve, or None when it does."""
        number = self._generations.current
        if number is None:
            return "there is none yet"
        try:
            generation = self._generations.open(number)
        except UncleanStopError:
            return "the machine went down while it was open"
        except CorruptStateError as error:
            return str(error)
        reason = generation.mismatch(self._identity)
        if reason is not None:
            generation.close()
            return reason
        self._live = generation
        self._generations.remove_unused()
        return None

    def last_seen(self) -> IndexState | None:
        """Return the position of the current generation after `open` refused it; None when it is unknown."""
        number = self._generations.current
        return None if number is None else read_state(self._generations.path(number), self._identity)

    @contextlib.contextmanager
    def snapshot(self) -> Generator[Snapshot]:
        """The index at one moment. Begin no other one, and do not write, inside the `with`: growing the map waits for it."""
        generation, txn = self._begin()
        try:
            yield Snapshot(generation, txn, self.refuse, self.hold_elsewhere)
        except DAMAGE as error:
            generation.is_suspect = True
            msg = f"the index at {generation.path} is damaged: {error}; rebuild it, the log is not affected"
            raise CorruptStateError(msg) from error
        finally:
            txn.abort()
            generation.end()

    def _begin(self) -> tuple[Generation, Transaction]:
        while True:
            generation = self._generation()
            try:
                txn = generation.begin()
            except LedgerClosedError:
                if self._is_closed or generation is self._live:
                    raise
                continue
            if not generation.is_retired(txn):
                return generation, txn
            txn.abort()
            generation.end()
            self._follow(generation)

    def _current(self) -> Generation:
        """The generation that serves, also when another process has built it meanwhile."""
        generation, txn = self._begin()
        txn.abort()
        generation.end()
        return generation

    @property
    def state(self) -> IndexState:
        """Return the position of the index and the hash of the last event."""
        with self.snapshot() as snapshot:
            return snapshot.state

    def _generation(self) -> Generation:
        if self._live is None or self._is_closed:
            msg = "the ledger is closed"
            raise LedgerClosedError(msg)
        return self._live

    def _follow(self, retired: Generation) -> None:
        """Go over to the generation that took over from `retired`."""
        with self._swap:
            if self._live is not retired:
                return
            number = self._generations.current
            assert number is not None, "a generation is retired after its successor is published"
            self._live = self._generations.open(number)
        retired.close()
        self._generations.remove_unused()

    @property
    def folder(self) -> Path:
        """The folder of all generations; what else is derived from the log may lie beside them."""
        return self._generations.root

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def generation_no(self) -> int:
        return self._generation().number

    def close(self) -> bool:
        """Close the files; calling it again does nothing. Returns whether nobody else has them open, and they are on the disk."""
        self._is_closed = True
        live, self._live = self._live, None
        return live is not None and live.close()

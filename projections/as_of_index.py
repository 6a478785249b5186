"""As-of index: a few chats as of an earlier point, in a second index beside the live one."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from chatledger.domain.chat.events import Recorded
from chatledger.domain.chat.state import NO_STREAM, StreamHead, Tombstone, stream_head
from chatledger.domain.values import no_progress

from .chat.reader import IndexedChat
from .generations import Generation
from .lmdb.environment import INITIAL_MAP_BYTES, Reading, Transaction, drop_prefixed, prefixed
from .lmdb.keys import number
from .lmdb.tables import Tables

_COMPLETE: Final = b"complete:"
_SEARCHABLE: Final = b"searchable:"


class AsOfChat(IndexedChat):
    """A chat that was replayed into an as-of index."""


class AsOfIndex:
    """
    A temporary index of chats that were replayed up to a point. It is not kept in step with the log.

    Args:
        folder: An empty folder, or one into which `copy` was called. Nothing is opened by name after this, so that it may be
            removed at once.
        held: The chats that are in it, when it is a copy.
    """

    def __init__(self, folder: Path, *, held: frozenset[int] = frozenset()) -> None:
        self._generation = Generation(1, folder, map_bytes=INITIAL_MAP_BYTES, is_kept=False)
        self._env, self.tables = self._generation, self._generation.tables
        self._held = set(held)
        try:
            self._begin()
        except BaseException:
            self._env.close()
            raise

    @classmethod
    def copied(cls, source: Self, folder: Path) -> Self:
        """
        Return a copy of another one, whose chats are to be carried on to a later point. None of them is complete in it.

        Raises:
            LedgerClosedError: The source was closed.
        """
        source._env.copy(folder)
        return cls(folder, held=source.held)

    @property
    def held(self) -> frozenset[int]:
        """The numbers of the chats of which something may be in it."""
        return frozenset(self._held.copy())

    def hold(self, chat_numbers: Iterable[int]) -> None:
        """Note that events of these chats are about to be taken in."""
        self._held.update(chat_numbers)

    def _begin(self) -> None:
        from .search import filling

        if not self._held:
            # Nothing is in it yet: this says that its search index is current and lacks nothing.
            filling.build(self._env, self.tables, anew=True, progress=no_progress)
            return

        def change(txn: Transaction) -> None:
            for prefix in (_COMPLETE, _SEARCHABLE):
                drop_prefixed(txn, self.tables.meta, prefix)

        self._env.update(change)

    @property
    def used_bytes(self) -> int:
        """Bytes of its file that have pages. Not to be asked for after it was closed."""
        return self._env.used_bytes

    def reading(self) -> Reading:
        """A read transaction, as a context manager. `apply` may wait for its end."""
        return self._env.reading()

    def apply(self, events: Sequence[Recorded], *, tombstones: Mapping[str, Tombstone]) -> None:
        """
        Take the next events of some chats in; those that were applied before are passed over.

        Args:
            events: In log order.
            tombstones: By chat id, the deletion that a chat's first event follows.

        Raises:
            ChainIntegrityError: They do not follow what was applied before. Nothing of them was taken in.
        """
        from .chat.writer import ChatWriter

        def change(txn: Transaction) -> None:
            writers: dict[str, ChatWriter] = {}
            for recorded in events:
                chat_id = recorded.chat_id
                writer = writers.get(chat_id)
                if writer is None:
                    tombstone = tombstones.get(chat_id)
                    if tombstone is not None and self.tables.chat_no(txn, chat_id) is None:
                        self.tables.put_tombstone(txn, chat_id, tombstone)
                    writer = writers[chat_id] = ChatWriter(self.tables, txn, chat_id)
                    if writer.chat_no is None:
                        self._drop(txn, recorded.position)
                if recorded.position > stream_head(writer).position:
                    writer.apply(recorded)
            for writer in writers.values():
                writer.flush()

        self._env.update(change)

    def copy_chats(self, live: Transaction, tables: Tables, chat_numbers: Sequence[int]) -> None:
        """
        Copy chats from the live index, so that they are searched together with replayed ones.

        A search looks into one index only. Rows of messages are copied as they are, which takes a fraction of replaying the chats.
        """
        from .search import filling
        from .search.indexer import is_behind, is_current, note_behind

        # While the live search index is being built, messages are compared here too.
        is_complete = is_current(live, tables) and not is_behind(live, tables)
        self.hold(chat_numbers)

        def change(txn: Transaction) -> None:
            if not is_complete:
                note_behind(txn, self.tables)
            for chat_no in chat_numbers:
                if self.is_complete(txn, chat_no):
                    continue  # another thread has replayed it meanwhile
                self._drop(txn, chat_no)
                txn.cursor(self.tables.rows).putmulti(list(prefixed(live, tables.rows, number(chat_no))))

        def note(txn: Transaction) -> None:
            for chat_no in chat_numbers:
                txn.put(_SEARCHABLE + number(chat_no), b"", db=self.tables.meta)

        self._env.update(change)
        if is_complete:
            filling.take_in(self._env, self.tables, chat_numbers)
        self._env.update(note)

    def _drop(self, txn: Transaction, chat_no: int) -> None:
        from .search import indexer
        from .search.deletion import finish_step

        chat = IndexedChat(self.tables, txn, "", chat_no)
        if chat.record is not None:
            messages = (message for _, message in chat.chains.all_messages())
            indexer.forget_messages(txn, self.tables, chat_no, messages)
            while finish_step(txn, self.tables):
                pass
        drop_prefixed(txn, self.tables.rows, number(chat_no))

    def is_searchable(self, txn: Transaction, chat_no: int) -> bool:
        """Whether a chat can be searched here, replayed or copied."""
        return self.is_complete(txn, chat_no) or txn.get(_SEARCHABLE + number(chat_no), db=self.tables.meta) is not None

    def head(self, chat_id: str) -> StreamHead:
        """The last event that was applied to a chat."""
        with self.reading() as txn:
            record = IndexedChat(self.tables, txn, chat_id, self.tables.chat_no(txn, chat_id)).record
            return NO_STREAM if record is None else record.head

    def note_complete(self, chat_numbers: Sequence[int]) -> None:
        """Note that all events of these chats are in that belong here."""

        def change(txn: Transaction) -> None:
            for chat_no in chat_numbers:
                txn.put(_COMPLETE + number(chat_no), b"", db=self.tables.meta)

        self._env.update(change)

    def is_complete(self, txn: Transaction, chat_no: int) -> bool:
        """Whether all events of a chat are in that belong here; it may have none."""
        return txn.get(_COMPLETE + number(chat_no), db=self.tables.meta) is not None

    def close(self) -> None:
        """Wait for transactions to end, and close; calling it again does nothing."""
        self._env.close()

"""Indexing the messages of chats for search: as they are written, and from the chains, chat by chat, while the index is in use."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from chatledger.domain.search.tokens import LANDMARK_TERMS, TOKENIZER, landmarks_of, terms_of
from chatledger.domain.values import Message, Progress

from ..chat.chains import Place
from ..chat.lists import listed
from ..chat.reader import IndexedChat
from ..lmdb.environment import Environment, Transaction
from ..lmdb.tables import Tables
from .rows import DOCUMENT, SearchRows, SearchState

if TYPE_CHECKING:
    from .inversion import Batch

VERSION: Final = b"1/" + TOKENIZER
"""Changes whenever rows, keys or terms do; a search index of another version is built anew."""

_VERSION, _BEHIND = b"search", b"search behind"


def is_current(txn: Transaction, tables: Tables) -> bool:
    """Whether the search index was made by this version."""
    return txn.get(_VERSION, db=tables.meta) == VERSION


def is_behind(txn: Transaction, tables: Tables) -> bool:
    """Whether there may be chats with messages that are not in the search index."""
    return txn.get(_BEHIND, db=tables.meta) is not None


def note_behind(txn: Transaction, tables: Tables) -> None:
    """Note that a message was left out."""
    if not is_behind(txn, tables):
        txn.put(_BEHIND, b"1", db=tables.meta)


def note_complete(txn: Transaction, tables: Tables) -> None:
    """Note that none is left out."""
    txn.delete(_BEHIND, db=tables.meta)


def begin_anew(txn: Transaction, tables: Tables) -> None:
    """Drop the whole search index; it is of this version from now on, and behind."""
    txn.drop(tables.search, delete=False)
    txn.put(_VERSION, VERSION, db=tables.meta)
    note_behind(txn, tables)


PENDING_DOCUMENTS: Final = 64
"""So many documents are inverted together: one alone would touch as many pages of the index as it has terms."""


PENDING_TERMS: Final = 1 << 16
"""More terms at a time do not wait: those that wait are all read again together."""


class SearchWriter:
    """
    The search index of one chat in a write transaction. What was added is in the tables after `flush`.

    A chat whose index lags behind, because it is being built, is left alone: whoever builds it will come to the new messages.
    """

    def __init__(self, txn: Transaction, tables: Tables, chat_no: int) -> None:
        self._txn, self._tables = txn, tables
        self._rows = SearchRows(txn, tables.search, chat_no)
        self._is_current = is_current(txn, tables)
        self._is_behind = False
        self._before = self._rows.state
        self._next = self._before.indexed
        self._texts: list[list[str]] = []
        self._records: list[bytes] = []
        self._roles: dict[str, int] = {}
        self._role_count = self._before.roles

    @property
    def state(self) -> SearchState:
        """Return the state of the index before the transaction."""
        return self._before

    def add(self, message: Message, ordinal: int, place: Place) -> None:
        """Take the next message in, which is at that place of the chains."""
        if ordinal != self._next or not self._is_current:
            if not self._is_behind:
                note_behind(self._txn, self._tables)
                self._is_behind = True
            return
        self._next += 1
        terms = terms_of(message.text)
        if len(terms) > LANDMARK_TERMS:
            self._rows.put_landmarks(ordinal, landmarks_of(message.text))
        self._texts.append(terms)
        self._records.append(DOCUMENT.pack(len(terms), self._role(message.name), message.created_at, *place))

    def flush(self) -> None:
        """Write what was added since the last flush."""
        if not self._texts:
            return
        before = self._before
        self._rows.add_documents(before.indexed, b"".join(self._records))
        terms = before.terms + sum(map(len, self._texts))
        after = SearchState(self._next, before.inverted, terms, self._role_count)
        if after.indexed - after.inverted < PENDING_DOCUMENTS and terms - before.terms < PENDING_TERMS:
            self._put_pending(self._texts)
        else:
            self._invert_pending(self._texts)
            after = after._replace(inverted=after.indexed)
        self._rows.put_state(after)
        self._before = after
        self._texts, self._records = [], []

    def take(self, batch: "Batch") -> None:
        """Write the next documents, which are inverted already."""
        from .inversion import add_postings

        before = self._before
        assert not self._texts, "what was added is flushed before"
        assert batch.first_document == before.indexed, "documents follow those that were taken before"
        self._rows.add_documents(before.indexed, batch.records([self._role(name) for name in batch.names]))
        for document, landmarks in batch.landmarks:
            self._rows.put_landmarks(document, landmarks)
        end = before.indexed + batch.document_count
        after = SearchState(end, before.inverted, before.terms + batch.term_count, self._role_count)
        if after.indexed - after.inverted < PENDING_DOCUMENTS and batch.term_count < PENDING_TERMS:
            self._put_pending(batch.texts)
        else:
            if before.inverted < before.indexed:
                self._invert_pending([])
            add_postings(self._rows, batch.inverted, is_first=not batch.first_document)
            after = after._replace(inverted=after.indexed)
        self._rows.put_state(after)
        self._before, self._next = after, end

    def _put_pending(self, texts: Sequence[Sequence[str]]) -> None:
        for document, terms in enumerate(texts, self._before.indexed):
            self._rows.put_pending(document, text_of(terms))

    def _invert_pending(self, texts: Sequence[Sequence[str]]) -> None:
        """Invert the documents that wait, and those that follow."""
        # NumPy takes a tenth of a second to import: only for those who write much.
        from .inversion import add_postings, invert_terms

        waiting = [*map(terms_in, self._rows.pending()), *texts]
        self._rows.drop_pending(self._before.inverted, self._before.indexed)
        first = self._before.inverted
        add_postings(self._rows, invert_terms(waiting, first_document=first), is_first=not first)

    def _role(self, name: str) -> int:
        known = self._roles.get(name)
        if known is None:
            known = self._rows.role(name)
            if known is None:
                known = self._role_count
                self._role_count += 1
                self._rows.put_role(name, known)
            self._roles[name] = known
        return known


def text_of(terms: Sequence[str]) -> bytes:
    """The terms of a document as one text, in which each stands between two NULs, so that a term can be looked for."""
    return "\0".join(["", *terms, ""]).encode() if terms else b""


def terms_in(text: bytes) -> list[str]:
    """The terms of such a text."""
    return text.decode().split("\0")[1:-1] if text else []


CHUNK_MESSAGES: Final = 32_768
"""Taken in by one transaction, at most; other writers wait for it, for about a tenth of a second."""


def is_complete(env: Environment, tables: Tables) -> bool:
    """Whether the search index is of this version, and of all messages."""
    with env.reading() as txn:
        return is_current(txn, tables) and not is_behind(txn, tables)


def build(
    env: Environment,
    tables: Tables,
    *,
    anew: bool,
    progress: Progress,
    chunk_messages: int = CHUNK_MESSAGES,
) -> None:
    """
    Take in the messages that are missing; with `anew`, or when the version changed, all of them.

    It can be interrupted at any point, and goes on where it was when it is called again.
    """

    def begin(txn: Transaction) -> None:
        if anew or not is_current(txn, tables):
            begin_anew(txn, tables)

    env.update(begin)
    with env.reading() as txn:
        chats = listed(txn, tables, user_id=None)
        total = sum(_message_count(txn, tables, chat_no) for chat_no in chats)
    done = 0
    progress(done, total)
    if chats:
        # NumPy takes a tenth of a second to import: only for those who build.
        from .inversion import Builder

        builder = Builder(env, tables, chunk_messages)
        for chat_no in chats:
            for taken in builder.take_in(chat_no):
                done += taken
                progress(min(done, total), total)
    env.update(lambda txn: note_complete(txn, tables) if is_current(txn, tables) else None)
    progress(total, total)


def _message_count(txn: Transaction, tables: Tables, chat_no: int) -> int:
    record = IndexedChat(tables, txn, "", chat_no).record
    return 0 if record is None else record.message_count

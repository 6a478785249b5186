"""Indexing the messages of chats for search: as they are written, and from the chains, chat by chat, while the index is in use."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from chatledger.domain.search.fields import TEXT, SearchField, other_texts
from chatledger.domain.search.tokens import LANDMARK_TERMS, TOKENIZER, landmarks_of, terms_of
from chatledger.domain.values import Message, Progress

from ..chat.chains import Place
from ..chat.lists import listed
from ..chat.reader import IndexedChat
from ..lmdb.environment import Environment, Transaction
from ..lmdb.tables import Tables
from .rows import DOCUMENT, SearchRows, SearchState

if TYPE_CHECKING:
    from .inversion import Batch, Words

VERSION: Final = b"2/" + TOKENIZER
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


class FieldWriter:
    """
    One field of the documents of a chat in a write transaction. What was added is in the tables after `flush`.

    Terms wait until there are enough to invert. With `keeps_lengths` the number of terms of each document is kept too.
    """

    def __init__(self, rows: SearchRows, *, keeps_lengths: bool) -> None:
        self._rows, self._keeps_lengths = rows, keeps_lengths
        self.state = rows.state
        """The state before what was added since the last flush."""
        self._documents: list[int] = []
        self._texts: list[list[str]] = []

    def add(self, document: int, text: str) -> int:
        """Take in the text of the next document that has the field; returns how many terms it has."""
        terms = terms_of(text)
        if len(terms) > LANDMARK_TERMS:
            self._rows.put_landmarks(document, landmarks_of(text))
        self._documents.append(document)
        self._texts.append(terms)
        return len(terms)

    def flush(self, role_count: int = 0) -> None:
        """Write what was added since the last flush."""
        if not self._texts:
            return
        documents, texts = self._documents, self._texts
        if self._keeps_lengths:
            self._rows.add_lengths(zip(documents, map(len, texts), strict=True))
        after, may_wait = self._after(len(texts), sum(map(len, texts)), role_count)
        if may_wait:
            self._put_pending(documents, texts)
        else:
            self._invert_pending(documents, texts)
            after = after._replace(inverted=after.indexed)
        self._rows.put_state(after)
        self.state, self._documents, self._texts = after, [], []

    def take(self, words: "Words", role_count: int = 0) -> None:
        """Write the next documents, whose terms are numbered already."""
        from .inversion import add_postings

        assert not self._texts, "what was added is flushed before"
        before, documents = self.state, words.documents.tolist()
        for document, landmarks in words.landmarks:
            self._rows.put_landmarks(document, landmarks)
        if self._keeps_lengths:
            self._rows.add_lengths(zip(documents, words.lengths.tolist(), strict=True))
        after, may_wait = self._after(len(documents), words.term_count, role_count)
        if may_wait:
            self._put_pending(documents, words.texts)
        else:
            if before.inverted < before.indexed:
                self._invert_pending([], [])
            add_postings(self._rows, words.inverted, is_first=not before.indexed)
            after = after._replace(inverted=after.indexed)
        self._rows.put_state(after)
        self.state = after

    def _after(self, count: int, term_count: int, role_count: int) -> tuple[SearchState, bool]:
        """Return the state after so many documents and terms more, and whether they may wait."""
        indexed, inverted, terms, _ = self.state
        after = SearchState(indexed + count, inverted, terms + term_count, role_count)
        return after, after.indexed - inverted < PENDING_DOCUMENTS and term_count < PENDING_TERMS

    def _put_pending(self, documents: Sequence[int], texts: Sequence[Sequence[str]]) -> None:
        for document, terms in zip(documents, texts, strict=True):
            self._rows.put_pending(document, text_of(terms))

    def _invert_pending(self, documents: Sequence[int], texts: Sequence[Sequence[str]]) -> None:
        """Invert the documents that wait, and those that follow."""
        # NumPy takes a tenth of a second to import: only for those who write much.
        from .inversion import add_postings, invert_terms

        waiting = self._rows.pending_documents(self.state)
        terms = [*map(terms_in, self._rows.pending()), *texts]
        self._rows.drop_pending(waiting)
        add_postings(self._rows, invert_terms(terms, [*waiting, *documents]), is_first=not self.state.inverted)


class SearchWriter:
    """
    The search index of one chat in a write transaction. What was added is in the tables after `flush`.

    A chat whose index lags behind, because it is being built, is left alone: whoever builds it will come to the new messages.
    """

    def __init__(self, txn: Transaction, tables: Tables, chat_no: int) -> None:
        self._txn, self._tables, self._chat_no = txn, tables, chat_no
        self._rows = SearchRows(txn, tables.search, chat_no)
        self._is_current = is_current(txn, tables)
        self._is_behind = False
        self._text = FieldWriter(self._rows, keeps_lengths=False)
        self._others: dict[SearchField, FieldWriter] = {}
        self._next = self._text.state.indexed
        self._records: list[bytes] = []
        self._roles: dict[str, int] = {}
        self._role_count = self._text.state.roles

    @property
    def state(self) -> SearchState:
        """Return the state of the text before what was added since the last flush."""
        return self._text.state

    def add(self, message: Message, ordinal: int, place: Place) -> None:
        """Take the next message in, which is at that place of the chains."""
        if ordinal != self._next or not self._is_current:
            if not self._is_behind:
                note_behind(self._txn, self._tables)
                self._is_behind = True
            return
        self._next += 1
        length = self._text.add(ordinal, message.text)
        self._records.append(DOCUMENT.pack(length, self._role(message.name), message.created_at, *place))
        for field, text in other_texts(message.data).items():
            self._other(field).add(ordinal, text)

    def flush(self) -> None:
        """Write what was added since the last flush."""
        if not self._records:
            return
        self._rows.add_documents(self._text.state.indexed, b"".join(self._records))
        self._records = []
        self._text.flush(self._role_count)
        for writer in self._others.values():
            writer.flush()

    def take(self, batch: "Batch") -> None:
        """Write the next documents, whose terms are numbered already."""
        indexed = self._text.state.indexed
        assert not self._records, "what was added is flushed before"
        assert batch.first_document == indexed, "documents follow those that were taken before"
        self._rows.add_documents(indexed, batch.records([self._role(name) for name in batch.names]))
        self._text.take(batch.words[TEXT], self._role_count)
        for field, words in batch.words.items():
            if field != TEXT:
                self._other(field).take(words)
        self._next = self._text.state.indexed

    def _other(self, field: SearchField) -> FieldWriter:
        if field not in self._others:
            rows = SearchRows(self._txn, self._tables.search, self._chat_no, field)
            self._others[field] = FieldWriter(rows, keeps_lengths=True)
        return self._others[field]

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

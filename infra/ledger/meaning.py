"""
Search by meaning: the query becomes a vector, the nearest messages are found by theirs, and merged with those found by words.

The function of the embedding runs before any transaction, and the vectors are looked through between two snapshots: the first
says which chats are searched, the second shows the messages, of which those are left out that were deleted in between.
"""

import contextvars
import threading
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from chatledger.domain.errors import ConfigurationError, EmbeddingError
from chatledger.domain.search.embedding import (
    Embedding,
    Ranking,
    SearchMode,
    fused,
    piece_digest,
    role_key,
)
from chatledger.domain.search.query import parse
from chatledger.domain.search.snippets import Snippets, literal_snippet
from chatledger.domain.values import Message, SearchHit, SearchHits
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.meaning.scan import Near, Selection, find_near
from chatledger.projections.meaning.vector_index import TakenIn, VectorIndex
from chatledger.projections.meaning.vectors import embed_texts
from chatledger.projections.search.evaluation import Filter
from chatledger.projections.search.manifest import totals_of
from chatledger.projections.search.search import Scope, ask

from ..store.meaning import NO_EMBEDDING
from ..store.vector_folders import read
from .port import LedgerSnapshot, LedgerStore
from .searching import Searched, SearchRequest, hit_of, search_words, searched_by

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LEAST_DEPTH: Final = 100
_DEPTHS: Final = 3
"""So many times as many as are shown are merged from each ranking."""

_Key = tuple[str, str]


def search_meaning(store: LedgerStore, request: SearchRequest, mode: SearchMode, embed: Embedding | None) -> SearchHits:
    """Find messages by their meaning, or by both; see `SearchMethods.search`."""
    embedding = embed or store.meaning.embedding
    if embedding is None:
        raise ConfigurationError(NO_EMBEDDING)
    store.check_open()
    if not request.text.strip():
        return SearchHits()
    try:
        query = _query_vector(embedding, request.text)
    except EmbeddingError:
        if mode == "meaning":
            raise
        return SearchHits(search_words(store, request), is_degraded=True)
    vectors = store.meaning.find(embedding)
    taken_in = None if vectors is None else read(vectors, vectors.taken_in)
    extent = _extent(store, request, taken_in)
    depth = _end(request) if mode == "meaning" else _depth(request)
    found = _Found([], extent.total) if vectors is None else _look(vectors, query, request, extent, depth)
    pending = _pending(found.lacking, taken_in, extent)
    if request.limit == 0:
        return SearchHits(pending=pending)
    if mode == "meaning":
        return SearchHits(_by_meaning(store, request, embedding, found.near), pending=pending)
    return _by_both(store, request, embedding, found.near, pending)


def _query_vector(embedding: Embedding, text: str) -> "NDArray[np.float32]":
    """Return the vector of a query, by a thread of its own: nobody waits for a function that hangs."""
    outcomes: SimpleQueue[NDArray[np.float32] | EmbeddingError] = SimpleQueue()

    def embed() -> None:
        try:
            outcomes.put(embed_texts(embedding, [text], is_query=True)[0])
        except EmbeddingError as error:
            outcomes.put(error)

    # In the caller's context, which tracing and logins of a function may go by.
    threading.Thread(target=contextvars.copy_context().run, args=(embed,), name="chatledger-query", daemon=True).start()
    try:
        outcome = outcomes.get(timeout=embedding.query_timeout_s)
    except Empty:
        reason = f"gave no vector of the query within {embedding.query_timeout_s:g} s"
        raise EmbeddingError(embedding.name, reason) from None
    if isinstance(outcome, EmbeddingError):
        raise outcome
    return outcome


class _Extent(NamedTuple):
    """
    The messages that are searched.

    Args:
        chat_nos: The numbers of their chats; None for all.
        counts: How many each of these has, where that matters: some may have no vectors yet, or it is about an earlier moment.
        runs: The branch.
        total: How many there are, as far as that matters.
        is_past: Whether it is about an earlier moment.
        is_behind: Whether some may have no vectors yet.
    """

    chat_nos: list[int] | None
    counts: list[int] | None
    runs: dict[int, int] | None
    total: int
    is_past: bool
    is_behind: bool


def _extent(store: LedgerStore, request: SearchRequest, taken_in: TakenIn | None) -> _Extent:
    with store.snapshot(request.chats) as snapshot:
        searched = searched_by(snapshot, request)
        is_past, chat_nos = snapshot.is_past, searched.chat_nos
        is_behind = is_past or taken_in is None or taken_in.position < snapshot.state.position
        if chat_nos is None:
            count = totals_of(snapshot.txn, snapshot.tables).documents
            return _Extent(None, None, searched.runs, count, is_past, is_behind)
        if not is_behind:
            return _Extent(chat_nos, None, searched.runs, 0, is_past, is_behind)
        counts = [_message_count(snapshot, searched, chat_no) for chat_no in chat_nos]
        return _Extent(chat_nos, counts, searched.runs, sum(counts), is_past, is_behind)


def _message_count(snapshot: LedgerSnapshot, searched: Searched, chat_no: int) -> int:
    chat = searched.chat or IndexedChat(snapshot.tables, snapshot.txn, "", chat_no)
    return 0 if chat.record is None else chat.record.message_count


class _Found(NamedTuple):
    """The messages nearest to a query, and how many of those that were to be looked at have no vectors."""

    near: list[Near]
    lacking: int


def _look(
    vectors: VectorIndex, query: "NDArray[np.float32]", request: SearchRequest, extent: _Extent, depth: int | None
) -> _Found:
    """Find the messages nearest to a query in a transaction of the vectors alone."""
    selection = Selection(
        chats=extent.chat_nos,
        counts=extent.counts if extent.is_past else None,
        roles=None if request.roles is None else frozenset(map(role_key, request.roles)),
        since=request.since,
        until=request.until,
        runs=extent.runs,
    )

    def look(txn: Transaction) -> _Found:
        near = find_near(vectors, txn, query, selection, limit=depth)
        failed = 0
        if vectors.taken_in(txn).failed:
            chosen = None if extent.chat_nos is None else set(extent.chat_nos)
            failed = len(vectors.failed(txn, chosen))
        return _Found(near, _lacking(vectors, txn, extent) + failed)

    return read(vectors, look)


def _lacking(vectors: VectorIndex, txn: Transaction, extent: _Extent) -> int:
    """Return how many of the messages were not taken in."""
    if not extent.is_behind:
        return 0
    if extent.chat_nos is None:
        return max(extent.total - vectors.taken_in(txn).messages, 0)
    counts = vectors.counts(txn, extent.chat_nos)
    return sum(
        max(wanted - counts[chat_no], 0) for chat_no, wanted in zip(extent.chat_nos, extent.counts or (), strict=True)
    )


def _pending(lacking: int, taken_in: TakenIn | None, extent: _Extent) -> int:
    return extent.total if taken_in is None else lacking


def _end(request: SearchRequest) -> int | None:
    """Return the place of the last message to show; None for all."""
    return None if request.limit is None else request.offset + request.limit


def _depth(request: SearchRequest) -> int | None:
    """Return how many messages are merged from each ranking; all when None."""
    end = _end(request)
    return None if end is None else max(_DEPTHS * end, _LEAST_DEPTH)


def _by_meaning(
    store: LedgerStore, request: SearchRequest, embedding: Embedding, near: Sequence[Near]
) -> list[SearchHit]:
    """Return the nearest messages."""
    end = _end(request)
    with store.snapshot(request.chats) as snapshot:
        hits = _near_hits(_scope(snapshot, request), request, embedding, near, end)
    return [
        msgspec.structs.replace(hit, ranks={"meaning": place})
        for place, hit in enumerate(hits[request.offset :], request.offset + 1)
    ]


def _scope(snapshot: LedgerSnapshot, request: SearchRequest) -> Scope:
    searched = searched_by(snapshot, request)
    return Scope(snapshot.txn, snapshot.tables, searched.chat_nos, request.fields, searched.chat)


def _near_hits(
    scope: Scope, request: SearchRequest, embedding: Embedding, near: Sequence[Near], limit: int | None
) -> list[SearchHit]:
    """Return so many of the nearest messages that are still there, and may be shown."""
    hits: list[SearchHit] = []
    for one in near:
        if limit is not None and len(hits) >= limit:
            break
        message = scope.find(one.chat_no, one.segment, one.offset)
        piece = None if message is None else _piece(message, embedding, one.digest)
        if message is None or piece is None:
            continue
        if not request.include_hidden and scope.is_left_out(one.chat_no, one.segment, one.offset):
            continue
        similarity = one.similarity
        hits.append(SearchHit(message=message, rank=-similarity, snippet=literal_snippet(piece), similarity=similarity))
    return hits


def _piece(message: Message, embedding: Embedding, digest: bytes) -> str | None:
    """Return the piece of a message that has a digest; None where the vector is not one of this message."""
    return next((piece for piece in embedding.pieces(message.text) if piece_digest(piece) == digest), None)


def _by_both(
    store: LedgerStore, request: SearchRequest, embedding: Embedding, near: Sequence[Near], pending: int
) -> SearchHits:
    """Merge the messages nearest in meaning with those found by words."""
    depth = _depth(request)
    with store.snapshot(request.chats) as snapshot:
        searched = searched_by(snapshot, request)
        scope = Scope(snapshot.txn, snapshot.tables, searched.chat_nos, request.fields, searched.chat)
        only = Filter(roles=request.roles, since=request.since, until=request.until, runs=searched.runs)
        by_meaning = _near_hits(scope, request, embedding, near, depth)
        by_words, is_degraded = _word_hits(scope, request, only, depth)
    hits: dict[_Key, SearchHit] = {_key(hit): hit for hit in by_meaning}
    for hit in by_words:
        similar = hits.get(_key(hit))
        similarity = None if similar is None else similar.similarity
        hits[_key(hit)] = msgspec.structs.replace(hit, similarity=similarity)
    rankings: dict[Ranking, list[_Key]] = {
        "words": [_key(hit) for hit in by_words],
        "meaning": [_key(hit) for hit in by_meaning],
    }
    end = _end(request)
    merged = [
        msgspec.structs.replace(hits[key], rank=-found.score, ranks=found.places)
        for key, found in fused(rankings)[request.offset : end]
    ]
    return SearchHits(merged, is_degraded=is_degraded, pending=pending)


def _key(hit: SearchHit) -> _Key:
    return hit.message.chat_id, hit.message.id


def _word_hits(scope: Scope, request: SearchRequest, only: Filter, depth: int | None) -> tuple[list[SearchHit], bool]:
    """Return messages with the words, and whether some were only compared."""
    parsed = parse(request.text)
    if parsed is None or scope.chat_nos == []:
        return [], False
    answer = ask(scope, parsed, request.text, only=only, limit=depth, offset=0, include_hidden=request.include_hidden)
    snippets = Snippets(parsed)
    return [hit_of(snippets, found) for found in answer.hits], answer.is_degraded


def await_vectors(store: LedgerStore, timeout_s: float) -> int:
    """Wait until the messages that there are have vectors; how many have none then. See `SearchMethods.embed_pending`."""
    embedding = store.meaning.embedding
    if embedding is None:
        raise ConfigurationError(NO_EMBEDDING)
    deadline_s = time.monotonic() + timeout_s
    with store.snapshot() as snapshot:
        position = snapshot.state.position
    store.meaning.await_position(position, max(deadline_s - time.monotonic(), 0.0))
    vectors = store.meaning.find(embedding)
    taken_in = None if vectors is None else read(vectors, vectors.taken_in)
    extent = _extent(store, SearchRequest(text=""), taken_in)
    if vectors is None:
        return extent.total

    def count(txn: Transaction) -> int:
        chosen = None if extent.chat_nos is None else set(extent.chat_nos)
        return _lacking(vectors, txn, extent) + len(vectors.failed(txn, chosen))

    return read(vectors, count)

"""
Search by meaning: the query becomes a vector, the nearest messages are found by theirs, and merged with those found by words.

The function of the embedding runs before any transaction, and the vectors are looked through between two snapshots: the first
says which chats are searched, the second shows the messages, without those that were deleted in between.
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
from chatledger.domain.search.snippets import literal_snippet
from chatledger.domain.values import SearchHit, SearchHits
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.meaning.scan import Near, Selection, find_near
from chatledger.projections.meaning.vector_index import TakenIn, VectorIndex
from chatledger.projections.meaning.vectors import embed_texts
from chatledger.projections.search.manifest import totals_of
from chatledger.projections.search.search import Scope
from chatledger.projections.versioned.messages import count_all

from ..store.meaning import NO_EMBEDDING
from ..store.vector_folders import read
from .port import LedgerSnapshot, StorePort
from .searching import Searched, SearchRequest, answer_of, hit_of, search_words, searched_by

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LEAST_DEPTH: Final = 100
_DEPTHS: Final = 3
"""So many times as many as are shown are merged from each ranking: a message that is low in both may be high in the merged one."""

_Key = tuple[str, str]


def search_meaning(store: StorePort, request: SearchRequest, mode: SearchMode, embed: Embedding | None) -> SearchHits:
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
    nearest = _Nearest([], extent.total) if vectors is None else _look(vectors, query, request, extent, depth)
    pending = extent.total if taken_in is None else nearest.lacking
    if request.limit == 0:
        return SearchHits(pending=pending)
    if mode == "meaning":
        return SearchHits(_by_meaning(store, request, embedding, nearest.near), pending=pending)
    return _by_both(store, request, embedding, nearest.near, pending)


def _query_vector(embedding: Embedding, text: str) -> "NDArray[np.float32]":
    """Return the vector of a query. Raises `EmbeddingError` when the function fails, or does not answer in time."""
    # By a thread of its own, as Python cannot stop a function that hangs: it is left behind, and the caller goes on.
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
        counts: The number of messages of each of these chats; None where all have vectors, and none needs to be counted.
        runs: The branch.
        total: The number of messages; 0 where none needs to be counted.
        is_past: Whether the search is about an earlier moment.
        is_behind: Whether some messages may have no vectors yet.
    """

    chat_nos: list[int] | None
    counts: list[int] | None
    runs: dict[int, int] | None
    total: int
    is_past: bool
    is_behind: bool


def _extent(store: StorePort, request: SearchRequest, taken_in: TakenIn | None) -> _Extent:
    with store.snapshot(request.chats) as snapshot:
        searched = searched_by(snapshot, request)
        is_past, chat_nos = snapshot.is_past, searched.chats
        is_behind = is_past or taken_in is None or taken_in.position < snapshot.state.position
        if chat_nos is None:
            count = totals_of(snapshot.txn, snapshot.tables).documents - count_all(snapshot.txn, snapshot.tables)
            return _Extent(None, None, searched.runs, count, is_past, is_behind)
        if not is_behind:
            return _Extent(chat_nos, None, searched.runs, 0, is_past, is_behind)
        chats = (searched.chat or IndexedChat(snapshot.tables, snapshot.txn, "", chat_no) for chat_no in chat_nos)
        counts = [0 if chat.record is None else chat.record.message_count for chat in chats]
        return _Extent(chat_nos, counts, searched.runs, sum(counts), is_past, is_behind)


class _Nearest(NamedTuple):
    """The messages nearest to a query, and the number of searched messages that have no vectors."""

    near: list[Near]
    lacking: int


def _look(
    vectors: VectorIndex, query: "NDArray[np.float32]", request: SearchRequest, extent: _Extent, depth: int | None
) -> _Nearest:
    """Find the messages nearest to a query in a transaction of the vectors alone."""
    selection = Selection(
        chats=extent.chat_nos,
        counts=extent.counts if extent.is_past else None,
        roles=None if request.roles is None else frozenset(map(role_key, request.roles)),
        since=request.since,
        until=request.until,
        runs=extent.runs,
    )

    def look(txn: Transaction) -> _Nearest:
        near = find_near(vectors, txn, query, selection, limit=depth)
        failed = 0
        if vectors.taken_in(txn).failed:
            chosen = None if extent.chat_nos is None else set(extent.chat_nos)
            failed = len(vectors.failed(txn, chosen))
        return _Nearest(near, _lacking(vectors, txn, extent) + failed)

    return read(vectors, look)


def _lacking(vectors: VectorIndex, txn: Transaction, extent: _Extent) -> int:
    """Return the number of searched messages that were not taken in."""
    if not extent.is_behind:
        return 0
    if extent.chat_nos is None:
        return max(extent.total - vectors.taken_in(txn).messages, 0)
    counts = vectors.counts(txn, extent.chat_nos)
    return sum(
        max(wanted - counts[chat_no], 0) for chat_no, wanted in zip(extent.chat_nos, extent.counts or (), strict=True)
    )


def _end(request: SearchRequest) -> int | None:
    """Return the place of the last message to show; None for all."""
    return None if request.limit is None else request.offset + request.limit


def _depth(request: SearchRequest) -> int | None:
    """Return how many messages are merged from each ranking; all when None."""
    end = _end(request)
    return None if end is None else max(_DEPTHS * end, _LEAST_DEPTH)


def _by_meaning(
    store: StorePort, request: SearchRequest, embedding: Embedding, near: Sequence[Near]
) -> list[SearchHit]:
    end = _end(request)
    with store.snapshot(request.chats) as snapshot:
        hits = _near_hits(_scope(snapshot, request), request, embedding, near, end)
    return [
        msgspec.structs.replace(hit, ranks={"meaning": place})
        for place, hit in enumerate(hits[request.offset :], request.offset + 1)
    ]


def _scope(snapshot: LedgerSnapshot, request: SearchRequest) -> Scope:
    searched = searched_by(snapshot, request)
    return Scope(snapshot.txn, snapshot.tables, searched.chats, request.fields, searched.chat)


def _near_hits(
    scope: Scope, request: SearchRequest, embedding: Embedding, near: Sequence[Near], limit: int | None
) -> list[SearchHit]:
    """Return so many of the nearest messages that are still there, and may be shown."""
    hits: list[SearchHit] = []
    for vector in near:
        if limit is not None and len(hits) >= limit:
            break
        message = scope.find(vector.chat_no, vector.segment, vector.offset)
        if message is None:
            continue
        # Vectors lie beside the index, and may be ahead of it or behind: that one is of this message is believed by its digest only.
        pieces = (piece for piece in embedding.pieces(message.text) if piece_digest(piece) == vector.digest)
        piece = next(pieces, None)
        if piece is None:
            continue
        if not request.include_hidden and scope.is_left_out(vector.chat_no, vector.segment, vector.offset):
            continue
        similarity, snippet = vector.similarity, literal_snippet(piece)
        hits.append(SearchHit(message=message, rank=-similarity, snippet=snippet, similarity=similarity))
    return hits


def _by_both(
    store: StorePort, request: SearchRequest, embedding: Embedding, near: Sequence[Near], pending: int
) -> SearchHits:
    """Merge the messages nearest in meaning with those found by words."""
    depth = _depth(request)
    with store.snapshot(request.chats) as snapshot:
        searched = searched_by(snapshot, request)
        scope = Scope(snapshot.txn, snapshot.tables, searched.chats, request.fields, searched.chat)
        by_meaning = _near_hits(scope, request, embedding, near, depth)
        by_words, is_degraded = _word_hits(snapshot, searched, request, depth)
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
        msgspec.structs.replace(hits[key], rank=-fusion.score, ranks=fusion.places)
        for key, fusion in fused(rankings)[request.offset : end]
    ]
    return SearchHits(merged, is_degraded=is_degraded, pending=pending)


def _key(hit: SearchHit) -> _Key:
    return hit.message.chat_id, hit.message.id


def _word_hits(
    snapshot: LedgerSnapshot, searched: Searched, request: SearchRequest, depth: int | None
) -> tuple[list[SearchHit], bool]:
    """Return messages with the words, and whether some were only compared."""
    parsed = parse(request.text)
    if parsed is None or searched.chats == []:
        return [], False
    answer = answer_of(snapshot, searched, msgspec.structs.replace(request, limit=depth, offset=0), parsed)
    return list(map(hit_of, answer.hits)), answer.is_degraded


def await_vectors(store: StorePort, timeout_s: float) -> int:
    """Wait until the present messages have vectors; return the number of those without. See `SearchMethods.embed_pending`."""
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

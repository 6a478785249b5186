"""The world of tests of search: a search that reads every message, and ledgers whose search index is not complete."""

import contextlib
import math
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import Any, Final, cast

import pytest
from tests.support.ledger_world import internals
from tests.support.search_scan import is_found, snippet

from chatledger import Ledger, Message
from chatledger.domain.search.fields import TEXT, SearchField, field_text
from chatledger.domain.search.query import All, Either, Phrase, Query, Without, Word, is_at, parse
from chatledger.domain.search.snippets import sought
from chatledger.domain.search.tokens import PART, terms_of
from chatledger.domain.values import SearchHit, SearchHits
from chatledger.projections.lmdb.environment import Transaction
from chatledger.projections.search import blocks, deletion, documents, filling, indexer, manifest, merging, segments

LEAST_IDF: Final = 1e-6


def ids(hits: SearchHits) -> list[str]:
    """The ids of the messages that were found, best first."""
    return [hit.message.id for hit in hits]


def ranks(hits: SearchHits) -> dict[str, float]:
    """How well each message matches, in the order of the answer."""
    return {hit.message.id: hit.rank for hit in hits}


# Search by reading


def scan(messages: Iterable[Message], query: str, within: Sequence[SearchField] = (TEXT,)) -> dict[str, float]:
    """
    The ranks of the messages that match, by reading the fields `within` of all that are in scope.

    BM25 by its formula: of each word and phrase of the query that is not behind a `NOT`, the inverse document frequency times
    how often it occurs, dampened with the length of the message.
    """
    parsed = parse(query)
    if parsed is None:
        return {}
    texts = {message.id: _terms(message, within) for message in messages}
    lengths = {message_id: len(terms) - terms.count(_BORDER) for message_id, terms in texts.items()}
    average = sum(lengths.values()) / len(texts) if texts else 0.0
    scored = list(_scored(parsed))
    rarities = [_rarity(sum(_count(leaf, terms) > 0 for terms in texts.values()), len(texts)) for leaf in scored]
    return {
        message_id: -sum(
            rarity * _dampened(_count(leaf, terms), lengths[message_id] / average)
            for leaf, rarity in zip(scored, rarities, strict=True)
        )
        for message_id, terms in texts.items()
        if is_found(parsed, terms)
    }


_BORDER: Final = "\0"
"""A term that no text has: no phrase goes from one field to the next."""


def _terms(message: Message, within: Sequence[SearchField]) -> list[str]:
    return [term for field in within for term in [*terms_of(field_text(message, field)), _BORDER]]


def _rarity(having: int, total: int) -> float:
    return max(math.log((total - having + 0.5) / (having + 0.5)), LEAST_IDF)


def _dampened(count: int, length: float) -> float:
    return count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length))


def _scored(query: Query) -> Generator[Word | Phrase]:
    match query:
        case Word() | Phrase():
            yield query
        case All(parts) | Either(parts):
            for part in parts:
                yield from _scored(part)
        case Without(kept):
            yield from _scored(kept)


def _count(leaf: Word | Phrase, terms: Sequence[str]) -> int:
    """How often a word or phrase occurs; also where it overlaps itself."""
    if isinstance(leaf, Phrase):
        return sum(is_at(terms, at, leaf) for at in range(len(terms)))
    every = [part for term in terms for part in term.split(PART)]
    return sum(part.startswith(leaf.term) if leaf.is_prefix else part == leaf.term for part in every)


def check_against_scan(
    hits: SearchHits,
    messages: Collection[Message],
    query: str,
    wanted: Collection[str],
    within: Sequence[SearchField] = (TEXT,),
) -> None:
    """
    The answer is what reading all messages of the scope finds among the wanted ones, with these ranks and in this order.

    Args:
        hits: The whole answer.
        messages: Those in scope, which the ranks depend on, in the order of the log.
        query: What was searched.
        wanted: The ids of those that pass the filters.
        within: The fields that were searched.
    """
    assert not hits.is_degraded
    expected = {message_id: rank for message_id, rank in scan(messages, query, within).items() if message_id in wanted}
    assert pytest.approx(expected, rel=1e-9) == ranks(hits)
    assert len(expected) == len(hits)
    order = {message.id: number for number, message in enumerate(messages)}
    assert hits == sorted(hits, key=lambda hit: (hit.rank, -hit.message.created_at, -order[hit.message.id]))
    for hit in hits:
        _check_snippet(hit, query, within)


def _check_snippet(hit: SearchHit, query: str, within: Sequence[SearchField]) -> None:
    """It is from the first field of those that have most of the words and phrases."""
    parsed = parse(query)
    assert parsed is not None
    terms = {field: terms_of(field_text(hit.message, field)) for field in within}
    having = {field: sum(_count(leaf, terms[field]) > 0 for leaf in sought(parsed)) for field in within}
    assert hit.within == max(within, key=having.__getitem__)
    assert (hit.snippet, hit.matches) == snippet(field_text(hit.message, hit.within), parsed)


# What the index is in


def messages_in_log_order(ledger: Ledger, chat_id: str) -> list[Message]:
    """All messages of a chat, on whatever branch."""
    with internals(ledger).snapshot() as snapshot:
        chat = snapshot.chat(chat_id)
        return [] if chat.record is None else [message for _, message in sorted(chat.chains.all_messages())]


@contextlib.contextmanager
def small_blocks(waiting: int = 3, block_bytes: int = 120, chunk: int = 2) -> Generator[None]:
    """Few messages are enough to reach what else takes thousands: segments, many blocks, merges in many steps."""
    with pytest.MonkeyPatch.context() as patch:
        # The modules are imported above: one that is imported in here would keep these numbers.
        patch.setattr(indexer, "FLUSH_MESSAGES", waiting)
        patch.setattr(blocks, "BLOCK_BYTES", block_bytes)
        patch.setattr(documents, "CHUNK", chunk)
        patch.setattr(segments, "LEVEL_DOCUMENTS", waiting)
        for module in (manifest, merging, segments):
            patch.setattr(module, "FANOUT", 2)
        patch.setattr(manifest, "OVERDUE", 2)
        patch.setattr(merging, "STEP_POSTINGS", 12)
        patch.setattr(merging, "STEP_DOCUMENTS", chunk)
        patch.setattr(deletion, "STEP_BLOCKS", 2)
        patch.setattr(deletion, "STEP_ROWS", 3)
        yield


class StoppedError(Exception):
    """Ends the building of a search index in the middle."""


def build_search(ledger: Ledger, *, anew: bool, chunk_messages: int, stop_after: int | None = None) -> bool:
    """
    Build the search index of the live generation in small steps; stop after some of them, as a killed process does.

    Returns whether it was built to the end.
    """
    steps = 0

    def progress(_done: int, _total: int) -> None:
        nonlocal steps
        steps += 1
        if stop_after is not None and steps > stop_after:
            raise StoppedError

    live = generation(ledger)
    try:
        filling.build(live, live.tables, anew=anew, progress=progress, chunk_messages=chunk_messages)
    except StoppedError:
        return False
    return True


def drop_search(ledger: Ledger) -> None:
    """Forget the whole search index, as when its building was stopped before its first message."""
    live = generation(ledger)

    def forget(txn: Transaction) -> None:
        indexer.begin_anew(txn, live.tables)

    live.update(forget)


def generation(ledger: Ledger) -> Any:
    """The index that the ledger reads."""
    return internals(ledger).index._generation()


def search_rows(ledger: Ledger) -> Mapping[bytes, bytes]:
    """Everything that the search index keeps."""
    live = generation(ledger)
    with live.reading() as txn:
        return dict(cast("Iterable[tuple[bytes, bytes]]", txn.cursor(live.tables.search)))

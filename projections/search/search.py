"""A search over chats, threads, states and items, from the query to the messages that it found."""

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple, TypeVar

import msgspec

from chatledger.domain.chat.history import is_left_out
from chatledger.domain.errors import ChatledgerError, CorruptStateError, QuarantinedError
from chatledger.domain.search.fields import TEXT, SearchField, field_text
from chatledger.domain.search.query import Query
from chatledger.domain.search.snippets import KnownWords
from chatledger.domain.search.tokens import PART, normalized, terms_of
from chatledger.domain.values import HitPlace, Message
from chatledger.domain.versioned.keys import ITEM
from chatledger.domain.versioned.record import is_expired

from ..chat.chains import Chains
from ..chat.lists import listed
from ..chat.reader import IndexedChat
from ..lmdb.environment import Transaction
from ..lmdb.keys import order_suffix
from ..lmdb.tables import Tables
from ..versioned.lists import searched_values
from ..versioned.messages import OF_AGENTS, HeldMessages, message_at, segment_of, value_at
from .evaluation import BestDocuments, Filter, IsLeftOut, hits_of, ranked
from .indexer import count_indexed, is_behind, is_current
from .manifest import manifest_of, totals_of
from .pending import pending_of
from .reader import SearchReader
from .segments import BlockCursor

T = TypeVar("T")

_LOOKED_UP: Final = 1_000
"""Of more chats the places are read from the list of all."""


class WordHit(msgspec.Struct, frozen=True):
    """
    A message, how well it matches, the field to show and what it has of the query; None of both where it was only compared.

    And where it is, when that is no chat.
    """

    message: Message
    field: SearchField
    rank: float | None
    known: KnownWords | None
    place: HitPlace | None = None


class Moment(NamedTuple):
    """
    What of threads, states and items counts: what was there up to a position and a time in ms, of values that have not expired now.

    `refuse` raises `QuarantinedError` for streams that are not searched.
    """

    now: int = 0
    position: int | None = None
    time: int | None = None
    refuse: Callable[[str], None] = lambda _stream: None


class WordHits(NamedTuple):
    """The best messages, and whether some chats were only compared because their search index is being built."""

    hits: list[WordHit]
    is_degraded: bool


class Scope:
    """
    The fields of streams that are searched: chats, and threads, states and items; each is made up once it is needed.

    Args:
        txn, tables: What is read.
        numbers: The numbers of chats, and those of the messages of others; those first whose messages come first where all else
            is equal. None: all there are, the last changed first.
        fields: The fields.
        chat: One of them that is made up already.
        moment: What counts of threads, states and items.
    """

    def __init__(
        self,
        txn: Transaction,
        tables: Tables,
        numbers: Sequence[int] | None,
        fields: Sequence[SearchField],
        chat: IndexedChat | None = None,
        moment: Moment | None = None,
    ) -> None:
        self.txn, self.tables, self.numbers, self.fields = txn, tables, numbers, fields
        self._chats = {} if chat is None else {chat.chat_no: chat}
        self._values: dict[int, HeldMessages | None] = {}
        self._chains: dict[int, Chains] = {}
        self._active_runs: dict[int, dict[int, int]] = {}
        self._recent = tables.caches.recent.of(txn.id())
        self._moment = Moment() if moment is None else moment

    def chat(self, chat_no: int) -> IndexedChat:
        chat = self._chats.get(chat_no)
        if chat is None:
            chat = self._chats[chat_no] = IndexedChat(self.tables, self.txn, "", chat_no)
            profile = chat.profile
            assert profile is not None, "a listed chat has a profile"
            chat.chat_id = profile.id
        return chat

    def value(self, messages_no: int) -> HeldMessages | None:
        """The thread, state or item whose messages have that number; None for a chat."""
        if messages_no not in self._values:
            value = value_at(self.txn, self.tables, messages_no)
            self._values[messages_no] = None if value is None else HeldMessages(self.txn, self.tables, value)
        return self._values[messages_no]

    def message_count(self, number: int) -> int:
        """The number of messages of a stream; 0 where it is not there."""
        value = self.value(number)
        record = self.chat(number).record if value is None else value.value.record
        return 0 if record is None else record.message_count

    def owner(self, number: int) -> str | None:
        """Return whose a stream is; None for nobody's."""
        value = self.value(number)
        return self.chat(number).owner if value is None else value.value.owner

    def order(self) -> Sequence[int]:
        """Return the numbers of the streams, also where they are all."""
        if self.numbers is None:
            of_values = [messages_no for messages_no, _, _ in searched_values(self.txn, self.tables)]
            self.numbers = listed(self.txn, self.tables, user_id=None) + of_values
        return self.numbers

    def places(self, numbers: Sequence[int]) -> dict[int, int]:
        """Return the places of some of these streams among them; costs a look at each, not at all there are."""
        among = set(numbers)
        if self.numbers is not None or len(among) > _LOOKED_UP:
            ordered = [number for number in self.order() if number in among]
            return {number: place for place, number in enumerate(ordered)}
        keys: dict[int, bytes] = {}  # those of the list of all, which need not be read for that
        for number in among:
            value = self.value(number)
            key, record = (
                (value.value.key, value.value.record)
                if value
                else (self.chat(number).chat_id, self.chat(number).record)
            )
            assert record is not None, "a stream that is found is there"
            keys[number] = order_suffix(record.updated_at, key, number)
        return {number: place for place, number in enumerate(sorted(keys, key=keys.__getitem__))}

    def message(self, number: int, segment: int, offset: int) -> Message:
        if segment >= OF_AGENTS:
            value = self._need_value(number)
            row = value.row(offset)
            return message_at(row, value.held(row))
        chains = self._chains.get(number)
        if chains is None:
            chains = self._chains[number] = self.chat(number).chains
            chains.recent = self._recent
        return chains.message((segment, offset))

    def place(self, number: int, segment: int, offset: int) -> HitPlace | None:
        """Where that message is, when that is no chat."""
        return None if segment < OF_AGENTS else self._need_value(number).place(offset)

    def _need_value(self, number: int) -> HeldMessages:
        value = self.value(number)
        if value is None:
            msg = f"the search index has messages of number {number}, which is not there"
            raise CorruptStateError(msg)
        return value

    def find(self, chat_no: int, segment: int, offset: int) -> Message | None:
        """Return the message at a place; None where there is none, or its chat was deleted."""
        if IndexedChat(self.tables, self.txn, "", chat_no).record is None:
            return None
        chains = self.chat(chat_no).chains
        if not chains.has_segment(segment) or offset >= chains.segment(segment).length:
            return None
        return self.message(chat_no, segment, offset)

    def leaves_out(self) -> IsLeftOut | None:
        """Return what tells the messages to leave out; None for one chat without annotations, as nearly all are."""
        if self.numbers is None or len(self.numbers) != 1 or self.value(self.numbers[0]) is not None:
            return self.is_left_out
        return None if self.chat(self.numbers[0]).chains.annotations.is_empty else self.is_left_out

    def is_left_out(self, number: int, segment: int, offset: int) -> bool:
        """Whether the message there is hidden or replaced, or not of the moment. In a chat without annotations it costs one look-up."""
        if segment >= OF_AGENTS:
            return self.is_absent(number, segment, offset)
        chat = self.chat(number)
        annotations = chat.chains.annotations
        if annotations.is_empty or annotations.at((segment, offset)) is None:
            return False
        return is_left_out(chat, self.message(number, segment, offset).id)

    def is_off_branch(self, number: int, segment: int, offset: int) -> bool:
        """Whether it is a message of a chat that is not on the active branch."""
        if segment >= OF_AGENTS:
            return False
        runs = self._active_runs.get(number)
        if runs is None:
            chat = self.chat(number)
            row = None if chat.record is None else chat.branch_record(chat.record.active_branch)
            place = None if row is None else row.place
            runs = self._active_runs[number] = {} if place is None else chat.chains.runs(place)
        return offset > runs.get(segment, -1)

    def is_absent(self, number: int, segment: int, offset: int) -> bool:
        """Whether it is a message of a thread, a state or an item that is not of the moment, or whose value has ended."""
        if segment < OF_AGENTS:
            return False
        value, moment = self._need_value(number), self._moment
        record = value.value.record
        is_ended = value.value.family is ITEM and record is not None and record.is_ended
        if record is None or is_ended or is_expired(record, moment.now):
            return True
        try:
            moment.refuse(value.value.stream_id)
        except QuarantinedError:
            return True
        return moment.position is not None and not value.was_there(offset, moment.position, moment.time)


class SearchQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """
    Question to a search, without where.

    Args:
        query: The query.
        text: As it was written.
        only: Conditions on messages.
        limit: At most so many; all when None.
        offset: How many of the first to leave out.
        include_hidden: Also messages that are hidden or replaced.
        is_active_only: Of chats only messages on the active branch.
        time_order: 1 for the newest first, -1 for the oldest, whatever matches how well; 0 for the best first.
    """

    query: Query
    text: str
    only: Filter
    limit: int | None
    offset: int = 0
    include_hidden: bool = False
    is_active_only: bool = False
    time_order: int = 0


def ask(scope: Scope, question: SearchQuestion) -> WordHits:
    """
    The messages of these streams that match, best first; hidden and replaced ones only if they are asked for.

    Of a stream whose search index is not complete, those come last that contain the text of the query, newest first.
    """
    behind = _behind(scope)
    end = None if question.limit is None else question.limit + question.offset
    # Those that are scanned come last: where there are any, the offset counts over both, and is applied in the end.
    of_index = msgspec.structs.replace(question, limit=end, offset=0) if behind else question
    word_hits = [
        WordHit(scope.message(*at), hit.field, hit.rank, hit.known, scope.place(*at))
        for hit in _ranked(scope, of_index, behind, lambda best: hits_of(question.query, best))
        for at in [(hit.chat_no, hit.segment, hit.offset)]
    ]
    if not behind:
        return WordHits(word_hits, is_degraded=False)
    word_hits += _scan(scope, behind, question)
    return WordHits(word_hits[question.offset : end], is_degraded=True)


class HitFacts(NamedTuple):
    """Facts of a hit that no message is read for: its stream, the segment, the role, when, and whether it is on the active branch."""

    number: int
    segment: int
    role: str
    created_at: int
    is_active: bool


def facts(scope: Scope, question: SearchQuestion) -> list[HitFacts]:
    """Return facts of the best hits; those that the index does not have yet are left out."""

    def told(best: BestDocuments) -> list[HitFacts]:
        # Columns are read by ascending documents; the hits come by rank.
        order: list[int] = best.documents.argsort().tolist()
        ascending = best.documents[order]
        roles, times = best.evaluation.facts.roles(ascending), best.evaluation.facts.times(ascending).tolist()
        places = [best.places[at] for at in order]
        return [
            HitFacts(
                place.chat_no,
                place.segment,
                role,
                time,
                not scope.is_off_branch(place.chat_no, place.segment, place.offset),
            )
            for place, role, time in zip(places, roles, times, strict=True)
        ]

    return _ranked(scope, question, _behind(scope), told)


def _ranked(
    scope: Scope, question: SearchQuestion, behind: Sequence[int], made_of: Callable[[BestDocuments], list[T]]
) -> list[T]:
    left_out = set(behind)
    indexed = [number for number in scope.order() if number not in left_out] if behind else scope.numbers
    if not (indexed or indexed is None):
        return []
    try:
        best = ranked(
            SearchReader(scope.txn, scope.tables, indexed, scope.fields),
            question.query,
            only=question.only,
            limit=question.limit,
            offset=question.offset,
            order=scope.places,
            leaves_out=lambda: _left_out_by(scope, question),
            time_order=question.time_order,
        )
        return [] if best is None else made_of(best)
    except (ValueError, LookupError, OverflowError, struct.error, msgspec.MsgspecError) as error:
        if isinstance(error, ChatledgerError):  # some of them are lookup or value errors too
            raise
        msg = f"the search index is damaged: {error}; rebuild it, the log is not affected"
        raise CorruptStateError(msg) from error


def _left_out_by(scope: Scope, question: SearchQuestion) -> IsLeftOut | None:
    is_left_out = scope.is_absent if question.include_hidden else scope.leaves_out()
    if not question.is_active_only:
        return is_left_out

    def is_off_or_left_out(number: int, segment: int, offset: int) -> bool:
        is_off = scope.is_off_branch(number, segment, offset)
        return is_off or (is_left_out is not None and is_left_out(number, segment, offset))

    return is_off_or_left_out


def _behind(scope: Scope) -> Sequence[int]:
    """Return the streams whose messages the search index does not have, or not all."""
    txn, tables = scope.txn, scope.tables
    if is_current(txn, tables) and not is_behind(txn, tables):
        return []
    numbers = scope.order()
    if not is_current(txn, tables):
        return numbers
    counts = zip(numbers, count_indexed(txn, tables, numbers), strict=True)
    return [number for number, indexed in counts if indexed < scope.message_count(number)]


def _scan(scope: Scope, numbers: Sequence[int], question: SearchQuestion) -> list[WordHit]:
    """The messages that contain the text, each with the first field that does."""
    text, only, is_left_out = normalized(question.text), question.only, _left_out_by(scope, question)
    hits: list[tuple[int, int, WordHit]] = []
    for number in numbers:
        for ordinal, segment, offset, message in _all_messages(scope, number):
            at = number, segment, offset
            if (
                (only.roles is None or message.name in only.roles)
                and (only.since is None or message.created_at >= only.since)
                and (only.until is None or message.created_at < only.until)
                and (only.segments is None or only.segments[0] <= segment < only.segments[1])
                and (only.runs is None or offset <= only.runs.get(segment, -1))
                and (field := _field_with(message, text, scope.fields)) is not None
                and not (is_left_out is not None and is_left_out(*at))
            ):
                hits.append((message.created_at, ordinal, WordHit(message, field, None, None, scope.place(*at))))
    hits.sort(key=lambda hit: hit[:2], reverse=True)
    return [hit for _, _, hit in hits]


def _all_messages(scope: Scope, number: int) -> Iterator[tuple[int, int, int, Message]]:
    """Yield the messages of a stream with their numbers and places."""
    value = scope.value(number)
    if value is not None:
        for ordinal, row, message in value.messages():
            yield ordinal, segment_of(value.value.family, row.line_no), ordinal, message
        return
    chains = scope.chat(number).chains
    for (place, _), (ordinal, message) in zip(chains.all_places(), chains.all_messages(), strict=True):
        yield ordinal, *place, message


def _field_with(message: Message, text: str, fields: Sequence[SearchField]) -> SearchField | None:
    return next((field for field in fields if text in normalized(field_text(message, field))), None)


_WORD: Final = re.compile(r"\w+")
_OPERATORS: Final = frozenset({"AND", "OR", "NOT"})
_ALIKE: Final = 2
"""So many letters at the beginning are the same: other words are not looked at."""
_MOST_BLOCKS: Final = 64
_MOST_TERMS: Final = 8
_CUTOFF: Final = 0.7


def nearest_query(scope: Scope, text: str) -> str | None:
    """
    Return the text of a query with words that messages have in the place of those that none has; None where there are no such words.

    Only words of the messages that are searched are told, as they stand there.
    """
    reader = SearchReader(scope.txn, scope.tables, scope.numbers, (TEXT,))
    near: dict[str, str] = {}
    for word in {*_WORD.findall(text)} - _OPERATORS:
        terms = terms_of(word.lower())
        if len(terms) == 1 and not reader.has(terms[0], is_prefix=False):
            written = next(filter(None, (_written(scope, reader, term) for term in _near_terms(scope, terms[0]))), None)
            if written is None:
                return None
            near[word] = written
    return _WORD.sub(lambda match: near.get(match[0], match[0]), text) if near else None


def _near_terms(scope: Scope, term: str) -> list[str]:
    """Return terms of the index, whosever, that are nearly this one, the nearest first."""
    start = term[:_ALIKE].encode()
    terms: set[bytes] = set()
    txn, tables = scope.txn, scope.tables
    for segment in manifest_of(txn, tables).segments:
        cursor = BlockCursor(txn.cursor(tables.search), segment.id)
        key, blocks = cursor.first(start), 0
        while key is not None and blocks < _MOST_BLOCKS:
            listed = cursor.block.terms
            terms.update(other for other in listed if other.startswith(start))
            key, blocks = (None if listed[-1] > start + b"\xff" else cursor.next()), blocks + 1
    totals = totals_of(txn, tables)
    if totals.pending:
        for text in pending_of(txn, tables, totals).names_and_texts[1]:
            terms.update(other for other in text.replace(PART.encode(), b"\0").split(b"\0") if other.startswith(start))
    return get_close_matches(term, [other.decode() for other in terms], _MOST_TERMS, _CUTOFF)


def _written(scope: Scope, reader: SearchReader, term: str) -> str | None:
    """Return a term as a word that stands in a message which is searched; None where none of those has it."""
    place = reader.first_place(term)
    words = [] if place is None or scope.is_absent(*place) else _WORD.findall(scope.message(*place).text)
    return next((word for word in words if terms_of(word.lower()) == [term]), None)

"""Full-text search: finding messages by their words, building the index of them, and the bytes it takes."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec

import chatledger
from chatledger import Message, SearchHits
from chatledger.domain.chat.interchange import draft_of
from chatledger.infra.ledger.port import store_of

from ..data import as_rows
from ..measure import Row, check_equal, take_turns
from ..prose import COMMON, MID, PHRASE, RARE, Prose
from ..sqlite_peer import SqlitePeer
from ..world import BATCH, Pair, World, fill, settle

LIMIT = 20
_CLOSE = 1e-6


class Question(msgspec.Struct, frozen=True):
    """A query, in words that both sides read alike, and what it is an example of."""

    name: str
    query: str
    roles: tuple[str, ...] = ()


MISSING = Question("a word that no message has", "zyzzyva")
_QUESTIONS = (
    Question("a common word", COMMON),
    Question("a common word of one role", COMMON, ("user",)),
    Question("a word in 1 %", MID),
    Question("a word in 10 messages", RARE),
    MISSING,
    Question("two words", "window morning"),
    Question("a phrase", f'"{PHRASE}"'),
    Question("a phrase of common words", '"of the"'),
    Question("a prefix of many words", "inter*"),
    Question("a common word without another", f"{COMMON} NOT of"),
)
_IN_ONE_CHAT_ONLY = {
    "a common word of one role",
    "two words",
    "a phrase of common words",
    "a common word without another",
}
_OF_MANY_CHATS = tuple(one for one in _QUESTIONS if one.name not in _IN_ONE_CHAT_ONLY)
_PHRASES = 50
_IN_FEW = 5, 100
_NOTE = f"best {LIMIT} by BM25 with snippets, messages decoded; warm, asked again and again, at rest; FTS5 indexes the text of messages, not their JSON"


def searches(world: World) -> Iterator[Row]:
    """Queries in chats of several lengths, in one of many chats and in all of them; building the index; its size."""
    for length in world.sizes.searched:
        yield from _in_one_chat(world, length)
    yield from _in_many_chats(world)


def _in_one_chat(world: World, length: int) -> Iterator[Row]:
    folder = world.stored(length)
    world.report(f"storing {length:,} messages to search")
    with (
        chatledger.open(folder, durability="fast") as ledger,
        SqlitePeer(world.folder() / "peer.db", search=True) as peer,
    ):
        pair = Pair(ledger, peer)
        peer.create_chat("chat", "ada")
        messages = ledger.get_messages("chat")
        for start in range(0, length, BATCH):
            peer.append("chat", map(draft_of, messages[start : start + BATCH]))
        phrases = _phrases_in(messages)
        del messages
        settle(ledger)
        for question in _QUESTIONS:
            name = f"search {length:,} messages for {question.name}"
            yield compare_search(world, pair, question, name=name, is_ranked_alike=True, chat_id="chat")
        yield _search_in_turn(
            world, pair, f"search {length:,} messages for {_PHRASES} phrases, one after the other", phrases
        )
        if length == world.sizes.searched[-1]:
            yield search_bytes(f"{length:,} messages, as stored", pair, pair.peer.search_bytes())
        yield from _build(world, pair, length)


def _in_many_chats(world: World) -> Iterator[Row]:
    count, length = world.sizes.searched_chats, world.sizes.searched_per_chat
    world.report(f"storing {count:,} chats of {length:,} messages to search")
    with world.fresh("fast", search=True) as pair:
        for number in range(count):
            fill(pair, f"chat-{number}", length, seed=number, talk=Prose(number, length=length))
        settle(pair.ledger)
        for question in _OF_MANY_CHATS:
            name = f"search one of {count:,} chats of {length:,} messages for {question.name}"
            yield compare_search(world, pair, question, name=name, is_ranked_alike=False, chat_id=f"chat-{count // 2}")
        for question in _OF_MANY_CHATS:
            name = f"search all {count:,} chats of {length:,} messages for {question.name}"
            yield compare_search(world, pair, question, name=name, is_ranked_alike=True, user_id="ada")


def compare_search(
    world: World,
    pair: Pair,
    question: Question,
    *,
    name: str,
    is_ranked_alike: bool,
    is_whole: bool = True,
    subject: str = "search",
    **scope: str,
) -> Row:
    """A row of one query on both sides, which find the same messages; `is_whole` compares all of them, not the best only."""
    ours = partial(pair.ledger.search, question.query, roles=question.roles, **scope)  # type: ignore[arg-type]  # names
    theirs = partial(pair.peer.search, question.query, roles=question.roles, **scope)  # type: ignore[arg-type]  # as above
    if is_whole:
        _check(name, ours, theirs, is_ranked_alike=is_ranked_alike)
    else:
        _check_best(name, ours, theirs)
    note = _NOTE if is_ranked_alike else f"{_NOTE}; ranks of FTS5 are those of all chats, as it has one index for them"
    return world.compare(
        partial(ours, limit=LIMIT), partial(theirs, limit=LIMIT), subject=subject, name=name, note=note
    )


def _phrases_in(messages: Sequence[Message]) -> list[str]:
    """Some of the pairs of words that are in few messages, but not in very few."""
    counts = Counter(pair for message in messages for pair in set(pairwise(message.text.split())))
    least, most = _IN_FEW
    return [f'"{" ".join(words)}"' for words, count in counts.items() if least <= count <= most][:_PHRASES]


def _search_in_turn(world: World, pair: Pair, name: str, phrases: Sequence[str]) -> Row:
    for phrase in phrases:
        ours = partial(pair.ledger.search, phrase, chat_id="chat")
        _check(name, ours, partial(pair.peer.search, phrase, chat_id="chat"), is_ranked_alike=True)

    def ask(search: Callable[..., object]) -> None:
        for phrase in phrases:
            search(phrase, chat_id="chat", limit=LIMIT)

    return world.compare(
        partial(ask, pair.ledger.search),
        partial(ask, pair.peer.search),
        subject="search",
        name=name,
        note=f"each is in {_IN_FEW[0]} to {_IN_FEW[1]} messages; best {LIMIT} of each, as above",
    )


def _check(
    name: str,
    ours: Callable[..., SearchHits],
    theirs: Callable[..., Sequence[dict[str, Any]]],
    *,
    is_ranked_alike: bool,
) -> None:
    """Both find the same messages, all of them; and with the same ranks where both count the same."""
    hits, rows = ours(limit=None), theirs()
    found = {row["id"]: row for row in as_rows([hit.message for hit in hits])}
    check_equal(name, found, {row["message"]["id"]: row["message"] for row in rows})
    check_equal(f"{name}, is degraded", ours=hits.is_degraded, theirs=False)
    if is_ranked_alike:
        ranks = {row["message"]["id"]: row["rank"] for row in rows}
        other = [hit for hit in hits if not math.isclose(hit.rank, ranks[hit.message.id], rel_tol=_CLOSE)]
        check_equal(f"{name}, ranks", other, [])
        check_equal(
            f"{name}, best", [hit.message.id for hit in ours(limit=LIMIT)], [hit.message.id for hit in hits[:LIMIT]]
        )


def _check_best(name: str, ours: Callable[..., SearchHits], theirs: Callable[..., Sequence[dict[str, Any]]]) -> None:
    """The best have the same ranks; which of equal ones are shown may differ."""
    ranks = [hit.rank for hit in ours(limit=LIMIT)], [row["rank"] for row in theirs(limit=LIMIT)]
    check_equal(f"{name}, hits", *map(len, ranks))
    check_equal(
        f"{name}, ranks", [one for one in zip(*ranks, strict=True) if not math.isclose(*one, rel_tol=_CLOSE)], []
    )


def _build(world: World, pair: Pair, length: int) -> Iterator[Row]:
    samples: dict[str, list[float]] = {"ours": [], "theirs": []}
    theirs: dict[str, int] = {}
    for turn in range(world.sizes.import_repeats):
        world.report(f"search index, {turn + 1} of {world.sizes.import_repeats}")
        table = f"built_{turn}"
        runs: dict[str, Callable[[], object]] = {
            "ours": partial(pair.ledger.rebuild, only="search"),
            "theirs": partial(pair.peer.build_search, table),
        }
        order = list(runs) if turn % 2 == 0 else list(reversed(runs))
        for who, values in take_turns({who: runs[who] for who in order}, repeats=1, is_warm=False).items():
            samples[who].extend(values)
        theirs = pair.peer.search_bytes(table)
        pair.peer.drop_search(table)
    yield Row(
        subject="search",
        name=f"search index of {length:,} messages, built anew",
        peer="SQLite",
        show="rate",
        ours=[seconds / length for seconds in samples["ours"]],
        theirs=[seconds / length for seconds in samples["theirs"]],
        note=(
            "ours drops the index and reads the messages again, and can be searched and written meanwhile; FTS5 is filled by "
            "one statement from the messages into a new table, in one transaction"
        ),
    )
    yield search_bytes(f"{length:,} messages, built anew", pair, theirs)


def search_bytes(what: str, pair: Pair, theirs: dict[str, int], *, subject: str = "search") -> Row:
    """A row of the bytes of both search indexes; the parts of the peer's as `SqlitePeer.search_bytes` gives them."""
    with store_of(pair.ledger).snapshot() as snapshot:
        pages = snapshot.txn.stat(snapshot.tables.search)
    ours = (pages["branch_pages"] + pages["leaf_pages"] + pages["overflow_pages"]) * pages["psize"]
    content = theirs["content"]
    return Row(
        subject=subject,
        name=f"bytes of the search index of {what}",
        peer="SQLite",
        show="bytes",
        ours=[float(ours)],
        theirs=[float(sum(theirs.values()))],
        note=f"FTS5 keeps a copy of the texts, {content / 1e6:.1f} MB of it; both have the places of words",
    )

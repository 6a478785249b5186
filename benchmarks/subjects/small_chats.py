"""Many small chats: searching all of them, a user's and one, verifying, rebuilding, and the bytes that the search index takes."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import chatledger

from ..data import as_rows
from ..measure import Row, check_equal, take_turns
from ..prose import COMMON, PHRASE, RARE, Prose, RealTexts, read_texts
from ..rebuilding import rebuild_apart
from ..sqlite_peer import SqlitePeer
from ..world import Pair, World, one_chain, settle
from .search import MISSING, Question, compare_search, search_bytes

REAL = Path(
    os.environ.get("CHATLEDGER_OASST") or Path(__file__).parents[3] / "shared" / "data" / "oasst1-en-validation.jsonl"
)
"""Messages of OpenAssistant, which are not part of this repository."""
_PER_CHAT = 50
_PER_USER = 20
_COMMON = Question("a common word", COMMON)
_IN_ALL = (
    MISSING,
    Question("two words", PHRASE),
    Question("a phrase", f'"{PHRASE}"'),
    Question("a prefix of many words", "inter*"),
    _COMMON,
    Question("a word in one of five", RARE),
)
_COUNTED = 2
"""Number of these that have few enough hits to compare them all."""


Talk = Callable[[int], Prose]
"""Makes the messages of a chat, by its number."""


def small_chats(world: World) -> Iterator[Row]:
    """Chats of 50 messages of prose, 20 to a user, whose chats lie far apart."""
    count = world.sizes.small_chats
    what = f"{count * _PER_CHAT:,} messages in {count:,} chats"
    yield from _rows(world, "small_chats", what, count, lambda number: Prose(number, length=_PER_CHAT))
    yield from _tiny_chats(world)


def real_chats(world: World) -> Iterator[Row]:
    """The same of real messages, where the file of them is at hand."""
    if not REAL.exists():
        world.report(f"no real messages: set CHATLEDGER_OASST (there is no {REAL.name} in shared/data)")
        return
    texts = read_texts(REAL)
    count = min(len(texts) // _PER_CHAT, world.sizes.small_chats)
    what = f"{count * _PER_CHAT:,} real messages in {count:,} chats"
    yield from _rows(world, "real_chats", what, count, lambda number: RealTexts(number * _PER_CHAT, texts))


def _tiny_chats(world: World) -> Iterator[Row]:
    count = world.sizes.many_chats
    what = f"{count * 2:,} messages in {count:,} chats"
    world.report(f"storing {what}")
    with world.fresh("fast", search=True) as pair:
        for number in range(count):
            _store(pair, number, lambda number: Prose(number, length=_PER_CHAT), users=1, per_chat=2)
        settle(pair.ledger)
        for question in (MISSING, _COMMON):
            name = f"search all {what} for {question.name}"
            is_rare = question is MISSING
            yield compare_search(
                world, pair, question, name=name, is_ranked_alike=True, is_whole=is_rare, subject="small_chats"
            )


def _rows(world: World, subject: str, what: str, count: int, talk: Talk) -> Iterator[Row]:
    world.report(f"storing {what}")
    folder = world.folder()
    with SqlitePeer(folder / "peer.db", synchronous="NORMAL", search=True) as peer:
        with chatledger.open(folder / "ledger", durability="fast") as ledger:
            pair = Pair(ledger, peer)
            for number in range(count):
                _store(pair, number, talk, users=max(1, count // _PER_USER))
            settle(ledger)
            yield from _searches(world, pair, subject, what)
            yield search_bytes(what, pair, peer.search_bytes(), subject=subject)
            yield _verify(world, pair, subject, what)
        yield _rebuild(world, pair, subject, what)


def _store(pair: Pair, number: int, talk: Talk, *, users: int, per_chat: int = _PER_CHAT) -> None:
    chat_id, user_id = f"chat-{number:06}", f"user-{number % users}"
    messages = list(talk(number).messages(per_chat))
    pair.ledger.import_chat(one_chain(chat_id, user_id, messages))
    pair.peer.import_chat(chat_id, user_id, messages)


def _searches(world: World, pair: Pair, subject: str, what: str) -> Iterator[Row]:
    is_real = (
        subject == "real_chats"
    )  # ours and FTS5 split some texts that are not ASCII otherwise: other lengths, other ranks
    scopes: dict[str, dict[str, str]] = {
        f"all {what}": {},
        f"a user's {_PER_USER} of them": {"user_id": "user-0"},
        "one of them": {"chat_id": "chat-000000"},
    }
    for where, scope in scopes.items():
        # Nobody planted the last one in real messages.
        for number, question in enumerate(_IN_ALL[:-1] if is_real else _IN_ALL):
            yield compare_search(
                world,
                pair,
                question,
                name=f"search {where} for {question.name}",
                is_ranked_alike=not scope and not is_real,
                subject=subject,
                is_whole=bool(scope) or is_real or number <= _COUNTED,
                **scope,
            )


def _verify(world: World, pair: Pair, subject: str, what: str) -> Row:
    def read() -> int:
        return sum(1 for _ in pair.ledger.history())

    events = read()
    world.report("verify")
    samples = take_turns({"ours": pair.ledger.verify, "theirs": read}, repeats=1, is_warm=False)
    return Row(
        subject=subject,
        name=f"verify {what}",
        peer="reading the log",
        ours=samples["ours"],
        theirs=samples["theirs"],
        note=f"warm; {events:,} events; the peer is `history()`, which reads and decodes the same events",
    )


def _rebuild(world: World, pair: Pair, subject: str, what: str) -> Row:
    world.report(f"rebuild of {what}")
    ours = rebuild_apart(world.root / pair.peer.path.parent / "ledger")

    def build() -> None:
        with SqlitePeer(world.folder() / "copy.db") as copy:
            pair.peer.copy_to(copy)
            copy.build_search("built")

    theirs = take_turns({"theirs": build}, repeats=1, is_warm=False)["theirs"]
    with chatledger.open(pair.peer.path.with_name("ledger"), durability="fast") as ledger:
        check_equal("rebuild", as_rows(ledger.get_messages("chat-000000")), pair.peer.get_messages("chat-000000"))
    return Row(
        subject=subject,
        name=f"rebuild of {what}",
        peer="SQLite with FTS5",
        ours=[ours.seconds],
        theirs=theirs,
        note=(
            f"search included; in a process of its own, whose memory grew by {ours.grown / 1e6:.0f} MB; the peer has no log: "
            "all its rows, as they are, are inserted into a new file, and FTS5 is filled from them"
        ),
    )

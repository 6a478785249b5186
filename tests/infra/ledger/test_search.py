"""Search as users see it: the requirements PS-40 to PS-48 and their acceptance, one by one, on real ledgers."""

import itertools
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.ledger_world import Worker, internals
from tests.support.search_world import (
    check_against_scan,
    drop_search,
    ids,
    messages_in_log_order,
    ranks,
    search_rows,
    small_blocks,
)
from tests.support.soak import examples

import chatledger
from chatledger import AsyncLedger, InvalidValueError, Ledger, NewMessage, assistant, user
from chatledger.domain.search.fields import REASONING, TOOLS
from chatledger.domain.values import SearchHit, SearchHits
from chatledger.errors import BranchNotFoundError
from chatledger.projections.search.documents import COLUMNS, LENGTHS
from chatledger.projections.search.manifest import SEGMENT, segment_key


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        yield ledger


def said(
    text: Any, message_id: str, *, at: int | None = None, name: str = "user", parent: str | None = None
) -> NewMessage:
    return NewMessage(name, text, id=message_id, created_at=at, parent_id=parent)


def say(ledger: Ledger, *texts: Any, chat_id: str = "c") -> list[str]:
    """Append texts; returns the ids."""
    return [message.id for message in ledger.append(chat_id, [NewMessage("user", text) for text in texts])]


def found(ledger: Ledger, query: str, **options: Any) -> list[Any]:
    """The texts of the messages that were found, best first."""
    return [hit.message.data for hit in ledger.search(query, **options)]


def scopes(owner: str) -> list[dict[str, Any]]:
    """Everything, the chat, and the chats of its owner."""
    return [{}, {"chat_id": "c"}, {"user_id": owner}]


# PS-41, what is indexed


def test_ps_41_only_the_text_of_a_message_is_searched(ledger: Ledger) -> None:
    """Acceptance 8: neither keys, roles and ids nor JSON syntax are found; the text is, and marked."""
    ledger.append("c", [user("Old Town", id="riga7")])
    for query in ["parts", "role", "riga7", "user", "type", "text", "id", "{", '"text"', "c"]:
        assert [] == ledger.search(query)
    (hit,) = ledger.search("town", chat_id="c")
    assert [("Old ", False), ("Town", True), ("", False)] == hit.parts
    assert "riga7" == hit.message.id
    assert ledger.get_message("riga7") == hit.message


@pytest.mark.parametrize(
    ("data", "words", "others"),
    [
        ("plain words", ["plain", "words"], []),
        ({"parts": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}, ['"one two"'], ["parts"]),
        ({"parts": [{"type": "tool", "input": "hidden"}], "note": "hidden"}, [], ["hidden", "tool", "note"]),
        ({"key": ["first", {"inner": "second"}], "n": 5}, ['"first second"'], ["key", "inner", "n", "5"]),
        (["x", None, True, 1.5, "y"], ['"x y"'], ["null", "true", "1"]),
        ({"parts": "not a list"}, ["list"], ["parts"]),
        ({"parts": [{"type": "text", "text": 7}, "loose", None]}, ["loose"], ["7", "parts"]),
        (None, [], ["null", "none"]),
        (True, [], ["true"]),
        (42, [], ["42"]),
        ("", [], ["a"]),
        ({}, [], ["a"]),
    ],
    ids=["text", "parts", "no text part", "object", "list", "parts of no list", "odd parts", *"NT4e{"],
)
def test_ps_41_data_of_any_form(ledger: Ledger, data: Any, words: list[str], others: list[str]) -> None:
    """Of a UIMessage its text parts, of other data all strings in order; never keys and numbers."""
    (message_id,) = say(ledger, data)
    for query in words:
        assert [message_id] == ids(ledger.search(query)), query
    for query in others:
        assert [] == ledger.search(query), query


# PS-42, words


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("état", "etat"),
        ("foxes", "fox"),
        ("STRASSE", "straße"),
        ("GPT-4", "gpt 4"),
        ("東京に行く", "京"),
        ("Привет, мир", "МИР"),
    ],
    ids=["accent", "stem", "folding", "signs", "pairs", "case"],
)
def test_ps_42_words_are_found_in_other_forms(ledger: Ledger, text: str, query: str) -> None:
    (message_id,) = say(ledger, text)
    say(ledger, "something else")
    assert [message_id] == ids(ledger.search(query))


# The language: PS-43 to PS-45

CORPUS: Final = {
    "1": "quick brown fox",
    "2": "quick red fox",
    "3": "brown bear",
    "4": "it's a user@example.com foo-bar in C++",
    "5": "NEAR and far",
    "6": "foo bar it is",
}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("quick fox", "12"),
        ("brown OR red", "123"),
        ("fox NOT red NOT brown", ""),
        ("bear OR quick NOT red", "13"),
        ("bear OR brown quick", "13"),
        ("(bear OR red) AND (fox OR brown)", "23"),
        ("fox NOT (red OR brown)", ""),
        ('"quick fox"', ""),
        ('"quick bro*', "1"),
        ("bro*", "13"),
        ("foo-bar", "46"),
        ("bar-foo", ""),
        ("user@example.com", "4"),
        ("NEAR", "5"),
        ("name:user", ""),
        ("AND", "5"),
        ("quick AND", ""),
        ("quick)", "12"),
        ('"quick bro"*', "1"),
        ("C++", "4"),
        ("NEAR(quick fox)", ""),
    ],
)
def test_ps_43_and_44_the_query_language(ledger: Ledger, query: str, expected: str) -> None:
    """Operators, and plain words where something only looks like one."""
    ledger.append("c", [said(text, message_id) for message_id, text in CORPUS.items()])
    assert sorted(expected) == sorted(ids(ledger.search(query)))


@pytest.mark.parametrize(
    "query", ["", "   ", "\n", "+-!", '"', '""', "(", "()", "*", "^", "\0", "\ud800", "🙂", "NOT *"[3:]]
)
def test_ps_45_without_letter_or_digit_nothing_is_found(ledger: Ledger, query: str) -> None:
    say(ledger, "a * b 🙂 \x01")
    hits = ledger.search(query)
    assert [] == hits
    assert isinstance(hits, SearchHits)
    assert not hits.is_degraded


@pytest.fixture(scope="module")
def hostile() -> Iterator[Ledger]:
    """Some texts, half of them in a chat whose index is not complete."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        say(ledger, *CORPUS.values(), "100% sure_thing \\ ' \" ; DROP TABLE", "東京", "\U0010ffff\u0301")
        yield ledger


FRAGMENTS: Final = [
    "AND",
    "OR",
    "NOT",
    "NEAR",
    "(",
    ")",
    '"',
    "*",
    "^",
    ":",
    "-",
    "a",
    "fox",
    " ",
    "\0",
    "\ud800",
    "é",
    "東",
    "%",
]


@settings(max_examples=examples(150))
@given(
    st.text(st.characters(codec=None), max_size=200)
    | st.lists(st.sampled_from(FRAGMENTS), max_size=60).map("".join)
    | st.lists(st.sampled_from(FRAGMENTS), max_size=60).map(" ".join)
)
@example("\ud800")
@example("a\udfff*")
@example('"\0" AND (')
def test_ps_44_and_acceptance_9_no_text_raises(hostile: Ledger, query: str) -> None:
    """Lone surrogates, control characters and operators included; what is found is what reading finds."""
    messages = messages_in_log_order(hostile, "c")
    hits = hostile.search(query, limit=None)
    assert isinstance(hits, SearchHits)
    check_against_scan(hits, messages, query, {message.id for message in messages})


@settings(max_examples=examples(50))
@given(
    st.text(st.characters(codec=None), max_size=200) | st.lists(st.sampled_from(FRAGMENTS), max_size=60).map("".join)
)
def test_no_text_raises_while_the_index_is_built(query: str) -> None:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        say(ledger, *CORPUS.values())
        drop_search(ledger)
        assert isinstance(ledger.search(query), SearchHits)


@pytest.mark.matrix
@pytest.mark.parametrize(
    "query",
    [
        "x" * 100_000,
        "x " * 50_000,
        "(" * 100_000,
        "(x" * 50_000,
        "(" * 50_000 + "fox" + ")" * 50_000,
        '"' * 100_000,
        '"x ' * 33_000,
        "x OR " * 20_000,
        "NOT " * 25_000,
        "fox NOT " * 12_500,
        "x* " * 33_000,
        "-" * 100_000,
        "東" * 33_000,
        "\0" * 100_000,
        "e\u0301" * 50_000,
        "\ud800" * 100_000,
    ],
    ids=[str(number) for number in range(16)],
)
def test_queries_of_100_kb(hostile: Ledger, query: str) -> None:
    """They are answered; nothing of them is recursion without end."""
    assert isinstance(hostile.search(query), SearchHits)


# PS-48, freshness


@pytest.mark.soak
def test_search_sees_each_write_and_no_deleted_text(ledger: Ledger) -> None:
    """After each of 200 writes: with texts that wait, and right after they were inverted."""
    for number in range(200):
        (message_id,) = say(ledger, f"word{number} common")
        assert [message_id] == ids(ledger.search(f"word{number}"))
        assert message_id in ids(ledger.search("common", chat_id="c", limit=None))
        if number % 20 == 0:
            assert number + 1 == len(ledger.search("common", limit=None))
    assert ledger.delete_chat("c")
    for scope in scopes("ada"):
        assert [] == ledger.search("common", **scope)
        assert [] == ledger.search("word7", **scope)
        assert [] == ledger.search("wor*", **scope)


def test_ps_48_a_chat_made_again_has_only_what_is_new(ledger: Ledger) -> None:
    """Also for another owner, and after the index was built anew."""
    say(ledger, *["old words"] * 70)
    ledger.delete_chat("c")
    ledger.create_chat("c", "bo")
    for _ in range(2):
        assert [] == ledger.search("words")
        ledger.rebuild()
    say(ledger, "new words")

    for scope in scopes("bo"):
        assert ["new words"] == found(ledger, "words", **scope)
        assert [] == ledger.search("old", **scope)
    assert [] == ledger.search("words", user_id="ada")
    with chatledger.open("memory:") as alone:
        alone.create_chat("c", "bo")
        say(alone, "new words")
        assert [hit.rank for hit in alone.search("words")] == [hit.rank for hit in ledger.search("words")]


@pytest.mark.soak
def test_what_the_feed_brings_is_searched(tmp_path: Path) -> None:
    """A second process writes to the same directory; after `sync` it is found."""
    with chatledger.open(tmp_path, durability="fast") as ledger:
        ledger.create_chat("c", "ada")
        with Worker(tmp_path, durability="fast").ready() as worker:
            for number in range(70):
                worker.answer("append", "c", [{"name": "user", "data": f"from afar {number}"}])
            ledger.sync()
            assert ["from afar 69"] == found(ledger, '"afar 69"')
            assert 70 == len(ledger.search("afar", limit=None))
            say(ledger, "from here")
            worker.answer("sync")
            # The two apply events to one index in turn: each text is in it once.
            assert 71 == len(ledger.search("from", limit=None))
            hits = worker.answer("search", "from here")
            assert ["from here"] == [hit["message"]["data"] for hit in hits]
            worker.answer("delete_chat", "c")
            ledger.sync()
            assert [] == ledger.search("from")


@pytest.mark.soak
def test_the_index_that_is_built_is_the_one_that_serves(tmp_path: Path) -> None:
    """Another process has made a new generation meanwhile: rebuilding the search index concerns that one."""
    with chatledger.open(tmp_path, durability="fast") as ledger:
        ledger.create_chat("c", "ada")
        say(ledger, "cat")
        index: Any = internals(ledger).index
        before = index._live
        with Worker(tmp_path, durability="fast").ready() as worker:
            worker.answer("rebuild")
        ledger.rebuild(only="search")

        assert index._live is not None
        assert index._live is not before
        assert index._live.number == index._generations.current
        assert ["cat"] == found(ledger, "cat")


@pytest.mark.guard
def test_threads_write_and_search(tmp_path: Path) -> None:
    """What a thread wrote it finds at once; in the end all is found, once, with the ranks of reading."""
    with chatledger.open(tmp_path, durability="fast") as ledger:
        for chat in "ab":
            ledger.create_chat(chat, "ada")

        def work(name: int) -> None:
            for turn in range(25):
                chat = "ab"[(name + turn) % 2]
                (message_id,) = say(ledger, f"thread{name} turn{turn} shared", chat_id=chat)
                assert [message_id] == ids(ledger.search(f"thread{name} turn{turn}", chat_id=chat))
                assert message_id in ids(ledger.search("shared", user_id="ada", limit=None))

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        for chat in "ab":
            messages = messages_in_log_order(ledger, chat)
            for query in ["shared", "thread1", '"turn3 shared"', "thread*"]:
                hits = ledger.search(query, chat_id=chat, limit=None)
                check_against_scan(hits, messages, query, {message.id for message in messages})
        assert 100 == len(ledger.search("shared", limit=None))


def test_a_search_sees_one_moment(ledger: Ledger) -> None:
    """While another thread deletes and makes the chat again, an answer is of one of its lives, whole."""
    is_over = threading.Event()

    def churn() -> None:
        for life in itertools.count():
            if is_over.is_set():
                return
            ledger.delete_chat("c")
            ledger.create_chat("c", "ada")
            ledger.append("c", [said(f"life{life} text", f"{life} {number}") for number in range(5)])

    with ThreadPoolExecutor(1) as pool:
        churning = pool.submit(churn)
        try:
            for _ in range(200):
                lives = [hit.message.data for hit in ledger.search("text", limit=None)]
                assert len(lives) in {0, 5}
                assert len(set(lives)) <= 1
        finally:
            is_over.set()
        churning.result()


# Scopes: PS-40, PS-46, PS-48


def test_ps_46_other_chats_have_no_influence(ledger: Ledger) -> None:
    """Neither on what is found nor on one bit of a rank, be they the owner's or not."""
    say(ledger, "cat", "cat dog", "dog dog bird", "a long text about a cat and nothing else", "bird")
    queries = ["cat", "dog OR cat", "bird NOT dog", '"cat dog"', "d*", "absent"]
    alone = [ranks(ledger.search(query, chat_id="c")) for query in queries]
    for chat_id, owner in [("mine", "ada"), ("other", "bo")]:
        ledger.create_chat(chat_id, owner)
        say(ledger, *["cat cat cat absent"] * 80, chat_id=chat_id)

    assert alone == [ranks(ledger.search(query, chat_id="c")) for query in queries]
    assert alone == [ranks(ledger.search(query, chat_id="c", user_id="ada")) for query in queries]
    assert alone != [ranks(ledger.search(query, user_id="ada", limit=None)) for query in queries]


def test_a_user_scope_shows_nothing_of_others(ledger: Ledger) -> None:
    """No text, no count, no score: an owner's answers are the same whether others have chats or not."""
    ledger.create_chat("c2", "ada")
    say(ledger, "cat", "dog cat")
    say(ledger, "cat cat", "bird", chat_id="c2")
    queries = ["cat", "dog", "secret", "c*", '"dog cat"', "cat NOT secret", "secret OR bird"]
    before = [(ranks(hits), list(hits)) for hits in (ledger.search(query, user_id="ada") for query in queries)]
    for number, owner in enumerate(["bo", "ad", "adaa", "Ada", "", "ada2"]):
        ledger.create_chat(f"foreign {number}", owner)
        say(ledger, *["secret cat dog"] * 30, chat_id=f"foreign {number}")

    after = [(ranks(hits), list(hits)) for hits in (ledger.search(query, user_id="ada") for query in queries)]
    assert before == after
    for owner in ["bo", "ad", "adaa", "Ada", "", "ada2"]:
        hits = ledger.search("secret OR bird", user_id=owner, limit=None)
        assert 30 == len(hits)
        assert {"secret cat dog"} == {hit.message.data for hit in hits}
    assert [] == ledger.search("secret", user_id="ada", chat_id="foreign 0")
    assert [] == ledger.search("cat", user_id="nobody")
    assert 182 == len(ledger.search("dog OR bird", limit=None))


def test_ps_40_unknown_and_empty_chats_have_no_messages(ledger: Ledger) -> None:
    say(ledger, "cat")
    ledger.create_chat("empty", "ada")
    assert [] == ledger.search("cat", chat_id="unknown")
    assert [] == ledger.search("cat", chat_id="empty")
    assert [] == ledger.search("cat", chat_id="unknown", branch="main")
    assert [] == ledger.search("cat", chat_id="c", user_id="bo")


# PS-40, filters


def test_ps_40_roles(ledger: Ledger) -> None:
    """By name; all for None and an empty list. Ranks stay those of the whole chat."""
    ledger.append("c", [user("cat one"), assistant("cat two"), NewMessage("tool", "cat three"), user("no")])
    every = ranks(ledger.search("cat"))
    assert 3 == len(every) == len(ledger.search("cat", roles=None)) == len(ledger.search("cat", roles=[]))
    for names in [["user"], ["tool", "user"], ("assistant",), {"tool"}, frozenset({"nobody", "user"})]:
        hits = ledger.search("cat", roles=names)
        assert {hit.message.name for hit in hits} == {*names} - {"nobody"}
        assert ranks(hits) == {message_id: rank for message_id, rank in every.items() if message_id in ranks(hits)}
    assert [] == ledger.search("cat", roles=["nobody"])
    assert [] == ledger.search("cat", roles=["User"])


def test_a_chat_of_300_names(ledger: Ledger) -> None:
    """More than one byte numbers, with long names that share their beginnings."""
    names = [f"{'long' * 200} {number}" for number in range(300)]
    ledger.append("c", [said("cat", f"m{number}", name=name) for number, name in enumerate(names)])
    for number in [0, 1, 254, 255, 256, 257, 299]:
        assert [f"m{number}"] == ids(ledger.search("cat", roles=[names[number]]))
    assert {f"m{number}" for number in range(250, 260)} == set(ids(ledger.search("cat", roles=names[250:260])))


def test_ps_40_every_branch_or_one(ledger: Ledger) -> None:
    """A chat is searched on every branch; with a branch only its chain, however often it was forked and moved."""
    ledger.append("c", [said("cat root", "r"), said("cat a1", "a1"), said("cat a2", "a2")])
    ledger.fork("c", "r")
    ledger.append("c", [said("cat b1", "b1"), said("cat b2", "b2")])
    ledger.fork("c", "b1")
    ledger.append("c", [said("cat c1", "c1")])
    ledger.add_messages("c", [said("cat loose", "l"), said("cat looser", "ll", parent="l")])
    ledger.create_branch("c", "none", None)

    def on(branch: str | None) -> set[str]:
        return set(ids(ledger.search("cat", chat_id="c", branch=branch)))

    assert {"r", "a1", "a2", "b1", "b2", "c1", "l", "ll"} == on(None)
    assert {"r", "a1", "a2"} == on("main")
    assert {"r", "b1", "b2"} == on("main-v2")
    names = [branch.name for branch in ledger.list_branches("c")]
    for name in names:
        assert {message.id for message in ledger.get_messages("c", branch=name)} == on(name)
    assert set() == on("none")

    ledger.move_head("c", "main", "a1", expected="a2")
    assert {"r", "a1"} == on("main")
    ledger.move_head("c", "main", "ll", expected="a1")
    assert {"l", "ll"} == on("main")
    ledger.append("c", [said("cat after", "z")], branch="main")
    assert {"l", "ll", "z"} == on("main")
    ledger.move_head("c", "main", None, expected="z")
    assert set() == on("main")
    drop_search(ledger)
    for name in names:
        assert {message.id for message in ledger.get_messages("c", branch=name)} == on(name)
    assert ledger.search("cat", chat_id="c", branch="main-v2").is_degraded


@pytest.mark.parametrize("query", ["cat", "", "absent"])
def test_an_unknown_branch_is_an_error(ledger: Ledger, query: str) -> None:
    """Also when the query finds nothing."""
    say(ledger, "cat")
    with pytest.raises(BranchNotFoundError, match="nowhere"):
        ledger.search(query, chat_id="c", branch="nowhere")


def test_since_and_until(ledger: Ledger) -> None:
    """From one moment on and before another: as numbers, or as times of any zone."""
    ledger.append("c", [said("cat", f"m{at}", at=at) for at in (-5, 0, 1000, 2000, 3000)])

    def between(**options: Any) -> set[str]:
        return set(ids(ledger.search("cat", **options)))

    assert {"m2000", "m3000"} == between(since=2000)
    assert {"m-5", "m0", "m1000"} == between(until=2000)
    assert {"m1000"} == between(since=1000, until=2000)
    assert set() == between(since=2000, until=2000)
    assert set() == between(since=2000, until=1000)
    assert {"m0", "m1000"} == between(since=0, until=1001)
    moment = datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert {"m2000", "m3000"} == between(since=moment)
    assert {"m2000", "m3000"} == between(since=moment.astimezone(timezone(timedelta(hours=-7))))
    assert {"m-5", "m0", "m1000"} == between(until=moment)
    assert 5 == len(between(since=-(2**80), until=2**80))
    assert set() == between(since=2**80)
    assert set() == between(until=-(2**80))


@pytest.mark.parametrize("is_degraded", [False, True], ids=["ranked", "compared"])
def test_ps_40_limit_offset_and_pages(ledger: Ledger, *, is_degraded: bool) -> None:
    """20 by default; 0 is none; None is all; pages tile the answer."""
    ledger.append("c", [said("cat " * (number % 7 + 1), f"m{number}", at=number % 5) for number in range(75)])
    if is_degraded:
        drop_search(ledger)
    everything = ledger.search("cat", limit=None)
    assert is_degraded == everything.is_degraded
    assert 75 == len(everything) == len(set(ids(everything)))
    assert everything[:20] == ledger.search("cat")
    assert everything == ledger.search("cat", limit=1000)
    assert [] == ledger.search("cat", limit=0) == ledger.search("cat", limit=0, offset=3)
    assert everything[70:] == ledger.search("cat", offset=70) == ledger.search("cat", limit=None, offset=70)
    assert [] == ledger.search("cat", offset=75) == ledger.search("cat", offset=10**30)
    assert everything == ledger.search("cat", limit=10**30)
    for size in [1, 7, 75]:
        pages = [ledger.search("cat", limit=size, offset=start) for start in range(0, 75 + size, size)]
        assert everything == [hit for page in pages for hit in page]


# Order and snippets: PS-46, PS-47


def test_ps_46_lower_is_better(ledger: Ledger) -> None:
    """The source gets this wrong in one of its adapters: there higher is better. A word of most messages has a small rank."""
    say(ledger, "cat", "cat cat cat", "cat and some more words here", *["dog"] * 20)
    hits = ledger.search("cat")
    assert ["cat cat cat", "cat", "cat and some more words here"] == [hit.message.data for hit in hits]
    assert sorted(hit.rank for hit in hits) == [hit.rank for hit in hits]
    assert all(hit.rank < 0 for hit in hits)
    assert all(-1e-5 < hit.rank < 0 for hit in ledger.search("dog"))


def test_ps_46_ties_are_newest_first(ledger: Ledger) -> None:
    """By `created_at`, in whatever order they were written, down to the earliest time there is; then the last written."""
    times = {"e": -(2**63), "n": 50, "o": -1, "x": 2**63 - 1, "y": 50, "z": 0}
    ledger.append("c", [said("cat", message_id, at=at) for message_id, at in times.items()])
    assert ["x", "y", "n", "z", "o", "e"] == ids(ledger.search("cat"))
    assert ["x", "y"] == ids(ledger.search("cat", limit=2))
    drop_search(ledger)
    assert ["x", "y", "n", "z", "o", "e"] == ids(ledger.search("cat"))


def test_in_the_order_of_time(ledger: Ledger) -> None:
    """Who said it last, and who said it first, however well it matches: all, and the first few of very many."""
    times = {f"m{number}": (number * 7919) % 1009 for number in range(1000)} | {"e": -(2**63), "x": 2**63 - 1}
    ledger.append("c", [said("cat " * (1 + at % 5), message_id, at=at) for message_id, at in times.items()])
    oldest = sorted(times, key=times.__getitem__)
    assert oldest == ids(ledger.search("cat", order="oldest", limit=None))
    assert oldest[::-1] == ids(ledger.search("cat", order="newest", limit=None))
    assert oldest[:3] == ids(ledger.search("cat", order="oldest", limit=3))
    assert oldest[5:8] == ids(ledger.search("cat", order="oldest", limit=3, offset=5))
    assert oldest[::-1][:3] == ids(ledger.search("cat", order="newest", limit=3))


@pytest.mark.parametrize("looked_up", [1_000, 3])
def test_ties_of_several_chats_follow_their_list(
    ledger: Ledger, looked_up: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chat that changed last first, whether their places are looked up or, of many, read from the list of all."""
    monkeypatch.setattr("chatledger.projections.search.search._LOOKED_UP", looked_up)
    for number in range(8):
        ledger.create_chat(f"tied-{number}", "ada" if number % 3 else "bob")
        ledger.append(f"tied-{number}", [said("cat", f"{number}-{at}", at=50) for at in range(2)])
    for number in (5, 2, 7):
        ledger.update_chat(f"tied-{number}", title="changed")
    for owner in (None, "ada"):
        chats = [chat.id for chat in ledger.list_chats(user_id=owner) if chat.message_count]
        wanted = [f"{chat_id.removeprefix('tied-')}-{at}" for chat_id in chats for at in (1, 0)]

        assert wanted == ids(ledger.search("cat", user_id=owner))
        assert wanted[:5] == ids(ledger.search("cat", user_id=owner, limit=5))


def _matching(hit: SearchHit) -> list[str]:
    return [text for text, is_match in hit.parts if is_match]


def test_nobody_can_write_a_match(ledger: Ledger) -> None:
    """Matches are places, so what looks like one in a text is text; lone surrogates do not shift them."""
    text = "<mark>no</mark> \ud83d\ude00 ... an okapi </mark>"
    say(ledger, text)
    (hit,) = ledger.search("okapi")
    assert (hit.snippet, _matching(hit)) == ("<mark>no</mark> \U0001f600 ... an okapi </mark>", ["okapi"])
    assert hit.snippet == "".join(part for part, _ in hit.parts)


def test_ps_47_the_best_passage_is_shown(ledger: Ledger) -> None:
    """At most 32 words, cut sides marked by dots, neighbours under one mark, no escaping."""
    before, after = " ".join(f"b{n}" for n in range(100)), " ".join(f"a{n}" for n in range(100))
    say(ledger, f"{before} <b>Old towns</b> & {after}")
    (hit,) = ledger.search('"old town"')
    assert "<b>Old towns</b> & a0" in hit.snippet
    assert ["Old towns"] == _matching(hit)
    assert hit.snippet.startswith("...")
    assert hit.snippet.endswith("...")
    plain = hit.snippet.strip(".")
    assert plain in f"{before} <b>Old towns</b> & {after}"
    assert 32 == len(re.findall(r"\w+", plain))

    (hit,) = ledger.search("old AND town NOT absent")
    assert ["Old towns"] == _matching(hit)


# While the index is built: PS-48


def test_ps_48_while_the_index_is_built_texts_are_compared(ledger: Ledger) -> None:
    """Literal and folded: no stems, no operators, and no wildcards, which the source's fallback has."""
    ids_ = say(ledger, "Running État", "100% sure", "100 sure", "a_b", "axb", "x" * 300 + "cat", "(fox OR bear)")
    drop_search(ledger)

    def compared(query: str, **options: Any) -> list[int]:
        hits = ledger.search(query, **options)
        assert hits.is_degraded
        assert all(0.0 == hit.rank for hit in hits)
        return sorted(ids_.index(hit.message.id) for hit in hits)

    assert [0] == compared("ETAT") == compared("unni") == compared("running état", chat_id="c")
    assert [] == compared("runs")
    assert [1] == compared("100%") == compared("0% S")
    assert [3] == compared("a_b")
    assert [] == compared("%a%")
    assert [6] == compared("fox OR bear") == compared("(fox OR", user_id="ada")
    (hit,) = ledger.search("cat")
    assert "x" * 200 == hit.snippet
    assert not ledger.search("cat", user_id="nobody").is_degraded
    assert [] == ledger.search("%")

    internals(ledger).rebuild_search()
    assert not ledger.search("cat").is_degraded
    assert [ids_[0]] == ids(ledger.search("runs"))


def test_what_is_written_while_the_index_is_behind_is_found(ledger: Ledger) -> None:
    """In a new chat by the index at once, in one that lags by comparing; and nothing of it is lost."""
    say(ledger, "cat old")
    drop_search(ledger)
    say(ledger, "cat new")
    ledger.create_chat("fresh", "ada")
    say(ledger, "cats fresh", chat_id="fresh")
    assert {"cat old", "cat new"} == set(found(ledger, "cat", chat_id="c"))
    assert ledger.search("cat", chat_id="c").is_degraded
    assert not ledger.search("cat", chat_id="fresh").is_degraded
    assert {"cat old", "cat new", "cats fresh"} == set(found(ledger, "cat"))

    internals(ledger).rebuild_search()
    hits = ledger.search("cats")
    assert 3 == len(hits)
    assert not hits.is_degraded


# Sizes


@pytest.mark.soak
def test_a_message_of_one_megabyte(ledger: Ledger) -> None:
    """Its last word is found, its phrases are, and its many words of one kind are one large row."""
    large = " ".join(["common", *(f"w{number}" for number in range(100_000)), "last", *["many"] * 40_000])
    assert len(large) > 850_000
    for _ in range(2):
        (message_id,) = say(ledger, large, chat_id="c")
        assert message_id in ids(ledger.search("last"))
        assert message_id in ids(ledger.search('"w99999 last many"', chat_id="c"))
        say(ledger, *["short common"] * 70)
    hits = ledger.search('"last many many"')
    assert 2 == len(hits)
    assert all(["last many many"] == _matching(hit) for hit in hits)
    assert [] == ledger.search('"many last"')
    messages = messages_in_log_order(ledger, "c")
    for query in ["common", '"many many" NOT short']:
        hits = ledger.search(query, chat_id="c", limit=None)
        check_against_scan(hits, messages, query, {message.id for message in messages})


def test_words_longer_than_a_key(ledger: Ledger) -> None:
    """LMDB's keys have 511 bytes; such words are told apart by their ends all the same."""
    say(ledger, "x" * 5000 + "a", "x" * 5000 + "b", "é" * 3000, "長" * 3000)
    assert ["x" * 5000 + "a"] == found(ledger, "X" * 5000 + "A")
    assert 2 == len(ledger.search("x" * 100 + "*"))
    assert ["é" * 3000] == found(ledger, "e" * 3000)
    assert ["長" * 3000] == found(ledger, "長" * 50)


# Arguments


@pytest.mark.parametrize(
    "options",
    [
        {"query": None},
        {"query": b"cat"},
        {"query": 5},
        {"query": ["cat"]},
        {"chat_id": 5},
        {"user_id": 5},
        {"roles": "user"},
        {"roles": 5},
        {"roles": [5]},
        {"roles": iter(["user"])},
        {"branch": "main"},
        {"branch": 5, "chat_id": "c"},
        {"since": "someday"},
        {"since": 1.5},
        {"since": True},
        {"until": datetime(2020, 1, 1)},  # noqa: DTZ001 - without a zone on purpose
        {"limit": "5"},
        {"limit": -1},
        {"limit": 1.0},
        {"limit": True},
        {"offset": -1},
        {"offset": None},
        {"offset": "1"},
        {"offset": False},
    ],
)
def test_arguments_are_checked(ledger: Ledger, options: dict[str, Any]) -> None:
    """Whatever is in the chats, and also where the query finds nothing."""
    say(ledger, "cat")
    for query in ["cat", ""]:
        arguments: dict[str, Any] = {"query": query, **options}
        with pytest.raises(InvalidValueError):
            ledger.search(**arguments)


# In an event loop


@pytest.mark.anyio
async def test_async_search(async_ledger: AsyncLedger) -> None:
    """The same answers, flags and errors."""
    await async_ledger.create_chat("c", "ada")
    await async_ledger.append("c", [user("Old Town"), assistant("The towns")])
    hits = await async_ledger.search("town", chat_id="c", roles=["user"], limit=5)
    assert [("Old Town", [[4, 8]])] == [(hit.snippet, hit.matches) for hit in hits]
    assert not hits.is_degraded
    assert 2 == len(await async_ledger.search("town", user_id="ada", branch="main", chat_id="c"))
    with pytest.raises(BranchNotFoundError):
        await async_ledger.search("town", chat_id="c", branch="nowhere")
    with pytest.raises(InvalidValueError):
        await async_ledger.search("town", offset=-1)
    await async_ledger.delete_chat("c")
    assert [] == await async_ledger.search("town")


# What tools took and gave, and reasoning


def agent(*, text: str = "", tools: str = "", reasoning: str = "") -> dict[str, Any]:
    """The data of an agent's message."""
    call = {
        "type": "tool-find",
        "toolCallId": "call",
        "state": "output-available",
        "input": {"key": tools},
        "output": {"count": 12},
    }
    calls = [call] if tools else []
    return {
        "role": "assistant",
        "parts": [{"type": "reasoning", "text": reasoning}, *calls, {"type": "text", "text": text}],
    }


def test_tools_and_reasoning_are_searched_on_request(ledger: Ledger) -> None:
    """Each by itself or together; by default the text only."""
    data = agent(text="near the lake", tools="an okapi", reasoning="perhaps a zoo")
    say(ledger, data, "a zoo with an okapi")

    for scope in scopes("ada"):
        assert ["a zoo with an okapi"] == found(ledger, "okapi", **scope)
        assert [data] == found(ledger, "okapi", within=["tools"], **scope)
        assert [data] == found(ledger, "zoo", within=["reasoning"], **scope)
        assert [data] == found(ledger, "12", within=("tools",), **scope)
        assert 2 == len(found(ledger, "okapi", within={"text", "tools"}, **scope))
        assert [] == found(ledger, "key OR call OR find OR count", within=["text", "tools", "reasoning"], **scope)


def test_words_may_be_spread_over_fields_and_phrases_not(ledger: Ledger) -> None:
    """A word after NOT is in none of them."""
    data = agent(text="near the lake", tools="an okapi", reasoning="perhaps")
    say(ledger, data)

    assert [data] == found(ledger, "lake okapi", within=["text", "tools"])
    assert [] == found(ledger, "lake okapi", within=["tools"])
    assert [] == found(ledger, '"lake an"', within=["text", "tools"])
    assert [] == found(ledger, "lake NOT okapi", within=["text", "tools"])
    assert [data] == found(ledger, "lake NOT okapi", within=["text", "reasoning"])
    assert [data] == found(ledger, '"near the" oka* 12', within=["text", "tools"])


def test_the_snippet_is_from_what_matches_best(ledger: Ledger) -> None:
    """The hit names it; where two match alike it is the first of text, tools and reasoning."""
    say(ledger, agent(text="okapi", tools="an okapi in Riga", reasoning="okapi"))

    def shown(query: str, *within: Any) -> tuple[str, str, list[str]]:
        (hit,) = ledger.search(query, within=within)
        return hit.within, hit.snippet, _matching(hit)

    assert ("text", "okapi", ["okapi"]) == shown("okapi", "reasoning", "tools", "text")
    assert ("tools", "an okapi in Riga\n12", ["okapi", "Riga"]) == shown("okapi riga", "text", "tools")
    assert ("reasoning", "okapi", ["okapi"]) == shown("okapi", "reasoning")


def test_ranks_are_those_of_a_chat_with_these_texts(ledger: Ledger) -> None:
    """A message counts as one text that has all the fields; the others do not matter."""
    drafts = [
        ("lake lake", "okapi lake", "zoo"),
        ("okapi", "okapi", "okapi"),
        ("lake", "", ""),
        ("zoo", "", "lake lake"),
    ]
    ledger.create_chat("plain", "bo")
    for text, tools, reasoning in drafts:
        say(ledger, agent(text=text, tools=tools, reasoning=reasoning))
        say(ledger, " - ".join([text, tools and f"{tools} 12", reasoning]), chat_id="plain")

    for query in ("lake", "okapi OR zoo", "lake NOT okapi"):
        ours = ledger.search(query, chat_id="c", within=["text", "tools", "reasoning"])
        plain = ledger.search(query, chat_id="plain")
        assert [hit.rank for hit in plain] == pytest.approx([hit.rank for hit in ours])
        assert ours


def test_fields_with_every_other_option(ledger: Ledger) -> None:
    """Roles, branches, views of one user, the past, and asyncio."""
    (first,) = ledger.append("c", [said(agent(tools="okapi"), "m1", name="assistant", at=5)])
    position = ledger.position
    ledger.create_chat("d", "bo")
    ledger.append("d", [said(agent(tools="okapi okapi"), "m2", name="tool", at=7)])
    ledger.fork("c", first.id)
    ledger.append("c", [said(agent(reasoning="okapi"), "m3")])

    def answer(reader: Any, **options: Any) -> list[str]:
        return sorted(ids(reader.search("okapi", within=["tools", "reasoning"], **options)))

    assert ["m1", "m2", "m3"] == answer(ledger)
    assert ["m2"] == answer(ledger, roles=["tool"])
    assert ["m1"] == answer(ledger, chat_id="c", branch="main")
    assert ["m1", "m3"] == answer(ledger.for_user("ada"))
    assert ["m2"] == answer(ledger, since=6, until=8)
    with ledger.as_of(position) as then:
        assert ["m1"] == answer(then)
        assert [] == ids(then.search("okapi"))


@pytest.mark.parametrize("within", ["tools", [], ["tool"], ["text", None], [["text"]], 7, None])
def test_fields_that_there_are_not(ledger: Ledger, within: Any) -> None:
    """The error says which there are."""
    with pytest.raises(InvalidValueError, match="'tools'"):
        ledger.search("okapi", within=within)


def test_fields_while_the_index_is_being_built(ledger: Ledger) -> None:
    """The messages are compared with the query in the fields that were asked for, and shown with those."""
    data = agent(text="near the lake", tools="an okapi")
    say(ledger, data)
    drop_search(ledger)

    assert [] == ledger.search("okapi")
    (hit,) = hits = ledger.search("okapi", within=["text", "tools"])
    assert hits.is_degraded
    assert ("tools", "an okapi\n12") == (hit.within, hit.snippet)


def test_a_message_without_tools_and_reasoning_has_no_rows_for_them(ledger: Ledger) -> None:
    """So it costs what it did without them."""
    with small_blocks(1):
        for number in range(7):
            say(ledger, "text", {"parts": [{"type": "text", "text": f"text {number}"}]}, {"any": ["data"]})
        before = columns_of(ledger)
        say(ledger, agent(tools="okapi"))

    assert not before & {LENGTHS[TOOLS], LENGTHS[REASONING]}
    assert LENGTHS[TOOLS] in columns_of(ledger)
    assert LENGTHS[REASONING] not in columns_of(ledger)


def columns_of(ledger: Ledger) -> set[int]:
    """The columns that segments have."""
    kinds = (key[len(segment_key(0, b"")) :] for key in search_rows(ledger) if key.startswith(SEGMENT))
    return {kind[1] for kind in kinds if kind.startswith(COLUMNS)}


# Other languages, and identifiers


@pytest.mark.parametrize("state", ["waiting", "stored", "rebuilt"])
def test_nouns_with_particles_and_parts_of_identifiers_are_found(ledger: Ledger, state: str) -> None:
    """What waits, segments as writers make them, and those of a rebuild have the same words."""
    texts = {
        "서울은 대한민국의 수도입니다, GPT는 번역을 검색합니다": ["서울", "수도", "번역", "검색", "gpt", "대한민국", '"서울은 대한"*'],
        "raise HTTPSConnection.getUserName": ["https", "connection", "conn*", "user name", "getusername", '"raise httpsconnection"'],
        "Łódź, øre and đak": ["lodz", "Łódź", "ore", "dak"],
    }  # fmt: skip
    say(ledger, *texts)
    if state == "stored":
        say(ledger, *["another text"] * 300)
    if state == "rebuilt":
        ledger.rebuild()
    for text, queries in texts.items():
        for query in queries:
            assert [text] == found(ledger, query), query
    assert ["HTTPSConnection.getUserName"] == _matching(ledger.search("connection user")[0])
    assert ["서울"] == _matching(ledger.search("서울")[0])
    assert [] == found(ledger, '"https connection"')
    for query in ["서울 OR conn* OR raise", 'user "raise https"*', "use* NOT 검색"]:
        hits = ledger.search(query, limit=None)
        check_against_scan(hits, messages_in_log_order(ledger, "c"), query, ids(hits))
    ledger.verify()


def test_parts_of_identifiers_go_with_their_chat(ledger: Ledger) -> None:
    """Their terms too are in no block after it."""
    say(ledger, *["a HTTPSConnection"] * 300)
    ledger.delete_chat("c")
    with internals(ledger).snapshot() as snapshot:
        rows = b"".join(bytes(key) + bytes(value) for key, value in snapshot.txn.cursor(snapshot.tables.search))
    assert b"connect" not in rows
    assert [] == ledger.search("connection")

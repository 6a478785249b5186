"""Search by meaning as users see it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.embedding_world import Words, digests_of, found, slots_of
from tests.support.soak import examples

import chatledger
from chatledger import ConfigurationError, Embedding, InvalidValueError, Ledger, NewMessage, assistant, user
from chatledger.domain.errors import EmbeddingError


@pytest.fixture
def words() -> Words:
    return Words()


@pytest.fixture
def ledger(words: Words) -> Iterator[Ledger]:
    """Two chats of two users, embedded."""
    with chatledger.open("memory:", embed=words.embedding()) as ledger:
        ledger.create_chat("pets", "ada")
        ledger.create_chat("cars", "bob")
        ledger.append("pets", [user("my puppy barks"), assistant("train the dog"), user("a feline sleeps")])
        ledger.append("cars", [user("the car is red"), assistant("a dog in the automobile")])
        assert ledger.embed_pending() == 0
        yield ledger


def test_messages_are_found_by_what_they_mean(ledger: Ledger) -> None:
    """Without a word in common; the nearest first, and every message has a place."""
    hits = ledger.search("hound", mode="meaning")

    assert {"my puppy barks", "train the dog", "a dog in the automobile"} == {hit.message.text for hit in hits[:3]}
    assert len(hits) == 5
    assert hits.pending == 0
    assert [hit.ranks for hit in hits] == [{"meaning": place} for place in range(1, 6)]
    assert [hit.rank for hit in hits] == sorted(hit.rank for hit in hits)
    assert [hit.similarity for hit in hits] == [-hit.rank for hit in hits]
    assert hits[0].snippet == hits[0].message.text
    assert found(ledger, "hound sleeps", limit=1) + found(ledger, "hound sleeps", offset=1) == found(
        ledger, "hound sleeps"
    )


def test_filters_come_first(ledger: Ledger) -> None:
    """Only what passes is ranked, so the nearest of these are found, however far."""
    newest = ledger.get_messages("cars")[-1]

    assert set(found(ledger, "dog", chat_id="pets", limit=2)) == {"my puppy barks", "train the dog"}
    assert set(found(ledger, "dog", user_id="bob")) == {"the car is red", "a dog in the automobile"}
    assert set(found(ledger, "dog", roles=["assistant"])) == {"train the dog", "a dog in the automobile"}
    assert found(ledger, "dog", roles=["nobody"]) == found(ledger, "dog", chat_id="nowhere") == []
    assert found(ledger, "dog", until=0) == []
    assert "a dog in the automobile" in found(ledger, "dog", since=newest.created_at)
    assert found(ledger, "dog", limit=0) == found(ledger, "   ") == []


def test_a_branch(ledger: Ledger) -> None:
    """Only messages on its chain."""
    first = ledger.get_messages("pets")[0]
    ledger.fork("pets", first.id)
    ledger.append("pets", [assistant("buy a leash")])
    ledger.embed_pending()

    assert set(found(ledger, "dog", chat_id="pets", branch="main-v2")) == {"my puppy barks", "buy a leash"}
    assert "buy a leash" not in found(ledger, "dog", chat_id="pets", branch="main")
    with pytest.raises(chatledger.NotFoundError):
        found(ledger, "dog", chat_id="pets", branch="none")


def test_hidden_messages_are_left_out(ledger: Ledger) -> None:
    """Unless they are asked for."""
    ledger.annotate("pets", ledger.get_messages("pets")[0].id, hidden=True)

    assert "my puppy barks" not in found(ledger, "puppy")
    assert "my puppy barks" in found(ledger, "puppy", include_hidden=True)
    assert "my puppy barks" not in [hit.message.text for hit in ledger.search("puppy", mode="both")]


def test_for_user_sees_the_users_messages_only(ledger: Ledger) -> None:
    """Neither texts, places nor counts of others."""
    owned = ledger.for_user("bob")
    hits = owned.search("dog", mode="meaning")

    assert {"the car is red", "a dog in the automobile"} == {hit.message.text for hit in hits}
    assert [hit.ranks for hit in hits] == [{"meaning": 1}, {"meaning": 2}]
    assert found(owned, "dog", user_id="ada") == found(owned, "dog", chat_id="pets") == []
    assert owned.embed_pending() == 0
    with owned.as_of(ledger.position) as view:
        assert set(found(view, "dog")) == {"the car is red", "a dog in the automobile"}


def test_both_merges_the_rankings(ledger: Ledger) -> None:
    """By reciprocal rank fusion; each hit says by what it was found, and shows its words."""
    hits = ledger.search("train dog", mode="both")
    best = hits[0]

    assert best.message.text == "train the dog"
    assert best.ranks == {"words": 1, "meaning": 1}
    assert best.rank == pytest.approx(-2 / 61)
    assert [text for text, is_match in best.parts if is_match] == ["train", "dog"]
    assert best.similarity is not None
    assert all(hit.ranks.keys() == {"meaning"} for hit in hits[1:])
    pages = [*ledger.search("train dog", mode="both", limit=2), *ledger.search("train dog", mode="both", offset=2)]
    assert [hit.message.id for hit in pages] == [hit.message.id for hit in hits]
    unlike = ledger.search("puppy hound", mode="both")  # no message has both words
    assert all(hit.ranks.keys() == {"meaning"} for hit in unlike)
    assert "train the dog" in [hit.message.text for hit in unlike[:3]]


def test_an_earlier_moment(ledger: Ledger) -> None:
    """As many messages as there were, with the vectors of today."""
    before = ledger.position
    ledger.append("pets", [user("the hound runs")])
    ledger.create_chat("later", "ada")
    ledger.append("later", [user("dog")])
    ledger.embed_pending()
    with ledger.as_of(before) as view:
        hits = view.search("dog", mode="meaning")
        assert {"my puppy barks", "train the dog", "a feline sleeps", "the car is red", "a dog in the automobile"} == {
            hit.message.text for hit in hits
        }
        assert hits.pending == 0
        assert "the hound runs" not in found(view, "hound", chat_id="pets")
        assert len(view.search("dog", mode="both", user_id="ada")) == 3
    assert found(ledger, "dog", limit=1) == ["dog"]


def test_long_messages_are_found_by_their_pieces(ledger: Ledger) -> None:
    """And shown with the piece that is nearest."""
    long = "zebra " * 333 + "umbrella " * 300 + "violin " * 300
    ledger.append("pets", [user(long)])
    ledger.embed_pending()
    (hit,) = ledger.search("umbrella", mode="meaning", limit=1)

    assert hit.message.text == long
    assert hit.snippet.startswith("umbrella umbrella")
    assert hit.similarity is not None
    assert hit.similarity > 0.9


def test_messages_without_text_are_no_hits(ledger: Ledger) -> None:
    """They are not pending either."""
    ledger.append("pets", [NewMessage("assistant", {"parts": []}), user("   ")])

    assert ledger.embed_pending() == 0
    assert len(found(ledger, "dog")) == 5
    assert ledger.search("dog", mode="meaning").pending == 0


def test_without_an_embedding() -> None:
    """The error says what to do."""
    with chatledger.open("memory:") as ledger:
        for mode in ("meaning", "both"):
            with pytest.raises(ConfigurationError, match="needs an embedding"):
                ledger.search("dog", mode=mode)
        with pytest.raises(ConfigurationError, match="needs an embedding"):
            ledger.embed_pending()
        with pytest.raises(InvalidValueError, match="mode"):
            ledger.search("dog", mode="sense")  # type: ignore[arg-type]  # that is the point
        with pytest.raises(ConfigurationError, match="Embedding"):
            ledger.search("dog", mode="meaning", embed="words")  # type: ignore[arg-type]  # as above
        assert ledger.search("dog").pending == 0


def test_an_embedding_for_one_search(tmp_path: Path, words: Words) -> None:
    """A ledger that was opened without it finds what another one has embedded; the rest is pending."""
    with chatledger.open(tmp_path, embed=words.embedding(), durability="fast") as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [user("a dog"), user("a cat")])
        ledger.embed_pending()
    with chatledger.open(tmp_path, durability="fast") as ledger:
        assert found(ledger, "hound", embed=words.embedding()) == ["a dog", "a cat"]
        ledger.append("c", [user("a horse")])
        ledger.create_chat("d", "bob")
        ledger.append("d", [user("a cow")])
        hits = ledger.search("hound", mode="meaning", embed=words.embedding())
        assert [2, 2] == [len(hits), hits.pending]
        assert ledger.search("hound", mode="meaning", embed=words.embedding(), user_id="ada").pending == 1
        assert ledger.search("hound", mode="meaning", embed=words.embedding(), chat_id="d").pending == 1
        others = ledger.search("hound", mode="meaning", embed=words.embedding("other"))
        assert [0, 4] == [len(others), others.pending]


def test_queries_may_be_embedded_by_another_function(words: Words) -> None:
    """For models that tell questions from texts."""
    asked: list[str] = []

    def query(texts: Any) -> Any:
        asked.extend(texts)
        return words([text.removeprefix("query: ") for text in texts])

    with chatledger.open("memory:", embed=Embedding(words, "words", 64, query=query)) as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [user("a dog")])
        ledger.embed_pending()
        assert asked == []
        assert found(ledger, "query: hound") == ["a dog"]
        assert asked == ["query: hound"]


def test_a_function_that_fails_on_the_query(ledger: Ledger, words: Words) -> None:
    """By meaning that is an error; by both, words still answer."""
    words.is_down = True

    with pytest.raises(EmbeddingError):
        found(ledger, "dog")
    hits = ledger.search("dog", mode="both")
    assert hits.is_degraded
    assert {"train the dog", "a dog in the automobile"} == {hit.message.text for hit in hits}


def test_a_function_that_hangs_on_the_query(words: Words) -> None:
    """It holds up no search: by both, words answer; by meaning that is an error."""
    with chatledger.open("memory:", embed=words.embedding(query_timeout_s=0.05)) as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [user("a dog")])
        ledger.embed_pending()
        words.gate.clear()
        hits = ledger.search("dog", mode="both")
        assert (["a dog"], True) == ([hit.message.text for hit in hits], hits.is_degraded)
        with pytest.raises(EmbeddingError, match=r"within 0\.05 s"):
            found(ledger, "dog")
        words.gate.set()


@pytest.mark.parametrize("seconds", [0, -1, True, "1", float("nan")])
def test_a_timeout_of_queries_that_is_none(words: Words, seconds: Any) -> None:
    with pytest.raises(ConfigurationError, match="query_timeout_s"):
        words.embedding(query_timeout_s=seconds)


def test_hits_as_json(ledger: Ledger) -> None:
    answer = ledger.search("dog", mode="both", limit=1).to_dict()

    assert answer.keys() == {"hits", "is_degraded", "pending"}
    assert answer["hits"][0]["ranks"].keys() <= {"words", "meaning"}


@pytest.mark.anyio
async def test_from_asyncio(words: Words) -> None:
    async with chatledger.open_async("memory:", embed=words.embedding()) as ledger:
        await ledger.create_chat("c", "ada")
        await ledger.append("c", [user("a dog")])
        assert await ledger.embed_pending() == 0
        assert [hit.message.text for hit in await ledger.search("hound", mode="meaning")] == ["a dog"]


STEPS = st.lists(
    st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 5))
    | st.tuples(st.just("fork"), st.integers(0, 3), st.integers(0, 9))
    | st.tuples(st.sampled_from(["delete", "rebuild", "wait", "reopen"]), st.integers(0, 3), st.just(0)),
    max_size=15,
)


@given(STEPS)
@settings(max_examples=examples(60), deadline=None)
def test_vectors_are_those_of_the_messages(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    """Whatever happens: of every piece of every living message one vector, of nothing else, and no piece embedded twice."""
    words = Words()
    place = f"sqlite:///{tmp_path_factory.mktemp('ledger')}/log.db"
    embedding = words.embedding()
    ledger, number = chatledger.open(place, embed=embedding), 0
    try:
        for step, chat, size in steps:
            name = f"c{chat}"
            if step == "append":
                ledger.upsert_chat(name, f"u{chat}")
                ledger.append(name, [user(f"word{number + at} text") for at in range(size)])
                number += size
            elif step == "fork" and ledger.get_chat(name) is not None and (chain := ledger.get_messages(name)):
                ledger.fork(name, chain[size % len(chain)].id)
            elif step == "delete":
                ledger.delete_chat(name)
            elif step == "rebuild":
                ledger.rebuild()
            elif step == "wait":
                assert ledger.embed_pending() == 0
            elif step == "reopen":
                ledger.close()
                ledger = chatledger.open(place, embed=embedding)
        assert ledger.embed_pending() == 0
        slots = slots_of(ledger, embedding)
        assert digests_of(ledger, embedding) == sorted(slot[3] for slot in slots)
        hits = ledger.search("text", mode="meaning", limit=None)
        assert len(hits) == len(slots)
        assert hits.pending == 0
    finally:
        ledger.close()
    embedded = [text for text in words.texts if text != "text"]
    assert "delete" in {step for step, _, _ in steps} or len(embedded) == len(set(embedded))

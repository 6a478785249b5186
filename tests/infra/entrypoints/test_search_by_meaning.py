"""Search by meaning over HTTP and on the command line."""

from pathlib import Path

import pytest
from tests.support.cli_world import ask, fails, run
from tests.support.embedding_world import Words, words_embedding
from tests.support.http_world import client_of

import chatledger
from chatledger import ConfigurationError, user
from chatledger.infra.entrypoints.http.settings import Serving
from chatledger.infra.entrypoints.named import embedding_named
from chatledger.server import create_app

NAMED = "tests.support.embedding_world:words_embedding"


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A ledger with embedded messages, and one that has no vector."""
    place = tmp_path / "data"
    with chatledger.open(place, durability="fast", embed=words_embedding()) as ledger:
        ledger.create_chat("c", "ada")
        ledger.append("c", [user("a puppy barks"), user("the car is red")])
        ledger.embed_pending()
    return place


def test_over_http(stored: Path) -> None:
    """`mode` is that of `Ledger.search`; the answer says why, and how many messages have no vectors."""
    words = Words()
    app = create_app(chatledger.open_async(stored, embed=words.embedding()), closes_ledger=True)
    with client_of(app) as client:
        found = client.get("/search", params={"q": "hound", "mode": "meaning"}).json()
        assert [hit["message"]["data"]["parts"][0]["text"] for hit in found["hits"]] == [
            "a puppy barks",
            "the car is red",
        ]
        assert [hit["ranks"] for hit in found["hits"]] == [{"meaning": 1}, {"meaning": 2}]
        assert found["pending"] == 0
        both = client.get("/search", params={"q": "puppy", "mode": "both", "limit": 1}).json()
        assert both["hits"][0]["ranks"] == {"words": 1, "meaning": 1}
        assert client.get("/search", params={"q": "puppy", "mode": "sense"}).status_code in {400, 422}
        words.is_down = True
        failed = client.get("/search", params={"q": "puppy", "mode": "meaning"})
        assert (failed.status_code, failed.json()["type"]) == (502, "urn:chatledger:error:EmbeddingError")


@pytest.mark.parametrize("mode", ["meaning", "both"])
def test_a_server_without_an_embedding(mode: str) -> None:
    """It is the request that asks for too much; the problem says what is missing."""
    with client_of(create_app("memory:")) as client:
        answer = client.get("/search", params={"q": "puppy", "mode": mode})

        assert (answer.status_code, answer.json()["type"]) == (422, "urn:chatledger:error:ConfigurationError")
        assert "embed" in answer.json()["detail"]


def test_a_server_is_given_an_embedding_by_name(tmp_path: Path) -> None:
    Serving(location=str(tmp_path), embed=NAMED).check()
    with pytest.raises(ConfigurationError, match="cannot be imported"):
        Serving(location=str(tmp_path), embed="nowhere:nothing").check()


@pytest.mark.parametrize(
    "named", ["nowhere:x", "tests.support.embedding_world:none", "tests.support.embedding_world:SYNONYMS"]
)
def test_names_of_no_embedding(named: str) -> None:
    with pytest.raises(ConfigurationError, match=named.partition(":")[0]):
        embedding_named(named)


def test_on_the_command_line(stored: Path) -> None:
    """A directory that nobody has open; messages without vectors are counted."""
    hits = ask("search", "hound", "--mode", "meaning", "--embed", NAMED, at=stored)
    assert [hit["message"]["data"]["parts"][0]["text"] for hit in hits] == ["a puppy barks", "the car is red"]
    with chatledger.open(stored, durability="fast") as ledger:
        ledger.append("c", [user("later")])
    done = run("search", "puppy", "--mode", "both", "--embed", NAMED, at=stored)
    assert "1 of the messages have no vectors yet" in done.stderr
    assert "--embed" in fails(2, "search", "hound", "--mode", "meaning", at=stored)
    assert "cannot be imported" in fails(1, "search", "hound", "--mode", "meaning", "--embed", "nowhere:x", at=stored)
    assert "--thread goes" in fails(2, "search", "x", "--thread", "t", "--mode", "both", at=stored)

"""The frame of the explorer: pages and their JSON, errors as pages, static files, headers."""

import re
from collections.abc import Generator

import httpx
import pytest
from tests.support.explorer_world import demo_ledger, pages_of

from chatledger.graph_state import StateStore
from chatledger.infra.entrypoints.explorer.page import path_to
from chatledger.infra.entrypoints.explorer.static_files import StaticFiles


@pytest.fixture(scope="module")
def pages() -> Generator[httpx.Client]:
    """Pages of the sample conversations."""
    with demo_ledger() as ledger, pages_of(ledger) as client:
        yield client


def test_every_page_has_a_twin(pages: httpx.Client) -> None:
    """A page names its JSON, which has what the page shows."""
    page = pages.get("/")
    twin = re.search('<link rel="alternate" type="application/json" href="([^"]+)">', page.text)

    assert page.status_code == 200
    assert twin is not None
    assert {"riga", "tortilla"} <= {row["chat"]["id"] for row in pages.get(twin[1]).json()["rows"]}
    assert 'href="/c/riga"' in page.text


@pytest.mark.parametrize(
    ("path", "status"),
    [("/c/none", 404), ("/nonsense", 404), ("/c/riga?branch=none", 404), ("/?at=yesterday", 422), ("/c/%ff", 422)],
)
def test_errors_are_pages(pages: httpx.Client, path: str, status: int) -> None:
    """Who reads pages gets a page that says what is wrong; programs get a problem."""
    page = pages.get(path)

    assert page.status_code == status
    assert page.headers["content-type"].startswith("text/html")
    assert "Traceback" not in page.text
    assert pages.get(path, headers={"Accept": "*/*"}).headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["/", "/chats.json", "/c/riga", "/c/none"])
def test_every_answer_is_guarded(pages: httpx.Client, path: str) -> None:
    """No script but our own runs, and nobody frames a page."""
    headers = pages.get(path).headers

    assert "script-src 'self';" in headers["content-security-policy"]
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"


def test_pages_have_nothing_inline(pages: httpx.Client) -> None:
    """What the policy forbids is not there in the first place."""
    for path in ("/", "/c/riga", "/c/none"):
        text = pages.get(path).text

        assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son[a-z]+=", text)


def test_static_files_are_kept(pages: httpx.Client) -> None:
    """A file is kept for ever under the path that names its content, and not under another one."""
    path = re.search('src="(/static/[^"]+)"', pages.get("/").text)
    assert path is not None

    kept = pages.get(path[1])
    assert "immutable" in kept.headers["cache-control"]
    assert kept.headers["content-type"].startswith("text/javascript")
    assert "immutable" not in pages.get("/static/old/frame.js").headers["cache-control"]
    assert pages.get("/static/old/none.js").status_code == 404


def test_pages_are_of_a_moment(pages: httpx.Client) -> None:
    """With `at`, a page is as it was then, says so, and its links stay there."""
    text = pages.get("/?at=7").text

    assert "read-only" in text
    assert "A weekend in Riga" in text
    assert "Tortilla sin drama" not in text
    assert "at=7" in text


def test_static_files_are_small() -> None:
    """All that a browser loads of the explorer, compressed."""
    assert StaticFiles().gzipped_bytes < 64_000


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"q": "sigulda"}, ["riga"]),
        ({"q": "SIGUL"}, ["riga"]),
        ({"q": "weekend riga"}, ["riga"]),
        ({"q": "sauerteig", "owner": "ada"}, []),
        ({"owner": "ada"}, ["sensor", "riga"]),
        ({"owner": "ada", "ascending": "true"}, ["riga", "sensor"]),
        ({"order": "created", "owner": "ada"}, ["sensor", "riga"]),
        ({"q": "sigulda", "at": "1"}, []),
        ({"q": '"((('}, []),
    ],
)
def test_chats_are_filtered_and_sorted(pages: httpx.Client, query: dict[str, str], found: list[str]) -> None:
    """By words in messages and titles, of which the last may be cut off; by owner, time and moment."""
    answer = pages.get("/chats.json", params=query).json()

    assert found == [row["chat"]["id"] for row in answer["rows"]]


def test_found_words_are_marked(pages: httpx.Client) -> None:
    """The passage is shown with what was found, and leads to the message."""
    text = pages.get("/?q=Sigulda").text

    assert "<mark>Sigulda</mark>" in text
    assert "/c/riga?m=riga-6" in text


def test_agents_are_beside_chats() -> None:
    """Threads of agents and graph states are listed on the first page."""
    with demo_ledger() as ledger, pages_of(ledger) as pages:
        StateStore(ledger.blocking()).put("chat:ada:riga", {"step": 1})
        answer = pages.get("/chats.json").json()

        assert ["chat:ada:riga"] == [state["id"] for state in answer["states"]]
        assert "Graph states" in pages.get("/").text
        assert "Graph states" not in pages.get("/?q=riga").text


def test_answers_being_written_are_marked() -> None:
    """A chat in which an answer grows says so."""
    with demo_ledger() as ledger, pages_of(ledger) as pages:
        answer = ledger.blocking().live("riga")
        answer.write("Once")
        written = {row["chat"]["id"]: row["is_live"] for row in pages.get("/chats.json").json()["rows"]}
        shown = pages.get("/").text
        answer.discard()

        assert ["riga"] == [chat for chat, is_live in written.items() if is_live]
        assert "writing</span>" in shown


def test_ids_are_parts_of_paths() -> None:
    """Whatever an id is, its link leads to its page, and not to the JSON of another one."""
    ids = ["a.json", "a/b", "a b", "ä?#&", "%2F", "a;b=c", "+"]
    with demo_ledger() as ledger, pages_of(ledger) as pages:
        for chat_id in ids:
            ledger.blocking().create_chat(chat_id, "ada")
            page = pages.get(path_to("/c/{chat_id}", chat_id=chat_id))

            assert page.headers["content-type"].startswith("text/html"), chat_id
            assert pages.get(path_to("/c/{chat_id}", chat_id=chat_id) + ".json").json()["chat"]["id"] == chat_id

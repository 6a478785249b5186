"""The frame of the explorer: pages and their JSON, errors as pages, static files, headers."""

import re
from collections.abc import Generator

import httpx
import pytest
from tests.support.explorer_agents import fill_agents
from tests.support.explorer_world import demo_ledger, pages_of

from chatledger.infra.entrypoints.explorer.page import path_to
from chatledger.infra.entrypoints.explorer.static_files import StaticFiles

pytestmark = pytest.mark.guard


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
    [("/c/none", 404), ("/nonsense", 404), ("/c/riga?branch=none", 404), ("/?at=someday", 422), ("/c/%ff", 422)],
)
def test_errors_are_pages(pages: httpx.Client, path: str, status: int) -> None:
    """Who reads pages gets a page that says what is wrong; programs get a problem."""
    page = pages.get(path)

    assert page.status_code == status
    assert page.headers["content-type"].startswith("text/html")
    assert "Traceback" not in page.text
    assert pages.get(path, headers={"Accept": "*/*"}).headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "heading", "rest"),
    [
        ("/?at=99999", "There is no moment 99,999 yet", "The log ends at position"),
        ("/c/riga?at=99999", "There is no moment 99,999 yet", 'href="/c/riga"'),
        ("/c/none", "none", 'href="/log?chat=none"'),
        ("/c/riga?at=0", "There was no chat", "Its messages may be older"),
        ("/nonsense", "Not Found", "All chats"),
    ],
)
def test_the_heading_of_an_error_is_what_helps(pages: httpx.Client, path: str, heading: str, rest: str) -> None:
    """The sentence that helps, then what holds and what to do; the class of the error stands below, in small."""
    text = pages.get(path).text
    shown = re.search("<h1>(.*?)</h1>", text)

    assert shown is not None
    assert heading in shown[1]
    assert "breaks a rule" not in shown[1]
    assert rest in text
    assert re.search(r"<small>\w+ · \d{3}</small>", text)


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
    """Where threads wait for somebody, the first page says so and leads to them; a filtered one does not."""
    with demo_ledger() as ledger, pages_of(ledger) as pages:
        before = pages.get("/").text
        fill_agents(ledger.blocking())

        assert "thread waits" not in before
        assert "1 thread waits" in pages.get("/").text
        assert "thread waits" not in pages.get("/?q=riga").text


def test_chats_of_lately() -> None:
    """What did not change lately is left out; a chat of an import keeps its time."""
    with demo_ledger() as ledger, pages_of(ledger) as pages:
        ledger.blocking().create_chat("fresh", "ada", title="A weekend")

        assert ["fresh"] == [row["chat"]["id"] for row in pages.get("/chats.json?changed=1h").json()["rows"]]
        assert ["fresh"] == [row["chat"]["id"] for row in pages.get("/chats.json?changed=24h&q=weekend").json()["rows"]]
        assert pages.get("/?changed=1h&owner=emi").text.count("Clear the filters") == 1
        assert pages.get("/?changed=2h").status_code == 422


def test_more_chats_follow() -> None:
    """A page has a hundred, and names the next one; each chat is on one page, with its last message."""
    with demo_ledger() as ledger, pages_of(ledger) as pages:
        for number in range(150):
            ledger.blocking().create_chat(f"many-{number}", "ada")
        first = pages.get("/chats.json").json()
        rest = pages.get("/chats.json", params={"after": first["next"]}).json()
        ids = [row["chat"]["id"] for row in (*first["rows"], *rest["rows"])]

        assert len(first["rows"]) == 100
        assert rest["next"] is None
        assert len(ids) == len(set(ids)) == ledger.blocking().count_chats()
        (riga,) = (row["chat"] for row in rest["rows"] if row["chat"]["id"] == "riga")
        assert riga["last_text"] == ledger.blocking().get_messages("riga")[-1].line


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

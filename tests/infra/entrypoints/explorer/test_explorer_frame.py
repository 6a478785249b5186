"""The frame of the explorer: pages and their JSON, errors as pages, static files, headers."""

import re
from collections.abc import Generator

import httpx
import pytest
from tests.support.explorer_world import demo_ledger, pages_of


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
    assert {"riga", "tortilla"} <= {chat["id"] for chat in pages.get(twin[1]).json()["chats"]}
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

"""A server below a path of a proxy: pages name that path, whether requests come with it or not, and the APIs answer there."""

import re
from collections.abc import Generator
from html import unescape
from pathlib import Path

import httpx
import pytest
from tests.support.explorer_world import BROWSER, demo_ledger
from tests.support.http_world import serving

from chatledger import user
from chatledger.errors import ConfigurationError
from chatledger.server import KeyFile, create_app

TAG = re.compile(r"<[a-zA-Z][^<>]*>")
ADDRESS = re.compile(r"\s(?:href|src|action|data-live|data-verify)=\"([^\"]*)\"")
NOT_FOLLOWED = ("/ledger/do/", "/ledger/sign-out", "/ledger/api/v1/verify", "/ledger/log/rows")
"""Forms that change something, and what answers by events or to a script."""
CODE = '<a href="/nowhere">'


@pytest.fixture(scope="module")
def pages() -> Generator[httpx.Client]:
    """Pages below `/ledger`; one shows markup as text."""
    with demo_ledger() as ledger, serving(create_app(ledger, root_path="/ledger")) as url:
        blocking = ledger.blocking()
        blocking.create_chat("a/b", "ada")
        blocking.append("a/b", [user(f"`{CODE}`\n\n    {CODE}", id="m/1")])
        with httpx.Client(base_url=url, headers=BROWSER, timeout=30) as client:
            yield client


@pytest.mark.guard
def test_all_that_pages_name_lies_below_the_path(pages: httpx.Client) -> None:
    """Followed from page to page: each address is answered, and none is of the root."""
    waiting, seen = ["/ledger/"], set[str]()
    while waiting and len(seen) < 60:
        path = waiting.pop(0)
        seen.add(path)
        found = pages.get(path)
        assert found.status_code < 400 or "at=" in path, path  # a chat of before it was there
        if not found.headers.get("content-type", "").startswith("text/html"):
            continue
        for address in map(unescape, ADDRESS.findall("".join(TAG.findall(found.text)))):
            target = str(found.url.join(address)).removeprefix(str(pages.base_url).rstrip("/"))
            assert target.startswith(("/ledger/", "http")), (path, address)
            if not target.startswith(("http", *NOT_FOLLOWED)) and target not in {*seen, *waiting}:
                waiting.append(target.partition("#")[0])
    assert any("/static/" in path for path in seen)
    assert any(path.startswith("/ledger/c/") for path in seen)


def test_a_proxy_may_take_the_path_away(pages: httpx.Client) -> None:
    assert pages.get("/log").text == pages.get("/ledger/log").text
    assert pages.get("/ledger").text == pages.get("/").text
    assert pages.get("/ledgers").status_code == 404


def test_texts_stay_as_they_are(pages: httpx.Client) -> None:
    """What looks like a tag in a message is no link of ours; ids with a slash are found."""
    shown = pages.get("/ledger/c/a%2Fb").text
    assert 2 == shown.count("/nowhere") == len(re.findall(r"href=(?:\"|&#34;|&quot;)/nowhere", shown))
    assert ["m/1"] == [
        one["message"]["id"] for one in pages.get("/ledger/api/v1/chats/a%2Fb/messages").json()["entries"]
    ]


def test_forms_lead_back_below_the_path(pages: httpx.Client) -> None:
    pages.post("/ledger/api/v1/chats", json={"id": "gone"})
    sent = pages.post("/ledger/do/delete-chat", data={"chat_id": "gone", "confirmed": "gone"})
    assert (303, "/ledger/") == (sent.status_code, sent.headers["location"])


def test_signing_in_and_out(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys")
    key = keys.add("ada", user_id="ada", scopes=frozenset({"read"}))
    with (
        demo_ledger() as ledger,
        serving(create_app(ledger, authenticate=keys, root_path="/ledger")) as url,
        httpx.Client(base_url=url, headers=BROWSER, timeout=30) as browser,
    ):
        assert 'action="/ledger/sign-in"' in browser.get("/ledger/log").text
        sent = browser.post("/ledger/sign-in", data={"key": key, "next": "/log"})
        assert (303, "/ledger/log") == (sent.status_code, sent.headers["location"])
        assert "Path=/ledger/;" in sent.headers["set-cookie"]
        assert browser.get(sent.headers["location"]).status_code == 200
        assert "/ledger/sign-in" == browser.post("/ledger/sign-out").headers["location"]


@pytest.mark.parametrize("path", ["ledger", "/ledger/", "/", "//x", '/a"b', "/a b", "/ä"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match="root path"):
        create_app("memory:", root_path=path)

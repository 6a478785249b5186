"""Access to the explorer: links that let one browser in, keys, sessions that end, and writes that only our own pages send."""

import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from tests.support.agent_threads import put
from tests.support.explorer_world import BROWSER, demo_ledger
from tests.support.http_world import serving

import chatledger
from chatledger.errors import ConfigurationError
from chatledger.infra.entrypoints.explorer.links import EntryLinks
from chatledger.infra.entrypoints.explorer.sessions import CSRF_HEADER, Sessions, kept_session_key, new_session_key
from chatledger.infra.entrypoints.http.service import Service
from chatledger.infra.entrypoints.http.settings import Serving
from chatledger.infra.ledger.threads import Threads
from chatledger.server import KeyFile, create_app

PAGES = ["/", "/chats.json", "/c/riga", "/c/riga.json"]


@pytest.fixture(scope="module")
def ledger() -> Generator[chatledger.AsyncLedger]:
    """The sample conversations."""
    with demo_ledger() as ledger:
        yield ledger


@contextmanager
def by_links(ledger: chatledger.AsyncLedger, key: bytes | None = None) -> Generator[tuple[httpx.Client, EntryLinks]]:
    """A browser, and the links of the server."""
    links = EntryLinks(b"secret", "/")
    app = create_app(ledger, links=links, session_key=key)
    with serving(app) as url, httpx.Client(base_url=url, headers=BROWSER, timeout=30) as browser:
        yield browser, links


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    """A file of keys."""
    return KeyFile(tmp_path / "keys")


@contextmanager
def by_keys(ledger: chatledger.AsyncLedger, keys: KeyFile) -> Generator[httpx.Client]:
    """A browser, on a server that asks for keys."""
    app = create_app(ledger, authenticate=keys)
    with serving(app) as url, httpx.Client(base_url=url, headers=BROWSER, timeout=30) as browser:
        yield browser


def test_a_link_lets_one_browser_in(ledger: chatledger.AsyncLedger) -> None:
    """Before it nothing is shown, after it everything; for another browser it is no link any more."""
    with by_links(ledger) as (browser, links):
        assert [401] * 4 == [browser.get(path).status_code for path in PAGES]
        assert "Riga" not in browser.get("/c/riga").text
        link = links.current()
        signed_in = browser.get(link)
        cookie = signed_in.headers["set-cookie"]

        assert (303, "/") == (signed_in.status_code, signed_in.headers["location"])
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert [200] * 4 == [browser.get(path).status_code for path in PAGES]
        assert httpx.get(browser.base_url.join(link), headers=BROWSER).status_code == 403
        assert links.current() != link


def test_a_link_is_not_used_up_by_looking_ahead(ledger: chatledger.AsyncLedger) -> None:
    """Neither a prefetch nor a HEAD uses a link up; a wrong token does not either."""
    with by_links(ledger) as (browser, links):
        link = links.current()
        browser.get(link, headers={"Sec-Purpose": "prefetch;prerender"})
        browser.head(link)
        browser.get(link[:-1] + "x")
        browser.get("/sign-in?token=%ff")

        assert browser.get(link).status_code == 303


def test_links_of_several_processes(tmp_path: Path) -> None:
    """Each link lets one browser in, whichever process it reaches."""
    one, other = (EntryLinks(b"secret", "/", folder=tmp_path) for _ in range(2))
    token = one.current().partition("=")[2]

    assert one.current() == other.current()
    assert one.use(token)
    assert not other.use(token)
    assert other.use(other.current().partition("=")[2])
    assert one.current() == other.current()


@pytest.mark.parametrize(
    "target",
    ["//evil.example", "/\\evil.example", "https://evil.example", "/\r\nSet-Cookie: a=b", "javascript:alert(1)"],
)
def test_nobody_is_led_away(ledger: chatledger.AsyncLedger, target: str) -> None:
    """After signing in the browser stays on this server."""
    with by_links(ledger) as (browser, links):
        onward = browser.get(links.current(), params={"token": links.current().partition("=")[2], "next": target})

    assert (303, "/") == (onward.status_code, onward.headers["location"])


@pytest.mark.guard
def test_sessions_outlive_the_server(ledger: chatledger.AsyncLedger) -> None:
    """With the same key a browser stays signed in across restarts, with another one it does not."""
    key = new_session_key()
    with by_links(ledger, key) as (browser, links):
        browser.get(links.current())
        cookies = list(browser.cookies.jar)
    with by_links(ledger, key) as (browser, _), by_links(ledger) as (stranger, _):
        for client in (browser, stranger):
            (cookie,) = cookies
            client.headers["Cookie"] = f"chatledger-{client.base_url.port}={cookie.value}"

        assert browser.get("/").status_code == 200
        assert stranger.get("/").status_code == 401


def test_sessions_end() -> None:
    """A session that is not used is over in time, and one that is used is prolonged."""
    hours = 0
    links = EntryLinks(b"secret", "/")
    service = Service(chatledger.open_async("memory:"), None)
    sessions = Sessions(service, new_session_key(), links, now=lambda: hours * 3600)

    def asked(response: Response) -> Request:
        cookie = response.headers["set-cookie"].partition(";")[0].encode()
        return Request(
            {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"x"), (b"cookie", cookie)]}
        )

    begun = Response()
    sessions.begin_by_link(Request({"type": "http", "headers": []}), begun, links.current()[-32:])
    request = asked(begun)
    sessions.prolong(request, early := Response())
    hours = 7
    sessions.prolong(request, late := Response())
    hours = 13

    assert "set-cookie" not in early.headers
    assert sessions.session_of(request) is None
    assert sessions.session_of(asked(late)) is not None


def test_a_key_signs_in(ledger: chatledger.AsyncLedger, keys: KeyFile) -> None:
    """The form takes a key; then the browser sees what the key's user owns, and goes where it wanted to."""
    secret = keys.add("ada-laptop", user_id="ada", scopes=frozenset({"read"}))
    with by_keys(ledger, keys) as browser:
        form = browser.get("/c/riga")
        wrong = browser.post("/sign-in", data={"key": "clk_wrong", "next": "/c/riga"})
        right = browser.post("/sign-in", data={"key": f" {secret} ", "next": "/c/riga"})

        assert form.status_code == 401
        assert 'value="/c/riga"' in form.text
        assert wrong.status_code == 403
        assert secret not in right.headers["set-cookie"]
        assert (303, "/c/riga") == (right.status_code, right.headers["location"])
        assert {"ada"} == {row["chat"]["user_id"] for row in browser.get("/chats.json").json()["rows"]}
        assert browser.get("/c/tortilla").status_code == 404
        assert browser.get("/api/v1/chats").status_code == 200
        browser.post("/sign-out")
        assert browser.get("/").status_code == 401


def test_agents_of_others_are_not_there(ledger: chatledger.AsyncLedger, keys: KeyFile) -> None:
    """Neither the palette nor the list of chats tells of threads of others."""
    put(Threads(ledger.blocking().for_user("bob")), "bobs-thread", "c1", {"step": "1"})
    every = keys.add("all-threads", user_id=None, scopes=frozenset({"read"}))
    secret = keys.add("ada-laptop", user_id="ada", scopes=frozenset({"read"}))
    with by_keys(ledger, keys) as client:
        own = client.get("/chats.json", headers={"X-Api-Key": secret}).json()
        foreign = client.get("/chats.json", params={"owner": "lucia"}, headers={"X-Api-Key": secret}).json()
        seen, unseen = (
            client.get("/palette", params={"q": "bobs"}, headers={"X-Api-Key": key}).json() for key in (every, secret)
        )

    assert ["bobs-thread"] == [thread["title"] for thread in seen["threads"]]
    assert [] == unseen["threads"]
    assert own["rows"]
    assert [] == foreign["rows"]


def test_steps_of_others_are_not_told(ledger: chatledger.AsyncLedger, keys: KeyFile) -> None:
    """A user's page has no slider of the ledger: how many events others have, and when, is theirs."""
    secret = keys.add("ada-steps", user_id="ada", scopes=frozenset({"read"}))
    every = keys.add("all-steps", user_id=None, scopes=frozenset({"read"}))
    with by_keys(ledger, keys) as client:
        own = client.get("/steps?buckets=4&around=5", headers={"X-Api-Key": secret}).json()
        text = client.get("/", headers={"X-Api-Key": secret, "Accept": "text/html"}).text
        everybodys = client.get("/steps", headers={"X-Api-Key": every}).json()

    assert (0, [], []) == (own["total"], own["steps"], own["density"])
    assert "<cl-time" not in text
    assert everybodys["total"] == ledger.blocking().position


def test_a_session_ends_with_its_key(ledger: chatledger.AsyncLedger, keys: KeyFile) -> None:
    """A key that was removed opens nothing, also where a browser had signed in by it."""
    secret = keys.add("ada-laptop", user_id="ada", scopes=frozenset({"read"}))
    with by_keys(ledger, keys) as browser:
        browser.post("/sign-in", data={"key": secret})
        before = browser.get("/").status_code
        keys.remove("ada-laptop")

        assert (200, 401) == (before, browser.get("/").status_code)


def test_headers_open_pages_too(ledger: chatledger.AsyncLedger, keys: KeyFile) -> None:
    """Programs read pages and their JSON with the key in a header."""
    secret = keys.add("all", user_id=None, scopes=frozenset({"read"}))
    with by_keys(ledger, keys) as client:
        assert [200] * 4 == [client.get(path, headers={"X-Api-Key": secret}).status_code for path in PAGES]


def test_writes_prove_that_our_page_sent_them(ledger: chatledger.AsyncLedger, keys: KeyFile) -> None:
    """A cookie alone changes nothing; with what only our own pages know it does."""
    secret = keys.add("writer", user_id="ada", scopes=frozenset({"write"}))
    with by_keys(ledger, keys) as browser:
        browser.post("/sign-in", data={"key": secret})
        proof = re.search('<meta name="csrf" content="([0-9a-f]{32})">', browser.get("/").text)
        assert proof is not None

        assert browser.post("/api/v1/chats", json={"id": "forged"}).status_code == 403
        assert browser.post("/api/v1/chats", json={"id": "forged"}, headers={CSRF_HEADER: "0" * 32}).status_code == 403
        assert browser.post("/api/v1/chats", json={"id": "own"}, headers={CSRF_HEADER: proof[1]}).status_code == 201
        assert browser.get("/c/forged").status_code == 404


def test_no_other_page_signs_anybody_in_or_out(ledger: chatledger.AsyncLedger, keys: KeyFile) -> None:
    """Forms of other servers' pages are refused."""
    secret = keys.add("ada-laptop", user_id="ada", scopes=frozenset({"read"}))
    evil = {"Origin": "http://127.0.0.1:9"}
    with by_keys(ledger, keys) as browser:
        assert browser.post("/sign-in", data={"key": secret}, headers=evil).status_code == 403
        browser.post("/sign-in", data={"key": secret}, headers={"Origin": str(browser.base_url).rstrip("/")})
        assert browser.post("/sign-out", headers=evil).status_code == 403
        assert browser.post("/sign-out", headers={"Sec-Fetch-Site": "same-site"}).status_code == 403
        assert browser.get("/").status_code == 200


def test_signing_in_behind_a_proxy(ledger: chatledger.AsyncLedger, keys: KeyFile) -> None:
    """A proxy may call the server by another name than browsers do, who say themselves that the page is its own."""
    secret = keys.add("ada-laptop", user_id="ada", scopes=frozenset({"read"}))
    headers = {"Origin": "https://chats.example", "Sec-Fetch-Site": "same-origin"}
    with by_keys(ledger, keys) as browser:
        assert browser.post("/sign-in", data={"key": secret}, headers=headers).status_code == 303


def test_a_page_of_another_site_may_link_here(ledger: chatledger.AsyncLedger) -> None:
    """A strict cookie does not come with the first request then: the page asks again, and nothing loops."""
    with by_links(ledger) as (browser, _):
        link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        led = browser.get("/c/riga?branch=main", headers=link)

        assert '<meta http-equiv="refresh" content="0;url=/c/riga?branch=main">' in led.text
        assert "refresh" not in browser.get("/c/riga", headers={"Sec-Fetch-Site": "same-origin"}).text


@pytest.mark.parametrize("sealed", ["", "x", "gAAAAA", "é", "a" * 4000])
def test_made_up_cookies(ledger: chatledger.AsyncLedger, sealed: str) -> None:
    """A cookie that we did not seal is none."""
    with by_links(ledger) as (browser, _):
        cookie = f"chatledger-{browser.base_url.port}={sealed}".encode("latin-1")

        assert browser.get("/", headers={b"Cookie": cookie}).status_code == 401


@pytest.mark.parametrize("host", ["[::1", "x:y", "a b", "]", ""])
def test_made_up_hosts(ledger: chatledger.AsyncLedger, host: str) -> None:
    """Whatever a browser takes the server to be called, it is no failure of ours."""
    with by_links(ledger) as (browser, links):
        statuses = {
            browser.get(path, headers={"Host": host}).status_code
            for path in ("/", "/none", "/sign-in", links.current())
        }

    assert 500 not in statuses


def test_servers_behind_a_proxy_know_each_others_sessions(tmp_path: Path) -> None:
    """Of a ledger on a server, the key lies beside the keys that they share, and the cookie has the port that browsers see."""
    keys = tmp_path / "api.keys"
    keys.write_text("")
    settings = [
        Serving(location="nats://127.0.0.1:4222/chats", port=port, keys=str(keys)).for_browsers("http://127.0.0.1")
        for port in (8231, 8232)
    ]
    alone = Serving(location="nats://127.0.0.1:4222/chats").for_browsers("http://127.0.0.1")

    assert settings[0].session_key == settings[1].session_key == kept_session_key(keys)
    assert alone.session_key not in {None, settings[0].session_key}


def test_the_cookie_is_of_the_port_that_browsers_see(ledger: chatledger.AsyncLedger) -> None:
    with by_links(ledger) as (browser, links):
        entered = browser.get(links.current(), headers={"Host": "127.0.0.1:9321"})

    assert entered.headers["set-cookie"].startswith("chatledger-9321=")


def test_session_key_is_kept(tmp_path: Path) -> None:
    """It lies beside the ledger, readable for its owner only; a broken one is said, and not written over."""
    beside = tmp_path / "data.keys"
    key = kept_session_key(beside)
    path = tmp_path / "data.session-key"

    assert key == kept_session_key(beside)
    assert 0o600 == path.stat().st_mode & 0o777
    assert [path] == list(tmp_path.iterdir())
    assert kept_session_key(None) != kept_session_key(None)
    assert kept_session_key(tmp_path / "none" / "data.keys") != key
    path.write_text("no key")
    with pytest.raises(ConfigurationError, match="remove it"):
        kept_session_key(beside)


@pytest.mark.soak
@pytest.mark.parametrize("verb", ["explore", "serve"])
def test_the_command_prints_a_link(tmp_path: Path, verb: str) -> None:
    """
    Who opens it sees the chats; the sessions it begins hold in the next process too.

    A server's link is on stderr: its stdout may be kept, or read by a program.
    """
    place = f"sqlite:///{tmp_path}/chats.db"
    with chatledger.open(place) as ledger:
        ledger.create_chat("shown", "ada", title="A chat to see")
    options = ["--no-browser"] if verb == "explore" else ["--no-access-log"]
    command = [sys.executable, "-m", "chatledger", verb, "--location", place, "--port", "0", *options]
    sealed = None
    for _ in range(2):
        stdout, stderr = (subprocess.PIPE, None) if verb == "explore" else (None, subprocess.PIPE)
        with subprocess.Popen(
            command, stdout=stdout, stderr=stderr, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
        ) as server:
            lines = server.stdout or server.stderr
            assert lines is not None
            link = next(line.split()[-1] for line in lines if "explore it at" in line)
            url = httpx.URL(link)
            with httpx.Client(base_url=url.copy_with(path="/", query=None), headers=BROWSER, timeout=30) as browser:
                if sealed is None:
                    browser.get(link)
                    (sealed,) = (cookie.value for cookie in browser.cookies.jar)
                else:
                    browser.headers["Cookie"] = f"chatledger-{url.port}={sealed}"
                shown = browser.get("/")
            server.terminate()
            server.communicate()

        assert "A chat to see" in shown.text

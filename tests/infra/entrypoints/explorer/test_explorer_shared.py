"""Pages of links, which show anybody one chat and its files, and nothing else; and the page on which links are made and revoked."""

import base64
import logging
from collections.abc import Generator

import httpx
import pytest
from tests.infra.entrypoints.explorer.test_explorer_actions import forms_of
from tests.support.explorer_world import BROWSER
from tests.support.http_world import serving
from tests.support.jetstream_world import eventually

import chatledger
from chatledger import Ledger, NewMessage, assistant, user
from chatledger.server import KeyFile, Limits, create_app

IMAGE = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()
CHAT = "a/b.json"
PAGE = "/c/a%2Fb%2Ejson/sharing"


@pytest.fixture
def shared() -> Generator[chatledger.AsyncLedger]:
    """A chat of ada's with a side branch, files on both, and a hidden message; and another chat of hers."""
    ledger = chatledger.open_async("memory:")
    with ledger.blocking() as blocking:
        blocking.create_chat(CHAT, "ada", title="A <b>weekend</b>", metadata={"class": "secret-class"})
        picture = [{"type": "text", "text": "See:"}, {"type": "image_url", "image_url": {"url": IMAGE}}]
        blocking.append(
            CHAT,
            [
                user("Where to?", id="q", sender_id="ada-of-sales"),
                NewMessage("assistant", {"role": "assistant", "content": picture}, id="a"),
                user("hidden words", id="h"),
                assistant("To the sea.", id="z"),
            ],
        )
        blocking.annotate(CHAT, "h", hidden=True)
        blocking.create_branch(CHAT, "side", "q")
        blocking.append(
            CHAT, [NewMessage("user", {"role": "user", "content": picture}, id="s"), user("side words")], branch="side"
        )
        blocking.create_chat("other", "ada")
        blocking.append("other", [user("words of another chat", id="o")])
        yield ledger


def ledger_of(shared: chatledger.AsyncLedger) -> Ledger:
    """The same ledger, for code that waits."""
    return shared.blocking()


@pytest.fixture
def client(shared: chatledger.AsyncLedger, tmp_path: object) -> Generator[httpx.Client]:
    """A browser without a key, where everything else asks for one."""
    app = create_app(shared, authenticate=KeyFile(f"{tmp_path}/keys"))
    with serving(app) as url, httpx.Client(base_url=url, headers=BROWSER, timeout=30) as client:
        yield client


def path_of(ledger: Ledger, **options: object) -> str:
    """The path of a new link."""
    path = ledger.create_link(CHAT, **options).path  # type: ignore[arg-type]
    assert path is not None
    return path


def test_a_link_shows_a_chat_to_anybody_and_nothing_else(client: httpx.Client, shared: chatledger.AsyncLedger) -> None:
    path = path_of(ledger_of(shared))
    page = client.get(path)
    assert page.status_code == 200
    assert "A &lt;b&gt;weekend&lt;/b&gt;" in page.text
    for words in ("Where to?", "See:", "To the sea."):
        assert words in page.text
    # Names of users, what is hidden, metadata, and all ways to other pages stay inside.
    for words in (
        "ada-of-sales",
        ">ada<",
        "of ada",
        "hidden words",
        "secret-class",
        "side words",
        "<script",
        'href="/c/',
        "/api/",
        "csrf",
    ):
        assert words not in page.text, words
    assert "side words" in client.get(path, params={"branch": "side"}).text
    (source,) = {part.partition('"')[0] for part in page.text.split('src="')[1:]}
    picture = client.get(source)
    assert (picture.status_code, picture.content, picture.headers["content-type"]) == (200, b"\x89PNG", "image/png")
    for answer in (page, picture, client.get(path + "x")):
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert "noindex" in answer.headers["x-robots-tag"]
    assert client.get("/c/a%2Fb%2Ejson").status_code == 401
    assert client.get("/api/v1/chats").status_code == 401


@pytest.mark.parametrize(
    ("options", "has", "lacks"),
    [
        ({"branch": "side"}, "side words", "To the sea."),
        ({"until": "q"}, "Where to?", "See:"),
    ],
)
def test_a_link_to_a_part_shows_no_more(
    client: httpx.Client, shared: chatledger.AsyncLedger, options: dict[str, str], has: str, lacks: str
) -> None:
    """Whatever is asked for besides: another branch, an earlier moment, a file of a message elsewhere."""
    path = path_of(ledger_of(shared), **options)
    for query in ({}, {"branch": "main"}, {"at": "1"}, {"along": "z"}, {"m": "z"}):
        page = client.get(path, params=query)
        assert has in page.text
        assert lacks not in page.text
    assert client.get(f"{path}/files/a/1").status_code == 404
    assert client.get(f"{path}/files/s/1").status_code == (200 if "branch" in options else 404)


def test_a_branch_called_like_the_message_at_the_end_adds_nothing(
    client: httpx.Client, shared: chatledger.AsyncLedger
) -> None:
    ledger = ledger_of(shared)
    path = path_of(ledger, until="q")
    ledger.create_branch(CHAT, "q", "z")
    assert "To the sea." not in client.get(path).text


def test_what_opens_nothing_answers_alike(client: httpx.Client, shared: chatledger.AsyncLedger) -> None:
    ledger = ledger_of(shared)
    link = ledger.create_link(CHAT)
    path, brief = link.path or "", path_of(ledger, ttl_seconds=0.001)
    secret = path.rpartition("/")[2]
    assert client.get(path).status_code == 200
    ledger.revoke_link(CHAT, link.id)
    odd = [f"/shared/{name}/{secret}" for name in ("other", "gone", "%00", "x" * 5000, "%ff")]
    answers = [
        client.get(asked) for asked in (path, brief, *odd, f"{path}?first=x", f"{path}?branch=%00", f"{path}/files/a/1")
    ]
    assert {(answer.status_code, answer.text) for answer in answers} == {(404, answers[0].text)}
    assert "This link opens nothing" in answers[0].text
    alive = path_of(ledger)
    for asked in (
        f"{alive}/files/q/0",
        f"{alive}/files/o/0",
        f"{alive}/files/h/0",
        f"{alive}/files/a/x",
        f"{alive}?branch=q",
    ):
        assert client.get(asked).text == answers[0].text
    ledger.delete_chat(CHAT)
    assert client.get(alive).text == answers[0].text


def test_a_redacted_message_says_neither_by_whom_nor_why(client: httpx.Client, shared: chatledger.AsyncLedger) -> None:
    ledger = ledger_of(shared)
    with ledger.context(actor="mara-of-legal"):
        ledger.redact("q", keep="something was here", reason="case 12")
    page = client.get(path_of(ledger)).text
    assert "something was here" in page
    assert "mara-of-legal" not in page
    assert "case 12" not in page


def test_a_long_chat_has_pages(client: httpx.Client, shared: chatledger.AsyncLedger) -> None:
    ledger = ledger_of(shared)
    ledger.append(CHAT, [user(f"number {number}.") for number in range(200)])
    first = client.get(path_of(ledger))
    following = first.text.rpartition('rel="next"')[0].rpartition('href="')[2].partition('"')[0].replace("&amp;", "&")
    second = client.get(following)
    assert "number 95." in first.text
    assert "number 96." not in first.text
    assert "number 96." in second.text
    assert 'rel="prev"' in second.text


def test_a_link_that_spreads_is_slowed_down_and_no_other(shared: chatledger.AsyncLedger) -> None:
    ledger = ledger_of(shared)
    spread, other = path_of(ledger), path_of(ledger)
    app = create_app(shared, authenticate=lambda _: None, limits=Limits(requests_per_second=0.001))
    with serving(app) as url, httpx.Client(base_url=url, headers=BROWSER, timeout=30) as client:
        statuses = [client.get(spread).status_code for _ in range(12)]
        assert (statuses[0], statuses[-1]) == (200, 429)
        assert client.get(other).status_code == 200


def test_the_log_of_requests_has_no_secret(
    client: httpx.Client, shared: chatledger.AsyncLedger, caplog: pytest.LogCaptureFixture
) -> None:
    path = path_of(ledger_of(shared))
    with caplog.at_level(logging.DEBUG):
        assert client.get(path).status_code == 200
        # The line is written after the answer.
        eventually(lambda: any("/shared/{chat_id}/{secret}" in record.getMessage() for record in caplog.records))
    lines = [record.getMessage() for record in caplog.records if record.name.startswith(("chatledger", "uvicorn"))]
    assert any("/shared/{chat_id}/{secret}" in line for line in lines)
    assert not any(path.rpartition("/")[2] in line for line in lines)


def test_members_and_links_are_made_and_removed_on_a_page(shared: chatledger.AsyncLedger, tmp_path: object) -> None:
    """By the owner, with forms; a member sees who is there and may leave; the new link is shown by being opened."""
    keys = KeyFile(f"{tmp_path}/keys")
    with serving(create_app(shared, authenticate=keys)) as url:
        browsers = {
            name: httpx.Client(
                base_url=url,
                headers=BROWSER | {"X-Api-Key": keys.add(name, user_id=name, scopes=frozenset({"write"}))},
                timeout=30,
            )
            for name in ("ada", "bob", "eve")
        }
        ada, bob, eve = browsers.values()
        form = forms_of(ada.get(PAGE))["set-member"]
        assert ada.post("/do/set-member", data=form | {"user_id": "bob", "writes": "true"}).status_code == 303
        ada.post("/do/set-member", data=form | {"user_id": "eve"})
        members = ada.get("/c/a%2Fb.json/sharing.json").json()["members"]
        assert [(each["user_id"], each["role"]) for each in members] == [("bob", "writer"), ("eve", "reader")]

        answer = ada.post(
            "/do/create-link", data=forms_of(ada.get(PAGE))["create-link"] | {"days": "2", "branch": "side"}
        )
        assert answer.status_code == 303
        assert "side words" in httpx.get(url + answer.headers["location"]).text
        secret = answer.headers["location"].rpartition("/")[2]
        assert secret not in ada.get(PAGE).text
        assert (
            ada.post("/do/create-link", data=forms_of(ada.get(PAGE))["create-link"] | {"days": "x"}).status_code == 422
        )

        assert set(forms_of(bob.get(PAGE))) == {"remove-member"}
        (link,) = ledger_of(shared).links(CHAT)
        assert bob.post("/do/revoke-link", data={"chat_id": CHAT, "link_id": link.id}).status_code == 403
        assert bob.post("/do/create-link", data={"chat_id": CHAT}).status_code == 403
        assert bob.post("/do/remove-member", data={"chat_id": CHAT, "user_id": "eve"}).status_code == 403
        assert bob.post("/do/remove-member", data=forms_of(bob.get(PAGE))["remove-member"]).headers["location"] == "/"
        assert bob.get(PAGE).status_code == 404

        assert ada.post("/do/remove-member", data=forms_of(ada.get(PAGE))["remove-member"]).headers["location"] == PAGE
        assert eve.get(PAGE).status_code == 404
        ada.post("/do/revoke-link", data=forms_of(ada.get(PAGE))["revoke-link"])
        assert httpx.get(url + answer.headers["location"]).status_code == 404
        assert not ledger_of(shared).links(CHAT)
        for browser in browsers.values():
            browser.close()

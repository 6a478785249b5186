"""Answers of the palette: the best of each group, as of the moment, to those who may see it."""

from collections.abc import Generator

import httpx
import pytest
from tests.support.explorer_agents import THREAD, fill_agents
from tests.support.explorer_world import demo_ledger, pages_of

from chatledger import user


@pytest.fixture(scope="module")
def pages() -> Generator[httpx.Client]:
    """Pages of the sample conversations, of 30 chats that are called alike, and of a thread."""
    with demo_ledger() as ledger, pages_of(ledger) as client:
        blocking = ledger.blocking()
        for number in range(30):
            blocking.create_chat(f"boats-{number}", "ada", title=f"All the boats {number}")
        blocking.create_chat("first", "ada", title="Boats first")
        blocking.append("first", [user("leeks", id="l1")])
        blocking.create_branch("first", "a branch", "l1")
        fill_agents(blocking)
        yield client


def test_groups_have_the_best_five(pages: httpx.Client) -> None:
    """Chats whose title begins so come first, then those that changed last; a group alone has twenty."""
    answer = pages.get("/palette?q=boats").json()
    alone = pages.get("/palette?q=boats&group=chats").json()

    assert answer["chats"][0]["title"] == "Boats first"
    assert (len(answer["chats"]), len(alone["chats"])) == (5, 20)
    assert (alone["threads"], alone["branches"], alone["messages"]) == ([], [], [])


def test_each_leads_somewhere(pages: httpx.Client) -> None:
    """Chats, threads, branches and messages, each at its address."""
    of_thread = pages.get("/palette", params={"q": THREAD}).json()["threads"]
    of_branch = pages.get("/palette", params={"q": "a branch first"}).json()
    of_message = pages.get("/palette", params={"q": "lee"}).json()["messages"]

    assert [entry["title"] for entry in of_thread] == [THREAD]
    assert of_message == [{"title": "leeks", "detail": "user", "path": "/c/first?m=l1"}]
    branches = pages.get("/palette?q=branch&chat=first").json()["branches"]
    assert branches == [{"title": "a branch", "detail": "Boats first", "path": "/c/first?branch=a+branch"}]
    assert of_branch["chats"] == []
    for entry in (*of_thread, *of_message, *branches):
        assert pages.get(entry["path"]).status_code == 200


def test_nothing_typed_shows_what_changed_last(pages: httpx.Client) -> None:
    """Chats and threads, and the branches of the chat that is looked at; no messages."""
    answer = pages.get("/palette?chat=riga").json()

    assert len(answer["chats"]) == 5
    assert [entry["title"] for entry in answer["threads"]] == [THREAD]
    assert {entry["title"] for entry in answer["branches"]} == {"main", "inland", "main-v2"}
    assert answer["messages"] == []


def test_the_palette_is_of_a_moment(pages: httpx.Client) -> None:
    """Of what was there then, and its links stay there; threads have no past."""
    answer = pages.get("/palette?q=riga&at=7").json()

    assert [entry["path"] for entry in answer["chats"]] == ["/c/riga?at=7"]
    assert all(entry["path"].endswith("at=7") for entry in answer["messages"])
    assert pages.get(f"/palette?q={THREAD}&at=7").json()["threads"] == []

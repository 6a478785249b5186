"""Views of earlier moments between requests: what was replayed is not replayed again, and nobody sees more than without."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from tests.support.http_world import serving

import chatledger
from chatledger import AsyncLedger, Ledger, assistant, user
from chatledger.errors import LedgerClosedError
from chatledger.infra.entrypoints.http.access import EVERYBODY
from chatledger.infra.entrypoints.http.kept_views import KeptViews
from chatledger.infra.ledger.view import LedgerView, replayed_bytes
from chatledger.infra.log.port import EventLog
from chatledger.server import Principal, create_app

ASKED = ("/c/trip", "/c/trip.json", "/api/v1/chats/trip/rows", "/api/v1/chats/trip/rows/strip", "/c/trip/diff")


@pytest.fixture
def asynchronous() -> Generator[AsyncLedger]:
    """A ledger with a chat of ada."""
    ledger = chatledger.open_async("memory:")
    with ledger.blocking() as blocking:
        blocking.create_chat("trip", "ada")
        blocking.append("trip", [user("Where?", id="m1"), assistant("Riga", id="m2")])
        yield ledger


@pytest.fixture
def ledger(asynchronous: AsyncLedger) -> Ledger:
    return asynchronous.blocking()


@pytest.fixture
def then(ledger: Ledger) -> int:
    """When the chat had two messages; it has a third one since."""
    position = ledger.get_position()
    ledger.append("trip", [user("And then?", id="m3")])
    return position


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The chats whose events were read from the log, once for each request of it."""
    found, read_stream = list[str](), EventLog.read_stream

    def noted(log: Any, stream_id: str, **options: Any) -> Sequence[Any]:
        found.append(stream_id)
        return read_stream(log, stream_id, **options)

    monkeypatch.setattr(EventLog, "read_stream", noted)
    return found


def views_of(app: Starlette) -> KeptViews:
    views: KeptViews = app.state.service.views
    return views


def named(headers: Mapping[str, str]) -> Principal | None:
    """Everybody is who they say; `root` sees everything."""
    name = headers.get("x-api-key")
    return None if name is None else Principal(None if name == "root" else name, name=name)


def messages_of(view: LedgerView | Ledger) -> list[str]:
    return [entry.message.id for entry in view.get_page("trip").entries]


def test_chat_is_replayed_once_for_all_requests_of_a_moment(
    asynchronous: AsyncLedger, then: int, replays: list[str]
) -> None:
    """Pages and routes share what the first one replayed; another moment is replayed by itself."""
    with (
        serving(create_app(asynchronous)) as url,
        httpx.Client(base_url=url, headers={"Accept": "text/html"}) as client,
    ):
        for path in ASKED:
            name = "as_of" if path.startswith("/api") else "at"
            assert client.get(path, params={name: then}).status_code == 200
        first = len(replays)
        client.get("/c/trip/diff", params={"left": f"@{then}", "right": "@now"}).raise_for_status()
        again = len(replays)
        client.get("/c/trip.json", params={"at": then - 1}).raise_for_status()

    assert 0 < first == again < len(replays)
    assert set(replays) == {"trip"}


def test_view_is_of_one_user(asynchronous: AsyncLedger, then: int) -> None:
    """What one user had replayed, another one does not see, nor does a stranger."""
    app = create_app(asynchronous, authenticate=named)
    statuses: list[int] = []
    with serving(app) as url, httpx.Client(base_url=url) as client:
        for name in ("ada", "bob", "root", "None", "ada"):
            answer = client.get(f"/api/v1/chats/trip?as_of={then}", headers={"X-Api-Key": name})
            statuses.append(answer.status_code)
        assert client.get(f"/api/v1/chats/trip?as_of={then}").status_code == 401
        assert len(views_of(app)) == 4

    assert statuses == [200, 404, 200, 404, 200]


def test_deleted_chat_is_gone_at_once(asynchronous: AsyncLedger, ledger: Ledger, then: int) -> None:
    """A view that has a chat replayed does not show it after it was deleted, nor one that was made under its id."""
    with serving(create_app(asynchronous)) as url, httpx.Client(base_url=url) as client:
        asked = [f"/c/trip.json?at={then}", f"/api/v1/messages/m2?as_of={then}", f"/api/v1/search?q=Riga&as_of={then}"]
        before = [client.get(path) for path in asked]
        ledger.delete_chat("trip")
        ledger.create_chat("trip", "ada")
        after = [client.get(path) for path in asked]

    assert [answer.status_code for answer in before] == [200, 200, 200]
    assert "Riga" in before[2].text
    assert [answer.status_code for answer in after] == [404, 404, 200]
    assert not any("Riga" in answer.text for answer in after)


def test_views_end_with_the_server(asynchronous: AsyncLedger, then: int) -> None:
    """When the server stops, views are closed; who reads one then reads to the end, and none is kept any more."""
    app = create_app(asynchronous)
    ledger, views = asynchronous.blocking(), views_of(app)
    with serving(app) as url:
        httpx.get(f"{url}/c/trip.json?at={then}").raise_for_status()
        with views.reading(ledger, EVERYBODY.view, then) as kept:
            pass
        assert len(views) == 1
    with pytest.raises(LedgerClosedError):
        messages_of(kept)
    with views.reading(ledger, EVERYBODY.view, then) as late:
        assert messages_of(late) == ["m1", "m2"]
    with pytest.raises(LedgerClosedError):
        messages_of(late)
    assert len(views) == 0


def test_view_that_is_read_is_closed_afterwards(ledger: Ledger, then: int) -> None:
    views = KeptViews()
    with views.reading(ledger, EVERYBODY.view, then) as view:
        views.close()
        assert messages_of(view) == ["m1", "m2"]
    with pytest.raises(LedgerClosedError):
        messages_of(view)


@pytest.mark.parametrize("keeping", [partial(KeptViews, idle_s=0.05), partial(KeptViews, age_s=0.05)])
def test_views_are_closed_in_time(asynchronous: AsyncLedger, then: int, keeping: Callable[[], KeptViews]) -> None:
    """Idle ones, and in any case old ones; also when nobody asks for anything."""
    app = create_app(asynchronous)
    views = app.state.service.views = keeping()
    with serving(app):
        with views.reading(asynchronous.blocking(), None, then) as view:
            assert len(views) == 1
        wait_until = time.monotonic() + 5
        while len(views) and time.monotonic() < wait_until:
            time.sleep(0.02)
        assert len(views) == 0

    with pytest.raises(LedgerClosedError):
        messages_of(view)


@pytest.mark.parametrize("keeping", [partial(KeptViews, most=2), partial(KeptViews, most_bytes=1)])
def test_views_are_bounded(ledger: Ledger, then: int, keeping: Callable[[], KeptViews]) -> None:
    """The ones that were read longest ago go, until there are few enough and what they replayed is little enough."""
    views, read = keeping(), list[LedgerView]()
    for moment in (then, then - 1, then, then - 2, then):
        with views.reading(ledger, None, moment) as view:
            view.get_chat("trip")
            read.append(view)

    assert replayed_bytes(read[-1]) > 0
    assert len(views) <= 2
    assert messages_of(read[-1]) == ["m1", "m2"]
    with pytest.raises(LedgerClosedError):
        read[1].get_chat("trip")


def test_time_that_may_still_get_events_is_not_kept(ledger: Ledger) -> None:
    """A time of the future is the present: whoever asks again sees what was written meanwhile."""
    views, soon = KeptViews(), datetime.now(UTC) + timedelta(hours=1)
    with views.reading(ledger, None, soon) as view:
        assert messages_of(view) == ["m1", "m2"]
    ledger.append("trip", [user("And then?", id="m3")])
    with views.reading(ledger, None, soon) as view:
        assert messages_of(view) == ["m1", "m2", "m3"]
    with views.reading(ledger, None, soon - timedelta(days=1)):
        pass

    assert len(views) == 1

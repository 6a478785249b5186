"""The pages of search, log, diff and proof: what they show, and that nothing in it runs."""

import html
import json
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape
from tests.support.explorer_agents import THREAD, fill_agents
from tests.support.explorer_world import BROWSER, demo_ledger, pages_of
from tests.support.http_world import serving
from tests.support.proof_world import KEY, pem_of, public_pem_of

import chatledger
from chatledger import Message, SearchHit, assistant, user
from chatledger.admin import check_excerpt
from chatledger.infra.entrypoints.explorer import log
from chatledger.infra.entrypoints.explorer.markup import changed_words, marked
from chatledger.items import ItemStore
from chatledger.replays import Exchange, ReplayAnswer
from chatledger.server import create_app

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(1)">'


@pytest.fixture(scope="module")
def pages() -> Generator[httpx.Client]:
    """Pages of the sample conversations, and of a chat with hostile messages."""
    with demo_ledger() as ledger, pages_of(ledger) as client:
        blocking = ledger.blocking()
        blocking.create_chat("hostile", HOSTILE, title=HOSTILE)
        blocking.append("hostile", [user(f"leeks {HOSTILE}", id="h1"), assistant("fine", id="h2")])
        blocking.set_checkpoint("hostile", HOSTILE, "h1")
        yield client


@contextmanager
def signing() -> Generator[httpx.Client]:
    """Pages of a server that signs anchors."""
    with (
        demo_ledger() as ledger,
        serving(create_app(ledger, anchor_key=pem_of(KEY))) as url,
        httpx.Client(base_url=url, headers=BROWSER, timeout=30) as client,
    ):
        yield client


# Search


def test_search_shows_hits_in_their_chats(pages: httpx.Client) -> None:
    """A hit has its passage with the words marked, and leads to the message."""
    text = pages.get("/search?q=riga").text
    found = pages.get("/search.json?q=riga").json()

    assert "<mark>Riga</mark>" in text
    assert f'href="/c/riga?m={found["hits"][0]["hit"]["message"]["id"]}"' in text
    assert found["hits"][0]["chat_title"] == "A weekend in Riga"


def test_search_is_limited(pages: httpx.Client) -> None:
    """Role, owner, chat and days, both included, limit what is found; empty fields of the form do not."""
    every = pages.get("/search.json?q=riga&role=&within=text&since=&until=&owner=&chat=").json()["hits"]
    day = pages.get("/search?q=riga&since=2000-01-01&until=2000-01-02").text

    assert every
    assert pages.get("/search.json?q=riga").json()["hits"] == every
    assert {hit["hit"]["message"]["name"] for hit in pages.get("/search.json?q=riga&role=user").json()["hits"]} == {
        "user"
    }
    assert pages.get("/search.json?q=riga&chat=tortilla").json()["hits"] == []
    assert pages.get("/search.json?q=riga&owner=nobody").json()["hits"] == []
    assert "Nothing was found" in day
    assert pages.get("/search?q=riga&since=2026-13-40").status_code == 422


def test_search_counts_what_hits_may_be_narrowed_down_to() -> None:
    """Chats, threads and items, roles, owners, ages, branches: of the query alone, whatever is chosen."""
    with demo_ledger() as ledger, pages_of(ledger) as client:
        blocking = ledger.blocking()
        blocking.create_chat("leeks", "ada")
        first = blocking.append("leeks", [user("leeks"), assistant("leeks and butter")])[0]
        blocking.fork("leeks", first.id)
        blocking.append("leeks", [assistant("leeks with cream")])
        ItemStore(blocking.for_user("bob")).put(("notes",), "k", {"role": "user", "content": "leeks of an item"})
        page = client.get("/search.json?q=leeks&role=user").json()
        text = client.get("/search?q=leeks").text
        older = client.get("/search.json?q=leeks&when=older").json()
        active = client.get("/search.json?q=leeks&active=true").json()["hits"]
        newest = client.get("/search.json?q=leeks&order=newest").json()["hits"]
        oldest = client.get("/search.json?q=leeks&order=oldest").json()["hits"]
        assert [hit["hit"]["message"]["created_at"] for hit in oldest] == sorted(
            hit["hit"]["message"]["created_at"] for hit in newest
        )
        items = client.get("/search.json?q=leeks&where=item&owner=bob").json()["hits"]

    facets = {facet["name"]: {one["value"]: one["count"] for one in facet["options"]} for facet in page["facets"]}
    assert facets == {
        "where": {"": 4, "chat": 3, "item": 1},
        "role": {"": 4, "user": 2, "assistant": 2},
        "owner": {"": 4, "ada": 3, "bob": 1},
        "when": {"": 4, "today": 4, "week": 4},
        "active": {"": 4, "true": 3},
    }
    assert len(page["hits"]) == 2
    assert len(active) == 3
    assert "leeks with cream" in json.dumps(active)
    assert "leeks and butter" not in json.dumps(active)
    assert [hit["hit"]["place"] is None for hit in newest] == [False, True, True, True]
    assert [hit["hit"]["place"]["id"] for hit in items] == ["item:bob:notes:k"]
    assert older["hits"] == []
    assert (older["counts"]["total"], older["filters"]) == (4, {"when": "Older"})
    assert "version 1" in text
    assert '<p class="before" dir="auto">leeks</p>' in text


def test_search_helps_where_nothing_was_found(pages: httpx.Client) -> None:
    """It names the nearest words that there are, or the filters that leave nothing, and says what was searched."""
    nearest = pages.get("/search?q=trian").text
    excluded = pages.get("/search?q=train&role=tool").text

    assert 'href="?q=train"' in nearest
    assert "threads, states and items of agents" in nearest
    assert "Without tool" in excluded
    assert pages.get("/search.json?q=qqqqq").json()["counts"]["nearest"] is None


def test_search_shows_a_hit_in_its_place(pages: httpx.Client) -> None:
    """The message before it, and the newest answer; only that, without the frame of a page."""
    hit = pages.get("/search.json?q=sigulda").json()["hits"][0]["hit"]["message"]
    place = pages.get(f"/search/place?m={hit['id']}")

    assert place.text.count("<article") == 3
    assert "<html" not in place.text
    assert f'href="/c/riga?m={hit["id"]}"' in place.text
    assert pages.get("/search/place?m=absent").status_code == 404


def test_search_goes_on(pages: httpx.Client) -> None:
    """What does not fit on a page is on the next one, and nothing twice."""
    with demo_ledger() as ledger, pages_of(ledger) as client:
        blocking = ledger.blocking()
        blocking.create_chat("long", "ada")
        blocking.append("long", [user(f"leeks {number}") for number in range(60)])
        ids: list[str] = []
        offset: int | None = 0
        while offset is not None:
            part = client.get(f"/search.json?q=leeks&offset={offset}").json()
            ids += [hit["hit"]["message"]["id"] for hit in part["hits"]]
            offset = part["next"]

    assert len(ids) == len(set(ids)) == 60


# Log


def test_log_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page backwards, each event is there once, whatever the filter, and however far apart they lie."""
    monkeypatch.setattr(log, "_ROWS", 7)
    monkeypatch.setattr(log, "_WINDOW", 5)
    monkeypatch.setattr(log, "_SEARCHED", 20)
    with demo_ledger() as ledger, pages_of(ledger) as client:
        blocking = ledger.blocking()
        for chat_id in ("first", "busy", "last"):
            blocking.create_chat(chat_id, "ada")
            for number in range(60 if chat_id == "busy" else 3):
                blocking.append(chat_id, [user(f"{number}")])
        blocking.append("first", [user("again")])
        blocking.delete_chat("last")
        blocking = ledger.blocking()
        for query, wanted in (
            ("", blocking.history()),
            ("chat=first", blocking.history("first")),
            ("topic=chat_created", blocking.history(topics={"chat_created"})),
        ):
            found: list[int] = []
            before: int | None = 1000
            while before is not None:
                part = client.get(f"/log.json?{query}&before={before}").json()
                found += [row["event"]["position"] for row in part["rows"]]
                before = part["older"]
            assert found[::-1] == [recorded.position for recorded in wanted], query


def test_log_shows_what_events_did(pages: httpx.Client) -> None:
    """The newest event is first, in words, with its hash; of one chat only its own are shown."""
    rows = pages.get("/log.json").json()["rows"]
    of_chat = pages.get("/log.json?chat=riga").json()["rows"]

    assert [row["event"]["position"] for row in rows] == sorted(
        (row["event"]["position"] for row in rows), reverse=True
    )
    assert rows[0]["event"]["hash"] in pages.get("/log").text
    assert {row["event"]["chat_id"] for row in of_chat} == {"riga"}
    assert [row for row in rows if row["event"]["chat_id"] == "riga"] == of_chat
    assert {row["event"]["type"] for row in pages.get("/log.json?topic=chat_created").json()["rows"]} == {
        "chat_created"
    }


def test_log_goes_on(pages: httpx.Client) -> None:
    """Rows after a position are those that were written since."""
    end = pages.get("/log.json").json()["position"]

    assert pages.get(f"/log/rows?after={end}").text.strip() == ""
    assert pages.get(f"/log/rows?after={end - 2}").text.count("<tr") == 2
    assert pages.get("/log?before=3").text.count("<tr data-position") == 2
    assert "data-live" not in pages.get("/log?before=3").text
    assert "data-live" not in pages.get("/log?at=3").text


def test_log_filters_combine() -> None:
    """Type, actor, span of time and words; each event of a thread leads to it, and no row breaks an id over lines."""
    with demo_ledger() as ledger, pages_of(ledger) as client:
        blocking = ledger.blocking()
        with blocking.context(actor="ada"):
            blocking.create_chat("boats", "ada", title="Boats")
            blocking.append("boats", [user("leeks for the harbour")])
            blocking.append("boats", [user("nothing")])
        with blocking.context(actor="emi"):
            blocking.append("boats", [user("leeks again")])
        fill_agents(blocking)

        def words(query: str) -> list[str]:
            return [row["words"] for row in client.get(f"/log.json?{query}").json()["rows"]]

        assert len(words("q=leeks")) == 2
        assert len(words("q=leeks&actor=ada")) == 1
        assert len(words("q=leeks&actor=ada&topic=message_appended&lately=24h")) == 1
        assert words("q=leeks&topic=chat_created") == []
        assert len(words("q=boats&actor=ada")) == 3  # by the title of where
        assert words("until=2020-01-01") == []
        assert len(words("since=2020-01-01&q=leeks")) == 2
        assert client.get("/log?since=5").status_code == 422
        threads = [row for row in client.get("/log.json").json()["rows"] if row["kind"] == "thread"]
        assert threads
        for row in threads:
            assert f'href="/agents/{row["thread_id"]}"' in client.get(f"/log?q={row['thread_id']}").text
        ledger.blocking().delete_chat("sauerteig")
        (deleted,) = client.get("/log.json?topic=chat_deleted").json()["rows"]
        assert deleted["is_gone"]
        assert 'href="/c/sauerteig' not in client.get("/log?topic=chat_deleted").text


def test_log_of_a_span_reads_that_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies before the span of a filter is not looked through, and nothing older is offered."""
    with demo_ledger() as ledger, pages_of(ledger) as client:
        blocking = ledger.blocking()
        blocking.create_chat("first", "ada")
        first = next(iter(blocking.history("first")))
        read: list[int] = []
        history = chatledger.Ledger.history

        def counted(self: chatledger.Ledger, *args: Any, **options: Any) -> Any:
            read.append(options.get("after", 0))
            return history(self, *args, **options)

        monkeypatch.setattr(chatledger.Ledger, "history", counted)
        since = datetime.fromtimestamp(first.occurred_at / 1000, UTC).isoformat().replace("+", "%2B")
        page = client.get(f"/log.json?since={since}&q=nobodyhasthis").json()

        assert (page["rows"], page["older"]) == ([], None)
        assert min(read) >= first.position - 1


# Diff


def test_diff_of_branches() -> None:
    """What is in common is counted, an edited message has its words marked, and each side its tokens and cost."""
    with demo_ledger() as ledger, pages_of(ledger) as client:
        blocking = ledger.blocking()
        blocking.create_chat("trip", "ada")
        blocking.append("trip", [user("Plan a trip", id="m1")])
        usage = {"usage": {"input_tokens": 10, "output_tokens": 5, "cost": 0.25}}
        blocking.append("trip", [assistant("Riga has a fine old town", id="m2", metadata=usage)])
        blocking.create_branch("trip", "other", "m1")
        blocking.append("trip", [assistant("Riga has a fine new opera", id="m3")], branch="other")
        found = client.get("/c/trip/diff.json?left=main&right=other").json()
        text = client.get("/c/trip/diff?left=main&right=other").text

    assert ([message["id"] for message in found["common"]], found["common_messages"]) == (["m1"], 1)
    assert (found["left"]["used_tokens"], found["left"]["cost"], found["right"]["used_tokens"]) == (15, 0.25, None)
    assert found["rows"][0]["is_edit"]
    assert " <del>old town</del>" in text
    assert " <ins>new opera</ins>" in text


def test_diff_of_a_replay() -> None:
    """Turn by turn: what was asked again is the same, the last answers stand beside each other, and runs say what an answer took."""
    with demo_ledger() as ledger, pages_of(ledger) as client:
        blocking = ledger.blocking()
        blocking.create_chat("trip", "ada")
        function = {"name": "trains", "arguments": '{"to": "Riga"}'}
        call = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
        result = {"role": "tool", "tool_call_id": "c1", "content": "8:04"}
        blocking.append("trip", [user("When?"), call, result, assistant("The train leaves at 8:04.")])
        blocking.append("trip", [user("And back?"), assistant("At 17:30.", id="m")])

        def runner(turn: Exchange) -> ReplayAnswer:
            words = "The train leaves at 9:00." if turn.number == 1 else "I do not know."
            return ReplayAnswer(assistant(words), {"usage": {"input_tokens": 3, "output_tokens": 4}, "cost": 0.25})

        replay = blocking.replay("trip", runner, name="small")
        blocking.annotate("trip", "m", metadata={"faithful": 0.5, "checked": True})
        found = client.get("/c/trip/diff.json?left=main&right=small").json()
        text = client.get("/c/trip/diff?left=main&right=small").text
        past = client.get(f"/c/trip/diff.json?left=main&right=small&at={blocking.position}").json()

    rows = [
        (row["turn"], bool(row["left"]), bool(row["right"]), row["is_edit"], row["is_same"]) for row in found["rows"]
    ]
    assert rows == [
        (0, True, False, False, False),
        (0, True, False, False, False),
        (0, True, True, True, False),
        (1, True, True, False, True),
        (1, True, True, False, False),
    ]
    left, right = found["left"], found["right"]
    assert (left["turns"], left["calls"], left["used_tokens"], left["scores"]) == (2, 1, None, {"faithful": 0.5})
    assert (right["turns"], right["calls"], right["used_tokens"], right["cost"]) == (2, 0, 14, 0.5)
    assert right["took_ms"] == sum(run.updated_at - run.created_at for run in replay.runs)
    assert past["right"]["used_tokens"] is None, "of the past no runs are known"
    assert "3 only left · 1 edited · 1 only right" in text
    assert '<th scope="row" dir="auto">faithful</th><td class="number">0.5</td><td class="number">\u2013</td>' in text
    assert "trains to=&#34;Riga&#34;" in text


def test_diff_of_two_chats() -> None:
    """Of another chat by `chat:`, also at a place of it; what both say alike is in common, and each message is a row of its own."""
    with demo_ledger() as ledger, pages_of(ledger) as client:
        blocking = ledger.blocking()
        for chat_id, ends in (("one", ["Riga", "more"]), ("a@b", ["Tallinn is quite another town"])):
            blocking.create_chat(chat_id, "ada")
            blocking.append(chat_id, [user("Where?"), *map(assistant, ends)])
        blocking.create_branch("a@b", "empty", None)
        found = client.get("/compare.json", params={"left": "chat:one", "right": "chat:a@b"}).json()
        here = client.get("/c/one/diff.json", params={"left": "main", "right": "chat:a@b"}).json()
        empty = client.get("/compare.json", params={"left": "chat:one", "right": "chat:a@b@empty"}).json()
        rows = [
            [side and side["data"]["parts"][0]["text"] for side in (row["left"], row["right"])] for row in found["rows"]
        ]

        assert (found["common_messages"], here["rows"]) == (1, found["rows"])
        assert rows == [["Riga", None], ["more", "Tallinn is quite another town"]]
        assert [row["is_edit"] for row in found["rows"]] == [False, False]
        assert (found["left"]["messages"], found["right"]["messages"]) == (2, 1)
        assert (empty["common_messages"], len(empty["rows"])) == (0, 3)
        assert {"kind": "chat", "name": "chat:riga", "title": "A weekend in Riga"} in here["choices"]
        assert 'right=chat%3Ariga" dir="auto">A weekend in Riga<' in client.get("/c/one/diff?left=main").text
        assert client.get("/compare?left=chat:none&right=chat:one").status_code == 404
        assert client.get("/compare?left=main&right=chat:one").status_code == 422
        assert 'class="diff-cell missing"' in client.get("/compare?left=chat:one&right=chat:a@b").text
        assert "<ins>" in client.get("/c/riga/diff?left=main&right=inland&view=inline").text


def test_diff_of_two_threads() -> None:
    """Two threads, or two of its checkpoints, are compared as states; not with a chat, and not in the past."""
    with demo_ledger() as ledger, pages_of(ledger) as client:
        fill_agents(ledger.blocking())
        steps = client.get(f"/agents/{THREAD}.json").json()["trace"]["steps"]
        made = [step["checkpoint_id"] for step in steps if not step["is_pending"] and not step["is_pruned"]]
        query = {"left": f"thread:{THREAD}@{made[0]}", "right": f"thread:{THREAD}"}
        found = client.get("/compare.json", params=query).json()
        same = client.get("/compare", params={"left": f"thread:{THREAD}", "right": f"thread:{THREAD}"}).text

        assert found["changed"]
        assert {node["name"] for node in found["states"] if node["mark"]} == set(found["changed"])
        assert "The two states are equal" in same
        assert client.get("/compare", params={"left": f"thread:{THREAD}", "right": "chat:riga"}).status_code == 422
        assert client.get("/compare", params=query | {"at": "7"}).status_code == 422
        assert client.get("/compare", params=query | {"right": "thread:none"}).status_code == 404


def test_diff_of_moments(pages: httpx.Client) -> None:
    """Between two moments, it says what moved; a place that is not there is said."""
    found = pages.get("/c/riga/diff.json?left=@1&right=@now").json()

    assert found["left"]["kind"] == "moment"
    assert found["right"]["messages"] > 0
    assert [one["name"] for one in found["pointers"]]
    moved = found["pointers"][0]
    text = pages.get("/c/riga/diff?left=@1&right=@now").text
    assert f'm={moved["right"]}">{moved["right_line"][:20]}' in text
    assert pages.get("/c/riga/diff?left=main&right=none").status_code == 404
    assert pages.get("/c/riga/diff?left=main&right=@noon").status_code == 422
    assert pages.get("/c/none/diff").status_code == 404


# Proof


def test_proof_says_what_is_sound(pages: httpx.Client) -> None:
    """Without scripts, the form asks for a page that says what verifying found; a server without a key signs nothing."""
    assert "Sound." in pages.get("/proof?verify=true").text
    assert pages.get("/proof.json?verify=true").json()["verified"]["chat_count"] > 0
    assert pages.get("/proof/anchor").status_code == 422


def test_proof_of_a_message_is_a_file() -> None:
    """The file of a message is enough to check it."""
    with signing() as client:
        message_id = client.get("/search.json?q=riga").json()["hits"][0]["hit"]["message"]["id"]
        answer = client.get("/proof/message", params={"message": message_id})
        (found,) = check_excerpt(answer.text.strip(), public_pem_of(KEY)).messages

        assert answer.headers["content-disposition"].startswith("attachment")
        assert found.id == message_id
        assert json.loads(client.get("/proof/anchor").text)["count"] > 0
        assert client.get("/proof/message?message=none").status_code == 404


# Hostile content


@pytest.mark.parametrize(
    "path",
    ["/search?q=leeks", f"/search?q={HOSTILE}", "/log", "/c/hostile/diff?left=main&right=h1", f"/log?chat={HOSTILE}"],
)
def test_nothing_hostile_is_html(pages: httpx.Client, path: str) -> None:
    """What people wrote stays text."""
    text = pages.get(path).text

    assert "<script>alert" not in text
    assert "<img" not in text


@given(text=st.text(max_size=60), other=st.text(max_size=60))
def test_marks_keep_the_text(text: str, other: str) -> None:
    """Marking words changes no text, and lets no other tag through."""
    shown = changed_words(text, other, "del")

    assert html.unescape(shown.replace("<del>", "").replace("</del>", "")) == text
    assert all(part.startswith(("del>", "/del>")) for part in shown.split("<")[1:])
    said = Message(id="m", chat_id="c", name="user", data=text, created_at=0)
    hit = SearchHit(message=said, rank=0, snippet=f"{text}{other}", matches=[[len(text), len(text + other)]])
    assert marked(hit) == f"{escape(text)}<mark>{escape(other)}</mark>"

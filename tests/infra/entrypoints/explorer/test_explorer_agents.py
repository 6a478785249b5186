"""The pages of agents: threads, their steps in lanes, states, differences, runs and what is repeated."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.agent_threads import put
from tests.support.explorer_agents import HIDDEN, STATE, THREAD, begin_again, fill_agents
from tests.support.explorer_world import BROWSER, demo_ledger, pages_of, printable
from tests.support.hostile_markup import PAYLOADS, faults_in
from tests.support.http_world import serving

import chatledger
from chatledger.graph_state import StateStore
from chatledger.infra.entrypoints.explorer.changes import changes_between
from chatledger.infra.entrypoints.explorer.thread_lanes import CheckpointPlace, draw_lanes
from chatledger.infra.ledger.threads import Threads
from chatledger.server import KeyFile, create_app

PATHS = ["/agents", f"/agents/{THREAD}", "/agents?kind=states", f"/states/{STATE}"]


@pytest.fixture(scope="module")
def ledger() -> Generator[chatledger.AsyncLedger]:
    """A thread that waits, with a fork; runs, of which one is to be repeated; a state of a graph; many small threads."""
    with demo_ledger() as ledger:
        blocking = ledger.blocking()
        fill_agents(blocking)
        begin_again(blocking)
        threads = Threads(blocking)
        for number in range(60):
            put(threads, f"small-{number:02}", "c1", {"a": "b"})
        for number in range(1, 121):
            parent = f"{number - 1:04}" if number > 1 else None
            put(
                threads, "long", f"{number:04}", {"a": str(number)}, parent_id=parent, namespace=("", "sub")[number % 2]
            )
        yield ledger


@pytest.fixture(scope="module")
def pages(ledger: chatledger.AsyncLedger) -> Generator[httpx.Client]:
    with pages_of(ledger) as client:
        yield client


def thread_of(pages: httpx.Client, **query: str) -> dict[str, Any]:
    found: dict[str, Any] = pages.get(f"/agents/{THREAD}.json", params=query).json()
    return found


def test_threads_are_listed_filtered_and_sorted(pages: httpx.Client) -> None:
    """Page by page every thread is there once; words and owners choose among them."""
    begun = [THREAD, *(f"small-{number:02}" for number in range(60)), "long"]

    assert listed(pages, order="created", ascending="true") == begun
    assert listed(pages, order="created") == listed(pages) == begun[::-1]
    assert len(listed(pages, q="SMALL 5")) == 15
    assert listed(pages, owner="ada") == [THREAD]
    assert "small-59" not in pages.get("/agents?order=created&ascending=true").text
    assert 'rel="next"' in pages.get("/agents").text
    assert "There is nothing like this" in pages.get("/agents?q=nowhere").text
    assert pages.get("/agents?after=nowhere").status_code == 422


def listed(pages: httpx.Client, **query: str) -> list[str]:
    """The threads of all pages, in order."""
    found: list[str] = []
    after = ""
    while after is not None:
        page = pages.get("/agents.json", params=query | {"after": after}).json()
        assert len(page["threads"]) <= 50
        found += [row["thread"]["thread_id"] for row in page["threads"]]
        after = page["next"]
    return found


def test_a_page_looks_at_so_many_only(pages: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where few of many fit, a page says that others follow, and the next ones have them."""
    monkeypatch.setattr("chatledger.infra.ledger.parts.LOOKED_AT", 10)
    empty = pages.get("/agents", params={"q": THREAD, "order": "updated"}).text

    assert "others follow" in empty
    assert 'rel="next"' in empty
    assert listed(pages, q=THREAD) == [THREAD]


def test_states_are_listed(pages: httpx.Client) -> None:
    """States have a list of their own."""
    found = pages.get("/agents.json?kind=states").json()

    assert [(one["id"], one["version"]) for one in found["states"]] == [(STATE, 2)]
    assert f'href="/states/{STATE}"' in pages.get("/agents?kind=states").text


def test_thread_with_a_fork(pages: httpx.Client) -> None:
    """Steps come with their parents; both ways on from the first answer are lanes of their own."""
    found = thread_of(pages)
    parents = [step["parent_id"] for step in found["steps"]]

    assert len(found["steps"]) == found["thread"]["checkpoint_count"]
    assert max(map(parents.count, parents)) == 2
    assert len({dot["x"] for dot in found["drawing"]["dots"]}) == 2
    assert {step["source"] for step in found["steps"]} == {"input", "loop"}
    assert pages.get(f"/agents/{THREAD}").text.count(' r="5" class="lane-') == len(found["steps"])


def test_what_waits_is_said(pages: httpx.Client) -> None:
    """The interrupt that somebody has to answer stands at the top, and with its checkpoint."""
    found = thread_of(pages)
    text = pages.get(f"/agents/{THREAD}").text

    assert found["waiting"][0]["tasks"][0]["interrupts"] == [{"question": "go on?"}]
    assert found["state"]["tasks"][0]["name"] == "work"
    assert {write["channel"] for write in found["state"]["writes"]} >= {"__interrupt__"}
    assert "go on?" in text


def test_state_of_a_step_and_difference_of_two(pages: httpx.Client) -> None:
    """A step that is named is shown; two of them differ in what happened in between, whichever comes first."""
    steps = thread_of(pages)["steps"]
    newest, oldest = steps[0]["checkpoint_id"], steps[-1]["checkpoint_id"]
    earlier = thread_of(pages, step=oldest)["state"]
    one, other = (thread_of(pages, step=a, to=b)["changes"] for a, b in ((newest, oldest), (oldest, newest)))

    assert earlier["at"]["checkpoint_id"] == oldest
    assert one == other
    assert [change["name"] for change in one] == ["messages", "n"]
    assert any(line["sign"] == "+" and "hello" in line["text"] for line in one[0]["lines"])
    assert "<ins>" in pages.get(f"/agents/{THREAD}?step={newest}&to={oldest}").text


def test_long_thread_is_read_in_parts(pages: httpx.Client) -> None:
    """Part by part all checkpoints of all namespaces are there once, the newest first; of one namespace only its own."""
    for query, expected in (({}, range(120, 0, -1)), ({"ns": "sub"}, range(119, 0, -2))):
        found: list[str] = []
        before = ""
        while before is not None:
            page = pages.get("/agents/long.json", params=query | {"before": before}).json()
            found += [step["checkpoint_id"] for step in page["steps"]]
            before = page["before"]
        assert found == [f"{number:04}" for number in expected]


def test_checkpoints_of_no_framework(pages: httpx.Client) -> None:
    """What only its own framework can read is shown by its names."""
    found = pages.get("/agents/long.json").json()["state"]

    assert (found["metadata"], found["channels"]) == (None, ["a"])
    assert pages.get("/agents/long").status_code == 200


def test_runs_and_what_is_repeated(pages: httpx.Client) -> None:
    """Runs with what they produced; of a regeneration the runs in order, and why."""
    found = thread_of(pages)
    text = pages.get(f"/agents/{THREAD}").text
    steps = found["regenerations"][0]["steps"]

    assert {one["run"]["run_id"]: one["is_stale"] for one in found["runs"]} == {"run-1": True, "run-2": True}
    assert [(one["repeats"]["run_id"], one["repeats"]["depth"], one["status"]) for one in steps] == [
        ("run-1", 1, "awaiting_approval"),
        ("run-2", 2, "awaiting_approval"),
    ]
    assert "awaiting approval" in text
    assert text.index('run-1</code> <span class="chip status-aw') < text.index(
        'run-2</code> <span class="chip status-aw'
    )
    assert "An edit makes 2 runs stale" in pages.get(f"/c/{THREAD}?m=ag1").text


def test_state_of_a_graph(pages: httpx.Client) -> None:
    """Versions, the values of one, what changed since the one before, and when it ends."""
    found = pages.get(f"/states/{STATE}.json").json()
    first = pages.get(f"/states/{STATE}.json?version=1").json()

    assert [one["version"] for one in found["versions"]] == [2, 1]
    assert (found["compared"], first["compared"]) == (1, None)
    assert {one["name"]: one["kind"] for one in found["changes"]} == {"docs": "changed", "secret": "added"}
    assert found["observed"] == {"docs_count": {"from": 0, "to": 1}}
    assert "secret" not in first["values"]
    assert found["info"]["expires_at"] is not None
    assert "documents: 0 → 1" in pages.get(f"/states/{STATE}").text
    assert pages.get(f"/states/{STATE}.json?version=1&to=2").json()["changes"][1]["kind"] == "removed"


@pytest.mark.parametrize(
    "path",
    [
        "/agents/none",
        f"/agents/{THREAD}?step=none",
        f"/agents/{THREAD}?to=none",
        "/states/none",
        "/states/chat:ada:none",
        f"/states/{STATE}?version=9",
        f"/states/{STATE}?to=9",
    ],
)
def test_absent(pages: httpx.Client, path: str) -> None:
    """What is not there is not found."""
    assert pages.get(path).status_code == 404


@pytest.mark.parametrize("path", PATHS)
def test_no_past(pages: httpx.Client, path: str) -> None:
    """Pages of agents show the present only, and say so."""
    assert pages.get(path, params={"at": "1"}).status_code in {404, 422}
    assert pages.get(path + ("&" if "?" in path else "?") + "at=5").status_code == 422


def test_who_sees_and_does_what(tmp_path: Path) -> None:
    """Others find nothing; who may only read sees no forms; who may write deletes what is theirs, when sure."""
    keys = KeyFile(tmp_path / "keys")
    with demo_ledger() as ledger:
        blocking = ledger.blocking()
        fill_agents(blocking)
        begin_again(blocking)
        before = blocking.position
        secrets = {
            "ada-reads": keys.add("ada-reads", user_id="ada", scopes=frozenset({"read"})),
            "ada": keys.add("ada", user_id="ada", scopes=frozenset({"write"})),
            "bob": keys.add("bob", user_id="bob", scopes=frozenset({"write"})),
        }
        gone = [
            ("delete-thread", {"thread_id": THREAD, "confirmed": THREAD}),
            ("delete-state", {"state_id": STATE, "confirmed": STATE}),
        ]
        with (
            serving(create_app(ledger, authenticate=keys)) as url,
            httpx.Client(base_url=url, headers=BROWSER) as client,
        ):
            for name in ("bob", "ada-reads", "ada"):
                client.headers["X-Api-Key"] = secrets[name]
                texts = [client.get(path) for path in PATHS]
                if name == "bob":
                    assert [page.status_code for page in texts] == [200, 404, 200, 404]
                    assert not any(HIDDEN in page.text or THREAD in page.text for page in texts[::2])
                    assert [404, 404] == [client.post(f"/do/{do}", data=form).status_code for do, form in gone]
                elif name == "ada-reads":
                    assert '<form method="post" action="/do/' not in "".join(page.text for page in texts)
                    assert [403, 403] == [client.post(f"/do/{do}", data=form).status_code for do, form in gone]
                    assert blocking.position == before
                else:
                    assert [200] * 4 == [page.status_code for page in texts]
                    assert [one["name"] for one in client.get(f"/agents/{THREAD}.json").json()["actions"]] == [
                        "approve",
                        "delete-thread",
                    ]
                    approve = {"chat_id": THREAD, "regeneration_id": "again", "onward": "thread"}
                    answer = client.post("/do/approve", data=approve)
                    assert (303, f"/agents/{THREAD}") == (answer.status_code, answer.headers["location"])
                    unsure = client.post("/do/delete-thread", data={"thread_id": THREAD})
                    assert unsure.status_code == 422
                    assert [303, 303] == [client.post(f"/do/{do}", data=form).status_code for do, form in gone]
                    assert [404, 404] == [client.get(path).status_code for path in PATHS[1::2]]


def test_hostile_agents() -> None:
    """Ids, namespaces, nodes, values, interrupts and runs with whatever text: nothing of it runs."""
    with demo_ledger() as ledger, pages_of(ledger) as client:
        blocking = ledger.blocking()
        for payload in PAYLOADS[::6]:
            text = printable(payload)
            fill_agents(blocking, text)
            StateStore(blocking).put(STATE, {payload: payload}, node=text)
            put(Threads(blocking), text, text, {text: "x"}, namespace=text)
            steps = client.get(f"/agents/{THREAD}.json").json()["steps"]
            compared = {"step": steps[0]["checkpoint_id"], "to": steps[-1]["checkpoint_id"]}
            for page in (
                client.get("/agents"),
                client.get("/agents?kind=states"),
                client.get(f"/agents/{THREAD}", params=compared),
                client.get(f"/states/{STATE}"),
                client.get("/agents", params={"q": payload, "owner": payload}),
                client.get(f"/agents/{THREAD}", params={"ns": payload, "before": printable(payload)}),
            ):
                assert page.status_code == 200, payload
                assert faults_in(page.text) == [], payload
            blocking.delete_chat(THREAD)
            Threads(blocking).delete(THREAD)


def test_lanes_meet_at_the_parent() -> None:
    """Of two with the same parent both lanes end there; the one that is not there leads out of the drawing."""
    rows = [
        (CheckpointPlace("", name), CheckpointPlace("", parent) if parent else None)
        for name, parent in ("db", "cb", "ba", "xw")
    ]
    drawing = draw_lanes(rows)

    assert [dot.x for dot in drawing.dots] == [12, 28, 12, 28]
    assert any("C28" in stroke.d and stroke.d.endswith("12 80") for stroke in drawing.strokes)
    assert [stroke.d for stroke in drawing.strokes if stroke.d.endswith("V128")] == ["M12 96V128", "M28 112V128"]


def test_changes_of_values() -> None:
    """What is equal is left out; long values are cut."""
    found = changes_between({"a": 1, "b": [1, 2], "c": 0}, {"a": 1, "b": [1, 3], "d": 0})
    (long,) = changes_between({"a": list(range(3000))}, {"a": list(range(3000, 6000))})

    assert [(change.name, change.kind) for change in found] == [("b", "changed"), ("c", "removed"), ("d", "added")]
    assert [f"{line.sign}{line.text.strip()}" for line in found[0].lines if line.sign in "+-"] == ["-2", "+3"]
    assert (len(long.lines), long.is_cut) == (400, True)


def test_a_run_that_asks_is_seen(pages: httpx.Client, ledger: chatledger.AsyncLedger) -> None:
    """As is the step that is completed by its answer, and the one that waits for that."""
    own = ledger.blocking()
    own.approve_regeneration(THREAD, "again")
    own.suspend_run(THREAD, own.repeat_run(THREAD, "again", "run-1").run_id)
    text = pages.get(f"/agents/{THREAD}").text
    assert '<span class="chip status-asking">waiting</span>' in text
    assert [step["status"] for step in thread_of(pages)["regenerations"][0]["steps"]] == ["asking", "waiting"]
    assert 'run-1</code> <span class="chip status-asking">asking</span>' in text


def test_log_leads_to_threads(pages: httpx.Client) -> None:
    """An event of a thread leads to its page, one of a state says what it is of; none to the page of a chat that is not there."""
    text, rows, before = "", list[Any](), ""
    while before is not None:
        query = f"?before={before}" if before else ""
        part = pages.get(f"/log.json{query}").json()
        rows += part["rows"]
        text += pages.get(f"/log{query}").text
        before = part["older"]

    assert {row["kind"] for row in rows} >= {"chat", "thread", "state"}
    assert f'href="/agents/{THREAD}"' in text
    assert 'href="/c/chatledger' not in text
    assert {row["thread_id"] for row in rows if row["kind"] == "thread"} >= {THREAD}

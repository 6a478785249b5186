"""The pages of agents: threads by how they stand, as traces, states as trees, questions, runs and what is repeated."""

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
from chatledger.domain.draw.state_tree import state_tree
from chatledger.graph_state import StateStore
from chatledger.infra.entrypoints.agent_steps import duration
from chatledger.infra.entrypoints.explorer.state import changes_between
from chatledger.infra.entrypoints.explorer.trace import TraceAxis
from chatledger.infra.ledger.thread_trace import TaskSpan, TraceStep, TraceTask
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
            put(threads, f"small-{number:02}", "c1", {("a", "branch:to:next")[number % 2]: "b"})
        for number in range(1, 251):
            parent = f"{number - 1:04}" if number > 1 else None
            put(threads, "long", f"{number:04}", {"a": str(number)}, parent_id=parent)
        yield ledger


@pytest.fixture(scope="module")
def pages(ledger: chatledger.AsyncLedger) -> Generator[httpx.Client]:
    with pages_of(ledger) as client:
        yield client


def thread_of(pages: httpx.Client, **query: str) -> dict[str, Any]:
    found: dict[str, Any] = pages.get(f"/agents/{THREAD}.json", params=query).json()
    return found


def test_threads_are_listed_filtered_and_sorted(pages: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page every thread is there once; words and owners choose among them."""
    begun = [THREAD, *(f"small-{number:02}" for number in range(60)), "long"]

    assert listed(pages, order="created", ascending="true") == begun
    assert listed(pages, order="created") == listed(pages) == begun[::-1]
    assert len(listed(pages, q="SMALL 5")) == 15
    assert listed(pages, owner="ada") == [THREAD]
    assert listed(pages, status="stopped") == [f"small-{number:02}" for number in range(59, 0, -2)]
    assert pages.get("/agents.json").json()["counts"] == {
        "waits": 1,
        "running": 0,
        "failed": 0,
        "stopped": 30,
        "finished": 31,
    }
    assert ">Stopped 30</a>" in pages.get("/agents?q=none").text
    assert 'id="waiting" title="Threads that wait">1</span>' in pages.get("/").text
    assert pages.get("/waiting").json() == 1
    monkeypatch.setattr("chatledger.infra.entrypoints.explorer.agents._ROWS", 50)
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
        assert len(page["threads"]) <= 100
        found += [row["thread_id"] for row in page["threads"]]
        after = page["next"]
    return found


def test_a_page_looks_at_so_many_only(pages: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where few of many fit, a page says that others follow, and the next ones have them."""
    monkeypatch.setattr("chatledger.infra.ledger.thread_lists.LOOKED_AT", 10)
    empty = pages.get("/agents", params={"q": THREAD, "order": "updated"}).text

    assert "Others follow" in empty
    assert 'rel="next"' in empty
    assert listed(pages, q=THREAD) == [THREAD]


def test_states_are_listed(pages: httpx.Client) -> None:
    """States have a list of their own."""
    found = pages.get("/agents.json?kind=states").json()

    assert [(one["id"], one["version"]) for one in found["states"]] == [(STATE, 2)]
    assert f'href="/states/{STATE}"' in pages.get("/agents?kind=states").text


def test_thread_with_a_fork(pages: httpx.Client) -> None:
    """The line of the newest checkpoint is read; the other way on from the first answer stands below it, with where it forks."""
    shown = thread_of(pages)
    steps = [step["checkpoint_id"] for step in shown["trace"]["steps"] if not step["is_pending"]]
    (other,) = shown["trace"]["others"]
    beside = [step["checkpoint_id"] for step in other["steps"]]

    assert len(steps) + len(beside) == shown["thread"]["checkpoint_count"]
    assert other["forked_from"] in steps
    assert shown["others"][0]["words"] == "forked at step 2 by an input of ada"
    assert "1 other line" in pages.get(f"/agents/{THREAD}").text
    as_read = thread_of(pages, end=beside[-1])
    assert [step["checkpoint_id"] for step in as_read["trace"]["steps"]][-len(beside) :] == beside
    assert [step["parent_id"] for step in as_read["trace"]["steps"]][1:] == [
        step["checkpoint_id"] for step in as_read["trace"]["steps"]
    ][:-1]


def test_a_question_and_how_it_is_answered(pages: httpx.Client) -> None:
    """What waits is asked on the page, with the node, and the command that answers it."""
    shown = thread_of(pages)
    (question,) = shown["questions"]
    text = pages.get(f"/agents/{THREAD}").text

    assert (question["words"], question["node"]) == ("go on?", "work")
    assert "Command(resume=&#34;yes&#34;)" in text
    assert "Its graph runs in a program of yours" in text
    # LangGraph's API goes on with threads of its assistants; this one is a program's own.
    assert (question["ways"]["curl"], question["ways"]["sdk"]) == ("", "")
    assert (shown["trace"]["steps"][-1]["state"], shown["trace"]["steps"][-1]["is_pending"]) == ("waits", True)
    assert "additional_kwargs" not in text


def test_state_of_a_step_and_difference_of_two(pages: httpx.Client) -> None:
    """A step is compared with its parent, or with any other one; its new messages are shown as messages."""
    steps = [step for step in thread_of(pages)["trace"]["steps"] if not step["is_pending"]]
    newest, oldest = steps[-1]["checkpoint_id"], steps[0]["checkpoint_id"]
    earlier, alike = thread_of(pages, step=oldest)["state"], thread_of(pages, step=newest, to=newest)["state"]
    against = thread_of(pages, step=newest, to=oldest)["state"]

    assert (earlier["at"]["checkpoint_id"], earlier["against"]) == (oldest, None)
    assert alike["changed"] == []
    assert against["changed"] == ["n", "messages"]
    assert against["message_count"] == len(against["fresh"]) > 0
    assert "is-message added" in pages.get(f"/agents/{THREAD}?step={newest}&to={oldest}").text
    messages = pages.get(f"/agents/{THREAD}", params={"step": newest, "view": "messages"}).text
    assert messages.count("<article") == against["message_count"]
    assert "ask hello" in messages
    assert "__interrupt__" in pages.get(f"/agents/{THREAD}?step={newest}&pending=true&view=writes").text


def test_long_thread_is_read_in_parts(pages: httpx.Client) -> None:
    """Windows of 100 steps, each the one before; a step that is named begins its window."""
    found: list[str] = []
    end = ""
    while end is not None:
        page = pages.get("/agents/long.json", params={"end": end}).json()["trace"]
        assert len(page["steps"]) <= 100
        found = [step["checkpoint_id"] for step in page["steps"]] + found
        end = page["earlier"]
    assert found == [f"{number:04}" for number in range(1, 251)]
    named = pages.get("/agents/long.json?step=0042").json()
    assert (named["trace"]["steps"][-1]["checkpoint_id"], named["trace"]["is_newest"]) == ("0042", False)
    assert "Earlier steps" in pages.get("/agents/long").text


def test_checkpoints_of_no_framework(pages: httpx.Client) -> None:
    """What only its own framework can read is shown by its names."""
    found = pages.get("/agents/long.json").json()["state"]

    assert (found["metadata"], found["tree"][0]["name"], found["tree"][0]["text"]) == ({}, "a", "3 bytes of text")
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
    plan = text[text.index('<ol class="plan">') :]
    assert plan.index("run-1</code>") < plan.index("run-2</code>")
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


@pytest.mark.guard
def test_hostile_agents() -> None:
    """Ids, namespaces, nodes, values, interrupts and runs with whatever text: nothing of it runs."""
    with demo_ledger() as ledger, pages_of(ledger) as client:
        blocking = ledger.blocking()
        for payload in PAYLOADS[::6]:
            text = printable(payload)
            fill_agents(blocking, text)
            StateStore(blocking).put(STATE, {payload: payload}, node=text)
            put(Threads(blocking), text, text, {text: "x"}, namespace=text)
            steps = client.get(f"/agents/{THREAD}.json").json()["trace"]["steps"]
            compared = {"step": steps[0]["checkpoint_id"], "to": steps[-1]["checkpoint_id"]}
            for page in (
                client.get("/agents"),
                client.get("/agents?kind=states"),
                client.get(f"/agents/{THREAD}", params=compared),
                client.get(f"/states/{STATE}"),
                client.get("/agents", params={"q": payload, "owner": payload}),
                client.get(f"/agents/{THREAD}", params=compared | {"view": "messages"}),
                client.get(f"/agents/{THREAD}", params={"view": "writes"}),
                client.get(f"/agents/{THREAD}", params={"ns": payload}),
                client.get(f"/agents/{THREAD}", params={"end": printable(payload)}),
            ):
                assert page.status_code in {200, 404}, payload
                assert faults_in(page.text) == [], payload
            blocking.delete_chat(THREAD)
            Threads(blocking).delete(THREAD)


def step_of(began_at: int, *ends: int | None) -> TraceStep:
    """A step whose tasks work from then to their ends, or wait."""
    tasks = [
        TraceTask(
            node="n",
            task_id=str(at),
            state="done",
            spans=[TaskSpan(kind="work" if end else "waits", began_at=began_at, ended_at=end)],
            words="",
            asked=[],
            is_answered=False,
            is_retried=False,
            subgraph=[],
        )
        for at, end in enumerate(ends)
    ]
    return TraceStep(
        namespace="",
        checkpoint_id=str(began_at),
        parent_id=None,
        number=1,
        source="loop",
        created_at=began_at,
        began_at=began_at,
        run_id=None,
        position=0,
        is_pruned=False,
        is_pending=False,
        tasks=tasks,
        task_count=len(tasks),
        words="",
    )


def test_idle_time_is_squeezed() -> None:
    """Work is drawn to scale, side by side; two hours between are as wide as an eighth of it, and are named."""
    hours = 7_440_000
    steps = [step_of(0, 4_000, 2_000), step_of(hours, hours + 4_000), step_of(hours + 4_000, None)]
    axis = TraceAxis(steps, now=10**9)

    assert axis.x(4_000) == pytest.approx(2 * axis.x(2_000), abs=0.2)
    assert axis.x(hours + 4_000) - axis.x(hours) == pytest.approx(axis.x(4_000), abs=0.2)
    assert axis.x(hours) - axis.x(4_000) < axis.x(4_000) / 3
    assert axis.x(10**9) <= 190
    assert [label.text for label in axis.labels()] == ["0", "11 days", "2 h"]
    assert axis.bar(steps[2].tasks[0].spans[0], "task").kind == "waits"
    empty = TraceAxis([step_of(5)], now=9)
    assert (empty.x(5), len(empty.labels())) == (0, 1)
    assert [duration(ms) for ms in (0, 213, 3_100, 41_000, 2_280_000)] == [
        "0 ms",
        "213 ms",
        "3.10 s",
        "41.0 s",
        "38 min",
    ]


def test_tree_of_a_state() -> None:
    """Lists are compared from both ends; what is equal beside it is folded; a message is a row."""
    message = {"type": "ai", "content": "Hello", "additional_kwargs": {}}
    before = {"plan": ["a"], "sources": [*"abcdef"], "draft": None, "gone": 1, "deep": {"x": {"y": 1}, "z": 2}}
    after = {
        "plan": ["a"],
        "sources": [*"abcdef", "g"],
        "draft": "text",
        "deep": {"x": {"y": 2}, "z": 2},
        "messages": [message],
    }
    tree = {(node.name, node.mark): node for node in state_tree(after, before)}

    assert list(tree) == [
        ("plan", ""),
        ("sources", "inner"),
        ("draft", "removed"),
        ("draft", "added"),
        ("deep", "inner"),
        ("messages", "added"),
        ("gone", "removed"),
    ]
    assert [node.text for node in tree["sources", "inner"].children] == ["… 6 equal", '"g"']
    assert tree["sources", "inner"].text == "list, 7, 1 new"
    deep = tree["deep", "inner"].children[0].children
    assert [(node.path, node.mark, node.text) for node in deep] == [
        ("/deep/x/y", "removed", "1"),
        ("/deep/x/y", "added", "2"),
    ]
    assert tree["messages", "added"].children[0].text == 'ai "Hello"'
    assert not any(node.mark for node in state_tree(after, after))
    (long,) = state_tree({"a": [*range(5_000)]}, None)
    assert (len(long.children), long.children[-1].text) == (2_000, "… and 3,001 more")


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

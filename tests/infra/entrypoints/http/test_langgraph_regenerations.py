"""Runs that messages of a chat set off, and their repetition after an edit, over HTTP by registered graphs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph_sdk import get_sync_client
from langgraph_sdk.errors import NotFoundError, UnprocessableEntityError
from tests.support.http_world import API, serving
from tests.support.run_graphs import State, agent, said

import chatledger
from chatledger.server import Principal, create_app

if TYPE_CHECKING:
    from collections.abc import Iterator


def writer() -> Any:
    """A graph that says how many messages it has seen, and the texts of those that it was given."""

    async def write(state: State, config: RunnableConfig) -> State:
        texts = [str(one.content) for one in state.get("messages", [])]
        tone = config.get("configurable", {}).get("tone", "plain")
        if texts[-1] == "boom":
            msg = "boom happened"
            raise ValueError(msg)
        return {"messages": [AIMessage(f"{tone}: {' / '.join(texts)}")]}

    builder: Any = StateGraph(State)
    builder.add_node("write", write)
    builder.add_edge(START, "write")
    return builder


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    def who(headers: Any) -> Principal:
        return Principal(headers.get("x-user"))

    async def same(state: State) -> State:
        del state
        return {"messages": [AIMessage("the same", id="fixed-id")]}

    repeating: Any = StateGraph(State)
    repeating.add_node("same", same)
    repeating.add_edge(START, "same")
    graphs = {"same": repeating, "research": writer(), "writer": writer(), "agent": agent, "said": said}
    with serving(create_app(chatledger.open_async("memory:"), graphs=graphs, authenticate=who)) as url:
        yield url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Any]:
    client: Any
    with get_sync_client(url=url, headers={"x-user": "ada"}) as client:
        yield client


@pytest.fixture(scope="module")
def api(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url + API, headers={"x-user": "ada"}, timeout=30) as api:
        yield api


def named(chat_id: str, message_id: str) -> str:
    """An id of a message that no other chat has; those of answers stay."""
    return message_id if "-" in message_id else f"{chat_id}.{message_id}"


def add(api: httpx.Client, chat_id: str, message_id: str, text: str, **more: Any) -> None:
    api.post("/chats", json={"id": chat_id})
    messages = [{"name": "user", "data": text, "id": named(chat_id, message_id), **more}]
    way = "nodes" if "parent_id" in more else "messages"
    answer = api.post(f"/chats/{chat_id}/{way}", json={"messages": messages})
    assert answer.status_code == 201, answer.text


def texts(api: httpx.Client, chat_id: str, branch: str | None = None) -> list[str]:
    page = api.get(f"/chats/{chat_id}/messages", params={} if branch is None else {"branch": branch})
    return [entry["message"]["text"] for entry in page.json()["entries"]]


def ask(client: Any, chat_id: str, assistant_id: str, trigger: str, *references: str, **more: Any) -> str:
    """The id of a run that a message sets off, when it has ended."""
    messages = [named(chat_id, one) for one in (trigger, *references)]
    configurable = {"trigger_message_id": messages[0], "reference_message_ids": messages[1:], "tone": "plain"}
    run = client.runs.create(chat_id, assistant_id, config={"configurable": configurable}, **more)
    client.runs.join(chat_id, run["run_id"])
    return str(run["run_id"])


def answer_of(api: httpx.Client, chat_id: str, run_id: str) -> str:
    """The id of the message that a run produced."""
    return str(api.get(f"/chats/{chat_id}/runs/{run_id}").json()["message_id"])


def regeneration(api: httpx.Client, chat_id: str, regeneration_id: str, until: str) -> list[tuple[str, str]]:
    """The steps, when none is at work any more and the last one has a status."""
    steps: list[tuple[str, str]] = []
    for _ in range(500):
        found = api.get(f"/chats/{chat_id}/regenerations/{regeneration_id}").json()["steps"]
        steps = [(step["repeats"]["assistant_id"], step["status"]) for step in found]
        if steps[-1][1] == until and not {"ready", "pending", "running"} & {status for _, status in steps}:
            return steps
        time.sleep(0.02)
    raise AssertionError(steps)


def test_a_message_sets_a_run_off_and_gets_its_answer(client: Any, api: httpx.Client) -> None:
    """NS-35, NS-37: trigger, run and answer are linked; the answer and the end of the run are one commit."""
    add(api, "linked", "question", "why?")
    run_id = ask(client, "linked", "research", "question")
    record = api.get(f"/chats/linked/runs/{run_id}").json()
    assert (record["status"], record["trigger_message_id"]) == ("completed", "linked.question")
    assert texts(api, "linked") == ["why?", "plain: why?"]
    answer = api.get(f"/messages/{record['message_id']}").json()
    assert (answer["agent_id"], answer["reply_to"], answer["name"]) == ("research", "linked.question", "assistant")
    state = client.threads.get_state("linked")
    assert [one["id"] for one in state["values"]["messages"]] == ["linked.question", answer["id"]]
    assert record["checkpoint_id"] == state["checkpoint"]["checkpoint_id"]


def test_an_answer_whose_id_is_taken_gets_that_of_its_run(client: Any, api: httpx.Client) -> None:
    """As a state that was copied has the messages of another chat."""
    add(api, "same", "one", "why?")
    for chat_id in ("same", "other"):
        add(api, chat_id, "again", "again")
    first = ask(client, "same", "same", "one")
    second = ask(client, "other", "same", "again")
    assert (answer_of(api, "same", first), answer_of(api, "other", second)) == ("fixed-id", second)
    assert texts(api, "other") == ["again", "the same"]


def test_what_has_no_answer_adds_no_message(client: Any, api: httpx.Client) -> None:
    """A run that waits for somebody, and one that failed; texts of a function are an answer."""
    add(api, "silent", "question", "ask")
    ask(client, "silent", "agent", "question")
    assert texts(api, "silent") == ["ask"]
    add(api, "silent", "boom", "boom")
    run = client.runs.create("silent", "research", config={"configurable": {"trigger_message_id": "silent.boom"}})
    assert client.runs.join("silent", run["run_id"]) == {
        "__error__": {"error": "ValueError", "message": "boom happened"}
    }
    assert texts(api, "silent") == ["ask", "boom"]
    ask(client, "silent", "said", "boom")
    assert texts(api, "silent") == ["ask", "boom", "Hello"]


def test_messages_that_are_not_there_are_refused(client: Any, api: httpx.Client) -> None:
    add(api, "refused", "question", "why?")
    for configurable, error in (
        ({"trigger_message_id": "absent"}, NotFoundError),
        ({"trigger_message_id": "refused.question", "reference_message_ids": ["absent"]}, NotFoundError),
        ({"trigger_message_id": 1}, UnprocessableEntityError),
        ({"reference_message_ids": "question"}, UnprocessableEntityError),
    ):
        with pytest.raises(error):
            client.runs.create("refused", "research", config={"configurable": configurable})
    assert client.runs.list("refused") == []


def test_an_edit_repeats_the_runs_of_registered_graphs(client: Any, url: str, api: httpx.Client) -> None:
    """NS-41 to NS-46: planned, begun, and carried out one after the other, up to what has to be approved; then that too."""
    add(api, "trip", "ask", "by train?")
    first = ask(client, "trip", "research", "ask")
    add(api, "trip", "order", "plan it")
    second = ask(client, "trip", "writer", "order", answer_of(api, "trip", first), metadata={"mine": 1})
    add(api, "trip", "more", "shorter")
    ask(client, "trip", "writer", "more", answer_of(api, "trip", second))
    assert texts(api, "trip")[3] == "plain: plain: by train? / plan it"

    add(api, "trip", "edited", "by bus?", parent_id=None)
    plan = api.get("/chats/trip/regeneration-plan", params={"message_id": "trip.ask", "max_cascade": 2}).json()
    assert [run["assistant_id"] for run in plan["runs"]] == ["research", "writer", "writer"]
    body = {"plan": plan, "new_message_id": "trip.edited", "id": "edit"}
    branch = api.post("/chats/trip/regenerations", json=body).json()["branch"]
    path = "/threads/trip/regenerations/edit/runs"
    with httpx.Client(base_url=url, headers={"x-user": "ada"}) as raw:
        begun = raw.post(path)
        assert begun.status_code == 200, begun.text
        (run,) = begun.json()
        assert run["assistant_id"] == "research"
        steps = regeneration(api, "trip", "edit", "awaiting_approval")
        assert steps == [("research", "completed"), ("writer", "completed"), ("writer", "awaiting_approval")]
        assert raw.post(path).json() == []
        api.post("/chats/trip/regenerations/edit/approve")
        assert [one["assistant_id"] for one in raw.post(path).json()] == ["writer"]
    assert regeneration(api, "trip", "edit", "completed")[-1] == ("writer", "completed")

    assert texts(api, "trip", branch) == [
        "by bus?",
        "plain: by bus?",
        "plan it",
        "plain: plain: by bus? / plan it",
        "shorter",
        # The writer remembers what it repeated, not what it said before the edit.
        "plain: plain: by bus? / plan it / plain: plain: by bus? / plan it / shorter",
    ]
    assert texts(api, "trip")[:2] == ["by train?", "plain: by train?"]
    annotations = {one["message_id"]: one["annotation"] for one in api.get("/chats/trip/annotations").json()}
    replaced = annotations[answer_of(api, "trip", first)]["replaced_by"]
    assert replaced == answer_of(api, "trip", run["run_id"])
    repeated = [one for one in client.runs.list("trip", limit=100) if one["metadata"].get("mine")]
    assert len(repeated) == 2


def test_a_step_that_failed_is_repeated_when_it_is_asked_for(client: Any, url: str, api: httpx.Client) -> None:
    """A run that an application executes itself is left to it."""
    add(api, "failing", "ask", "fine")
    ask(client, "failing", "research", "ask")
    add(api, "failing", "edited", "boom", parent_id=None)
    own = {"run_id": "own", "thread_id": "elsewhere", "assistant_id": "mine", "trigger_message_id": "failing.ask"}
    api.post("/chats/failing/runs", json={**own, "answer": {"name": "assistant", "data": "own"}})
    plan = api.get("/chats/failing/regeneration-plan", params={"message_id": "failing.ask"}).json()
    api.post("/chats/failing/regenerations", json={"plan": plan, "new_message_id": "failing.edited", "id": "edit"})
    with httpx.Client(base_url=url, headers={"x-user": "ada"}) as raw:
        for _ in range(2):
            (run,) = raw.post("/threads/failing/regenerations/edit/runs").json()
            assert (run["assistant_id"], run["status"]) == ("research", "pending")
            assert "boom happened" in str(client.runs.join("failing", run["run_id"]))
        assert raw.post("/threads/failing/regenerations/absent/runs").status_code == 404
        assert raw.post("/threads/absent/regenerations/edit/runs").status_code == 404
    with httpx.Client(base_url=url, headers={"x-user": "bob"}) as raw:
        assert raw.post("/threads/failing/regenerations/edit/runs").status_code == 404


def test_runs_of_applications_are_left_alone(client: Any, api: httpx.Client) -> None:
    """They are listed, neither ended nor waited for: nobody here knows whether they still go on."""
    add(api, "own", "ask", "why?")
    own = {"run_id": "r1", "thread_id": "own", "assistant_id": "research", "trigger_message_id": "own.ask"}
    assert api.post("/chats/own/runs", json=own).status_code == 201
    assert [run["status"] for run in client.runs.list("own")] == ["running"]
    with pytest.raises(Exception, match="not begun over this API"):
        client.runs.cancel("own", "r1")
    ask(client, "own", "research", "ask")
    assert client.runs.get("own", "r1")["status"] == "running"
    ended = api.post("/chats/own/runs/r1/complete", json={"answer": {"name": "assistant", "data": "done"}})
    assert ended.json()["status"] == "completed"
    assert client.runs.join("own", "r1") == {}


def test_memory_follows_the_branch(client: Any, api: httpx.Client) -> None:
    """NS-49: on a fork the agent remembers what stands there, on a branch without it nothing; the old line stays."""
    add(api, "forked", "q1", "hello")
    ask(client, "forked", "research", "q1")
    head = api.get("/chats/forked/messages").json()["entries"][-1]["message"]["id"]
    add(api, "forked", "q2", "my name is Ada")
    ask(client, "forked", "research", "q2")
    old = client.threads.get_state("forked")["checkpoint"]
    api.post("/chats/forked/branches", json={"head_message_id": head, "activate": True})
    add(api, "forked", "q3", "who am I?")
    ask(client, "forked", "research", "q3")
    api.post("/chats/forked/branches", json={"name": "new", "head_message_id": None, "activate": True})
    add(api, "forked", "q4", "anew")
    ask(client, "forked", "research", "q4")

    assert ["hello", "plain: hello", "who am I?", "plain: hello / plain: hello / who am I?"] == texts(
        api, "forked", "main-v2"
    )
    assert ["anew", "plain: anew"] == texts(api, "forked", "new")
    shown = client.threads.get_state("forked", checkpoint=old)["values"]["messages"]
    assert "my name is Ada" in [message["content"] for message in shown]


def test_runs_that_remember_a_stale_one_are_repeated(client: Any, api: httpx.Client) -> None:
    """NS-42, NS-46: by its memory; what is given to the agent on the new branch are the texts of that branch."""
    add(api, "names", "q1", "my name is Ada")
    first = ask(client, "names", "research", "q1")
    add(api, "names", "q2", "nice weather")
    second = ask(client, "names", "research", "q2")
    add(api, "names", "q3", "who am I?")
    ask(client, "names", "research", "q3", answer_of(api, "names", first))
    add(api, "names", "new", "my name is Grace", parent_id=None)
    plan = api.get("/chats/names/regeneration-plan", params={"message_id": "names.q1"}).json()
    assert [("trigger", None), ("memory", first), ("reference", second)] == [
        (run["cause"], run.get("remembers")) for run in plan["runs"]
    ]
    edit = api.post("/chats/names/regenerations", json={"plan": plan, "new_message_id": "names.new"}).json()
    client.http.post(f"/threads/names/regenerations/{edit['id']}/runs", json=None)
    regeneration(api, "names", edit["id"], "completed")

    shown = texts(api, "names", edit["branch"])
    assert ["my name is Grace", "nice weather", "who am I?"] == shown[::2]
    assert not [text for text in shown if "Ada" in text]
    assert "plain: my name is Grace / plain: my name is Grace / nice weather" == shown[3]

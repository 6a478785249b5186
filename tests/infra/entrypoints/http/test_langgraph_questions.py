"""Runs that ask: they wait, a resume goes on with them, and the answer comes into the chat; whatever else happens on the thread."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import httpx
import pytest
from langgraph.graph import END
from langgraph_sdk import get_sync_client
from tests.support.http_world import API, serving
from tests.support.killed_server import KilledServer
from tests.support.run_graphs import BEGUN, GATES, asking, say

import chatledger
from chatledger import AsyncLedger
from chatledger.langgraph import LedgerSaver
from chatledger.server import create_app

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chatledger.runs import MessageRun


class World:
    """A server, LangGraph's client of it, and the native API, with the assistants `a` and `b`."""

    def __init__(self, ledger: AsyncLedger, url: str) -> None:
        self.shared, self.ledger = ledger, ledger.blocking()
        self.client: Any = get_sync_client(url=url)
        self.raw = httpx.Client(base_url=url, timeout=30)
        for assistant_id in ("a", "b"):
            self.client.assistants.create("asking", assistant_id=assistant_id, if_exists="do_nothing")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.raw.close()
        self.client.close()

    def say(self, chat_id: str, text: str, message_id: str | None = None) -> str:
        """Append what a user says, to a new chat if there is none."""
        if self.ledger.get_chat(chat_id) is None:
            self.ledger.create_chat(chat_id, "local")
        (message,) = self.ledger.append(chat_id, [chatledger.user(text, id=message_id)])
        return message.id

    def run(self, chat_id: str, assistant_id: str = "a", trigger: str | None = None, **body: Any) -> str:
        """The id of a run that is over."""
        if trigger is not None:
            body["config"] = {"configurable": {"trigger_message_id": trigger}}
        run = self.client.runs.create(chat_id, assistant_id, **body)
        self.client.runs.join(chat_id, run["run_id"])
        return str(run["run_id"])

    def resume(self, chat_id: str, answer: Any, **body: Any) -> str:
        return self.run(chat_id, command={"resume": answer}, **body)

    def record(self, chat_id: str, run_id: str) -> MessageRun:
        record = self.ledger.get_run(chat_id, run_id)
        assert record is not None
        return record

    def status(self, chat_id: str, run_id: str) -> str:
        return self.record(chat_id, run_id).status

    def texts(self, chat_id: str, branch: str | None = None) -> list[str]:
        return [message.text for message in self.ledger.get_messages(chat_id, branch=branch)]

    def ends(self, chat_id: str, run_id: str) -> Any:
        """The data of the last event of a run."""
        *_, last = self.client.runs.join_stream(chat_id, run_id)
        assert last.event == "end"
        return last.data


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    ledger = chatledger.open_async("memory:")
    with serving(create_app(ledger, graphs={"asking": asking()})) as url, World(ledger, url) as world:
        yield world


def test_the_answer_to_a_question_completes_the_run_that_asked(world: World) -> None:
    """NS-50: for clients both runs are a success; the second has the stream and the state, the first the message and its answer."""
    world.say("one", "ask", "one 1")
    asked = world.run("one", trigger="one 1")
    record = world.record("one", asked)
    assert (record.status, record.message_id, record.is_ended) == ("waiting", None, False)
    assert world.ends("one", asked) == {"run_id": asked, "checkpoint_id": record.checkpoint_id, "status": "waiting"}
    assert world.client.runs.get("one", asked)["status"] == "success"
    assert world.client.threads.get("one")["status"] == "interrupted"

    resumed = world.resume("one", "yes")
    assert world.texts("one") == ["ask", "ask / yes"]
    record, answer = world.record("one", asked), world.ledger.get_messages("one")[-1]
    assert (record.status, record.message_id, record.trigger_message_id) == ("completed", answer.id, "one 1")
    assert (answer.agent_id, answer.reply_to) == ("a", "one 1")
    own = world.record("one", resumed)
    assert (own.status, own.message_id, own.trigger_message_id) == ("completed", None, None)
    state = world.client.threads.get_state("one")["checkpoint"]["checkpoint_id"]
    assert record.checkpoint_id == state == world.ends("one", resumed)["checkpoint_id"]
    assert (
        own.checkpoint_id is None
    )  # what the agent remembers is of the run that asked: a plan has that, and not this one
    assert world.client.runs.join("one", resumed)["messages"][-1]["content"] == "ask / yes"
    assert [run["status"] for run in world.client.runs.list("one")] == ["success", "success"]
    assert world.client.threads.get("one")["status"] == "idle"


def test_a_run_may_ask_again(world: World) -> None:
    """In the same node, where the state has not moved; and one that asked is not told of as of the next question."""
    world.say("twice", "ask ask", "twice 1")
    asked = world.run("twice", trigger="twice 1")
    second = world.resume("twice", "yes")
    assert world.status("twice", asked) == "waiting"
    assert (world.ends("twice", second)["status"], world.status("twice", second)) == ("waiting", "completed")
    assert world.client.runs.join("twice", second)["__interrupt__"][0]["value"] == "question 1"
    world.resume("twice", "no")
    assert world.texts("twice") == ["ask ask", "ask ask / yes / no"]
    assert world.status("twice", asked) == "completed"


def test_what_was_said_before_the_question_is_the_answer_where_nothing_follows(world: World) -> None:
    world.say("plan", "plan to ask", "plan 1")
    world.run("plan", trigger="plan 1")
    assert world.texts("plan") == ["plan to ask"]
    world.resume("plan", "yes")
    assert world.texts("plan") == ["plan to ask", "let me see"]


def test_an_answer_that_fails_or_is_ended_may_be_brought_again(world: World) -> None:
    world.say("again", "ask", "again 1")
    asked = world.run("again", trigger="again 1")
    failed = world.client.runs.create("again", "a", command={"resume": "boom flaw"})
    assert "boom happened" in str(world.client.runs.join("again", failed["run_id"]))
    assert (world.status("again", asked), world.status("again", failed["run_id"])) == ("waiting", "error")
    assert world.texts("again") == ["ask"]
    GATES["flaw"].set()
    world.run("again", input=None)  # the graph has the answer
    assert (world.status("again", asked), world.texts("again")) == ("completed", ["ask", "ask / boom flaw"])

    world.say("ended", "ask", "ended 1")
    asked = world.run("ended", trigger="ended 1")
    for action in ("interrupt", "rollback"):
        gate = f"{action} of an answer"
        run = world.client.runs.create("ended", "a", command={"resume": f"wait {gate}"})
        assert BEGUN[gate].wait(10)
        assert world.status("ended", asked) == "running"
        assert world.client.threads.get("ended")["status"] == "busy"
        world.client.runs.cancel("ended", run["run_id"], wait=True, action=action)
        assert world.status("ended", asked) == "waiting"
        GATES[gate].set()
    world.say("ended", "something else")  # what is said meanwhile stands before the answer
    world.resume("ended", "yes")
    assert world.texts("ended")[:2] == ["ask", "something else"]
    assert world.texts("ended")[2].startswith("ask / ")


@pytest.mark.guard
def test_an_answer_that_is_ended_as_it_starts_leaves_the_question(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command of a ledger is carried out also where whoever waits for it is cancelled: the run that asked is not left at work."""
    world.say("starts", "ask", "starts 1")
    asked, starting, start = world.run("starts", trigger="starts 1"), threading.Event(), AsyncLedger.start_run

    async def start_late(ledger: AsyncLedger, chat_id: str, run_id: str) -> MessageRun:
        async def late() -> MessageRun:
            if run_id == asked:
                starting.set()
                await asyncio.sleep(0.3)
            return await start(ledger, chat_id, run_id)

        return await asyncio.shield(late())

    monkeypatch.setattr(AsyncLedger, "start_run", start_late)
    run = world.client.runs.create("starts", "a", command={"resume": "yes"})
    assert starting.wait(10)
    world.client.runs.cancel("starts", run["run_id"], wait=True)
    time.sleep(0.5)
    assert (world.status("starts", asked), world.status("starts", run["run_id"])) == ("waiting", "error")
    world.resume("starts", "yes")
    assert world.texts("starts") == ["ask", "ask / yes"]


def test_an_answer_is_that_of_the_run_that_asked_whatever_it_names(world: World) -> None:
    """Its trigger again, the checkpoint that the client sees, or an update of the state in between."""
    for number, more in enumerate(("", "trigger", "checkpoint", "update")):
        chat_id = f"named {number}"
        world.say(chat_id, "ask", f"named {number}")
        asked = world.run(chat_id, trigger=f"named {number}")
        body: dict[str, Any] = {}
        if more == "trigger":
            body["trigger"] = f"named {number}"
        if more == "checkpoint":
            body["checkpoint"] = world.client.threads.get_state(chat_id)["checkpoint"]
        if more == "update":
            world.client.threads.update_state(chat_id, {"n": 1}, as_node="think")
        resumed = world.resume(chat_id, "yes", **body)
        assert (world.status(chat_id, asked), world.texts(chat_id)) == ("completed", ["ask", "ask / yes"]), more
        runs = world.ledger.runs(chat_id, trigger_message_id=f"named {number}")
        assert [run.run_id for run in runs] == [asked], more
        assert world.record(chat_id, resumed).trigger_message_id is None


def test_a_fork_before_the_question_is_no_answer(world: World) -> None:
    world.say("fork", "hi", "fork 1")
    world.run("fork", trigger="fork 1")
    first = world.client.threads.get_state("fork")["checkpoint"]
    world.say("fork", "ask", "fork 2")
    asked = world.run("fork", trigger="fork 2")
    world.run("fork", input=say("other"), checkpoint=first)
    assert world.status("fork", asked) == "error"
    assert world.texts("fork") == ["hi", "hi", "ask"]


def test_a_new_message_gives_the_question_up(world: World) -> None:
    """As in LangGraph. Not a run that failed before it wrote anything, or that was undone; nor a run of another agent."""
    world.say("new", "ask", "new 1")
    asked = world.run("new", trigger="new 1")
    world.say("new", "hi", "new 2")
    world.run("new", "b", trigger="new 2")
    late = world.client.runs.create("new", "a", input=say("late"), after_seconds=3600)
    world.client.runs.cancel("new", late["run_id"], wait=True)
    undone = world.client.runs.create("new", "a", input=say("late"), after_seconds=3600)
    world.client.runs.cancel("new", undone["run_id"], wait=True, action="rollback")
    assert world.status("new", asked) == "waiting"

    run_id = world.run("new", trigger="new 2")
    record = world.record("new", asked)
    assert record.status == "error"
    assert record.metadata["run:error"] == {
        "error": "QuestionAbandoned",
        "message": f"run {run_id} went on without an answer",
    }
    assert world.client.runs.get("new", asked)["status"] == "success"
    assert world.client.threads.get("new")["status"] == "idle"
    assert world.texts("new") == ["ask", "hi", "hi", "hi"]
    world.resume("new", "too late")  # nothing asks: the graph has nothing to do
    assert world.texts("new") == ["ask", "hi", "hi", "hi"]


def test_a_question_that_is_ignored_is_given_up(world: World) -> None:
    """As by an update of the state to its end, which is how Agent Inbox does it."""
    world.say("ignored", "ask", "ignored 1")
    asked = world.run("ignored", trigger="ignored 1")
    world.client.threads.update_state("ignored", {"n": 1}, as_node="think")
    assert world.status("ignored", asked) == "waiting"
    world.client.threads.update_state("ignored", None, as_node=END)
    assert (world.status("ignored", asked), world.client.threads.get("ignored")["status"]) == ("error", "idle")


def test_a_breakpoint_waits_as_a_question_does(world: World) -> None:
    """Whoever goes on with neither an input nor a command goes on with the run."""
    world.say("break", "hi", "break 1")
    asked = world.run("break", trigger="break 1", interrupt_before=["act"])
    assert world.status("break", asked) == "waiting"
    assert world.client.threads.get("break")["status"] == "interrupted"
    world.run("break", input=None)
    assert (world.status("break", asked), world.texts("break")) == ("completed", ["hi", "hi"])


def test_a_thread_is_interrupted_as_long_as_any_agent_asks(world: World) -> None:
    """While another one is at work, and after it; whoever answers by the thread's protocol reaches the one that asked."""
    threads = world.client.threads
    threads.create(thread_id="both")
    world.run("both", input=say("ask"))
    (task_id,) = threads.get("both")["interrupts"]
    world.run("both", "b", input=say("ask ask"))
    world.run("both", "b", command={"resume": "one"})
    gate = "b is at work"
    at_work = world.client.runs.create("both", "b", command={"resume": f"wait {gate}"})
    assert BEGUN[gate].wait(10)
    found = threads.get("both")
    assert (found["status"], list(found["interrupts"])) == ("interrupted", [task_id])
    GATES[gate].set()
    world.client.runs.join("both", at_work["run_id"])
    (found,) = threads.search(status="interrupted", ids=["both"])
    assert found["metadata"]["assistant_id"] == "b"
    assert found["values"]["messages"][-1]["content"] == f"ask ask / one / wait {gate}"
    ((question,),) = found["interrupts"].values()
    assert question["value"] == "question 0"
    params = {"interrupt_id": question["id"], "response": "yes"}
    answer = world.raw.post("/threads/both/commands", json={"id": 1, "method": "input.respond", "params": params})
    world.client.runs.join("both", answer.json()["result"]["run_id"])
    state = threads.get_state("both", checkpoint={"checkpoint_ns": "assistant:a"})
    assert state["values"]["messages"][-1]["content"] == "ask / yes"
    assert (threads.get("both")["status"], threads.get("both")["interrupts"]) == ("idle", {})
    assert threads.search(status="interrupted", ids=["both"]) == []


def test_a_run_of_an_application_that_asks_is_answered_over_http(world: World) -> None:
    """Its record says that it waits; what is executed in process is on the same ledger."""
    world.say("mine", "ask", "mine 1")
    graph = asking().compile(checkpointer=LedgerSaver(world.shared).for_assistant("a"))
    world.ledger.record_run("mine", "r", thread_id="mine", assistant_id="a", trigger_message_id="mine 1")

    async def ask() -> None:
        await graph.ainvoke(say("ask"), {"configurable": {"thread_id": "mine"}})

    asyncio.run(ask())
    world.ledger.suspend_run("mine", "r")
    assert world.client.threads.get("mine")["status"] == "interrupted"
    world.resume("mine", "yes")
    assert (world.status("mine", "r"), world.texts("mine")) == ("completed", ["ask", "ask / yes"])


def edit(world: World, chat_id: str, old: str, text: str) -> tuple[str, str]:
    """Begin to repeat what followed from a message that is edited; the path of the regeneration, and the branch."""
    new_id = f"{old} edited"
    world.ledger.add_messages(chat_id, [chatledger.NewMessage("user", text, id=new_id, parent_id=None)])
    plan = world.ledger.plan_regeneration(chat_id, old)
    begun = world.ledger.begin_regeneration(plan, new_message_id=new_id)
    assert begun.branch is not None
    return begun.id, begun.branch


def steps(world: World, chat_id: str, regeneration_id: str, *wanted: str) -> list[str]:
    """The statuses of the steps, when they are those that are wanted, or after a while."""
    found: list[str] = []
    for _ in range(1000):
        shown = world.raw.get(f"{API}/chats/{chat_id}/regenerations/{regeneration_id}").json()["steps"]
        found = [step["status"] for step in shown]
        if found == list(wanted):
            break
        time.sleep(0.01)
    return found


def book(world: World, chat_id: str) -> tuple[str, str]:
    """A conversation whose first answer has no question in it; edited, so that it has one. Its regeneration and branch, begun."""
    first = world.run(chat_id, trigger=world.say(chat_id, "book it"))
    world.say(chat_id, "sum it up", f"{chat_id} sum")
    answer = world.record(chat_id, first).message_id
    configurable = {"trigger_message_id": f"{chat_id} sum", "reference_message_ids": [answer]}
    world.run(chat_id, "b", config={"configurable": configurable})
    assert world.texts(chat_id) == ["book it", "book it", "sum it up", "sum it up"]
    trigger = world.record(chat_id, first).trigger_message_id
    assert trigger is not None
    regeneration_id, branch = edit(world, chat_id, trigger, "book it, but ask")
    world.raw.post(f"/threads/{chat_id}/regenerations/{regeneration_id}/runs")
    assert steps(world, chat_id, regeneration_id, "asking", "waiting") == ["asking", "waiting"]
    return regeneration_id, branch


def test_a_cascade_stops_at_a_question_and_goes_on_with_the_answer(world: World) -> None:
    """NS-50. It is not repeated meanwhile, and what fails to bring the answer leaves it asking."""
    regeneration_id, branch = book(world, "cascade")
    assert world.raw.post(f"/threads/cascade/regenerations/{regeneration_id}/runs").json() == []
    world.resume("cascade", "boom cascade")
    assert steps(world, "cascade", regeneration_id, "asking", "waiting") == ["asking", "waiting"]
    assert world.texts("cascade", branch) == ["book it, but ask"]
    GATES["cascade"].set()
    world.run("cascade", input=None)
    assert steps(world, "cascade", regeneration_id, "completed", "completed") == ["completed", "completed"]
    assert world.texts("cascade", branch) == [
        "book it, but ask",
        "book it, but ask / boom cascade",
        "sum it up",
        "sum it up",
    ]


def test_a_plan_has_the_run_that_asked_and_not_the_one_that_brought_the_answer(world: World) -> None:
    """Whether by its message or by what its agent remembers: repeated beside it, the answer would be asked for twice."""
    world.run("planned", trigger=world.say("planned", "hello", "planned 1"))
    world.run("planned", trigger=world.say("planned", "ask", "planned 2"))
    resumed = world.resume("planned", "yes")
    world.run("planned", trigger=world.say("planned", "bye", "planned 3"))
    for edited in ("planned 1", "planned 2"):
        planned = [run.run_id for run in world.ledger.plan_regeneration("planned", edited).runs]
        assert planned
        assert resumed not in planned


@pytest.mark.guard
def test_a_question_of_a_cascade_that_is_given_up_is_repeated(world: World) -> None:
    regeneration_id, branch = book(world, "given-up")
    world.run("given-up", input=say("hi"))
    assert steps(world, "given-up", regeneration_id, "error", "waiting") == ["error", "waiting"]
    (again,) = world.raw.post(f"/threads/given-up/regenerations/{regeneration_id}/runs").json()
    world.client.runs.join("given-up", again["run_id"])
    world.resume("given-up", "yes")
    assert steps(world, "given-up", regeneration_id, "completed", "completed") == ["completed", "completed"]
    assert world.texts("given-up", branch)[1] == "book it, but ask / yes"


@pytest.mark.guard
def test_another_server_brings_the_answer(world: World) -> None:
    """Of a question that was asked here, in a chat and in a cascade; and it goes on with the cascade."""
    regeneration_id, branch = book(world, "other server")
    with serving(create_app(world.shared, graphs={"asking": asking()})) as url, World(world.shared, url) as other:
        run = other.client.runs.create("other server", "a", command={"resume": "wait other server"})
        assert BEGUN["other server"].wait(10)
        assert steps(world, "other server", regeneration_id, "running", "waiting") == ["running", "waiting"]
    # It was stopped with the answer in its hands.
    assert world.client.runs.get("other server", run["run_id"])["status"] == "error"
    assert steps(world, "other server", regeneration_id, "asking", "waiting") == ["asking", "waiting"]
    GATES["other server"].set()
    with serving(create_app(world.shared, graphs={"asking": asking()})) as url, World(world.shared, url) as other:
        other.resume("other server", "wait other server")
        assert steps(other, "other server", regeneration_id, "completed", "completed") == ["completed", "completed"]
    assert world.client.threads.get("other server")["status"] == "idle"
    assert world.texts("other server", branch)[-1] == "sum it up"


@pytest.mark.soak
def test_a_question_outlives_the_servers_that_are_killed(tmp_path: Path) -> None:
    """While it is asked, and while the answer is brought: it is brought again, and the cascade goes on."""
    names = ("a", "b")
    location = f"sqlite:///{tmp_path / 'ledger.db'}"
    server = KilledServer(location, *(f"{name}=tests.support.run_graphs:asking" for name in names))
    with server, httpx.Client(base_url=server.url, timeout=30) as http:

        def post(path: str, **body: Any) -> Any:
            answer = http.post(path, json=body)
            assert answer.is_success, answer.text
            return answer.json() if answer.content else None

        def ask(assistant_id: str, message_id: str, text: str, *references: str) -> Any:
            messages = [{"name": "user", "data": text, "id": message_id}]
            post(f"{API}/chats/c/messages", messages=messages)
            configurable = {"trigger_message_id": message_id, "reference_message_ids": references}
            post("/threads/c/runs/wait", assistant_id=assistant_id, config={"configurable": configurable})
            return http.get(f"{API}/chats/c/runs", params={"trigger_message_id": message_id}).json()[-1]

        def statuses(*wanted: str) -> list[str]:
            found: list[str] = []
            for _ in range(600):
                shown = http.get(f"{API}/chats/c/regenerations/edit").json()["steps"]
                found = [step["status"] for step in shown]
                if found == list(wanted):
                    break
                time.sleep(0.05)
            return found

        post(f"{API}/chats", id="c")
        first = ask("a", "M1", "book it")
        ask("b", "M2", "sum it up", first["message_id"])
        edited = {"name": "user", "data": "book it, but ask", "id": "M1b", "parent_id": None}
        post(f"{API}/chats/c/nodes", messages=[edited])
        plan = http.get(f"{API}/chats/c/regeneration-plan", params={"message_id": "M1"}).json()
        branch = post(f"{API}/chats/c/regenerations", plan=plan, new_message_id="M1b", id="edit")["branch"]
        post("/threads/c/regenerations/edit/runs")
        assert statuses("asking", "waiting") == ["asking", "waiting"]

        server.kill()
        server.start()
        assert statuses("asking", "waiting") == ["asking", "waiting"]
        assert http.get("/threads/c").json()["status"] == "interrupted"
        lost = post("/threads/c/runs", assistant_id="a", command={"resume": "wait slow"})
        assert statuses("running", "waiting") == ["running", "waiting"]

        server.kill()
        server.start("slow")
        post("/threads/c/runs/wait", assistant_id="a", command={"resume": "wait slow"})
        assert statuses("completed", "completed") == ["completed", "completed"]
        assert http.get(f"/threads/c/runs/{lost['run_id']}").json()["status"] == "error"
        shown = http.get(f"{API}/chats/c/messages", params={"branch": branch}).json()["entries"]
        assert [entry["message"]["text"] for entry in shown] == [
            "book it, but ask",
            "book it, but ask / wait slow",
            "sum it up",
            "sum it up",
        ]
        assert http.get("/threads/c").json()["status"] == "idle"

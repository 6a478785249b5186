"""
The program that runs on both servers: some 280 calls of `langgraph_sdk`, `RemoteGraph` and plain HTTP, by area, each on threads of its own.

An area is a function that makes calls by a `Recorder`, which keeps the outcome of each under a name. Where a run has to be at work, it
holds at a gate of the graph (`agent.py`), so nothing here depends on which of two is faster.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.pregel.remote import RemoteGraph
from langgraph.types import Command, StreamMode

from .recording import NO_CHECKPOINT, NO_THREAD, Recorder

NO_ID: Final = "no-uuid"
ORIGIN: Final = "http://localhost:3000"
MODES: Final = ("values", "updates", "messages", "messages-tuple", "debug", "tasks", "checkpoints", "events", "custom")


def say(text: str) -> dict[str, Any]:
    """Return the input of a run."""
    return {"messages": [{"role": "user", "content": text}]}


async def new_thread(at: Recorder) -> str:
    """Create a thread."""
    thread = await at.client.threads.create()
    return thread["thread_id"]


async def ran(at: Recorder, *texts: str) -> str:
    """Create a thread on which these were said and answered."""
    thread = await new_thread(at)
    for text in texts:
        await at.client.runs.wait(thread, "agent", input=say(text))
    return thread


async def held(at: Recorder, thread: str, gate: str, **options: Any) -> str:
    """Begin a run that holds at a gate. Returns its id."""
    run = await at.client.runs.create(thread, "agent", input=say(f"hold {gate}"), **options)
    await at.begun(gate)
    return run["run_id"]


async def server(at: Recorder) -> None:
    """Ask what the server is, and what is not there."""
    await at.http("ok", "GET", "/ok")
    await at.http("info", "GET", "/info")
    for path in ("/docs", "/openapi.json", "/metrics"):
        await at.http(path, "GET", path, body=False)
    await at.http("no such path", "GET", "/nowhere")
    await at.http("no such method", "PATCH", "/runs/wait")
    preflight = {"origin": ORIGIN, "access-control-request-method": "POST"}
    for path in ("/threads", "/runs/stream"):
        await at.http(f"preflight of {path}", "OPTIONS", path, headers=preflight, body=False)


async def assistants(at: Recorder) -> None:
    """Read, make, change and delete assistants."""
    client, default = at.client.assistants, at.assistant_id
    await at.call("search", client.search(metadata={"created_by": "system"}))
    await at.call("search by graph", client.search(graph_id="agent", limit=1, sort_by="created_at", sort_order="asc"))
    await at.call("search with no such graph", client.search(graph_id="nope"))
    await at.call("count", client.count(graph_id="agent"))
    for name, assistant in {"the default": default, "a graph": "agent", "no id": NO_ID, "none": NO_THREAD}.items():
        await at.call(f"get {name}", client.get(assistant))
    for xray in (False, True, 1):
        await at.call(f"graph, xray {xray!r}", client.get_graph(default, xray=xray))
    await at.call("graph of none", client.get_graph(NO_THREAD))
    await at.call("schemas", client.get_schemas(default))
    await at.call("schemas of none", client.get_schemas(NO_THREAD))
    await at.call("subgraphs", client.get_subgraphs(default))
    await at.call("subgraphs of a namespace", client.get_subgraphs(default, namespace="research", recurse=True))
    await at.call("subgraphs of no namespace", client.get_subgraphs(default, namespace="nope"))

    config: Any = {"configurable": {"tone": "harsh"}, "recursion_limit": 30, "tags": ["a"]}
    created = await at.call(
        "create", client.create("agent", config, name="critic", metadata={"team": "red"}, description="Says no")
    )
    critic = created["assistant_id"]
    await at.call("create with context", client.create("agent", context={"tone": "kind"}, name="friend"))
    both: Any = {"configurable": {"tone": "harsh"}}
    await at.call("create with context and configurable", client.create("agent", both, context={"tone": "kind"}))
    await at.call("create again", client.create("agent", assistant_id=critic))
    await at.call("create again, do nothing", client.create("agent", assistant_id=critic, if_exists="do_nothing"))
    await at.call("create on no graph", client.create("nope"))
    await at.call("update", client.update(critic, name="judge", metadata={"mood": "calm"}))
    await at.call("update the config", client.update(critic, config={"configurable": {"tone": "kind"}}))
    await at.call("update none", client.update(NO_THREAD, name="x"))
    await at.call("versions", client.get_versions(critic))
    await at.call("set the latest", client.set_latest(critic, 1))
    await at.call("set no version", client.set_latest(critic, 77))
    await at.call("search by name", client.search(name="critic", select=["name", "version"]))
    await at.call("search by metadata", client.search(metadata={"team": "red"}, select=["name", "graph_id"]))
    await at.call("search, as an object", client.search(metadata={"team": "red"}, response_format="object"))
    await at.call("run", at.client.runs.wait(None, critic, input=say("hi")))
    await at.call("delete", client.delete(critic))
    await at.call("delete again", client.delete(critic))


async def threads(at: Recorder) -> None:
    """Make, read, change, find, copy and delete threads."""
    client = at.client.threads
    created = await at.call("create", client.create(metadata={"who": "ada"}))
    thread = created["thread_id"]
    await at.call("create again", client.create(thread_id=thread))
    await at.call("create again, do nothing", client.create(thread_id=thread, if_exists="do_nothing"))
    await at.http("create with an id that is no UUID", "POST", "/threads", json={"thread_id": NO_ID})
    await at.http("create with broken JSON", "POST", "/threads", content=b"{")
    await at.http("create with metadata that are none", "POST", "/threads", json={"metadata": 3})
    await at.call("create with a ttl", client.create(ttl=5))
    await at.call("create that keeps the latest", client.create(ttl={"ttl": 5, "strategy": "keep_latest"}))
    question: Any = {"updates": [{"values": say("one"), "as_node": "__start__"}]}
    reply: Any = {"updates": [{"values": {"messages": [{"role": "assistant", "content": "two"}]}, "as_node": "model"}]}
    steps = await at.call("create with supersteps", client.create(graph_id="agent", supersteps=[question, reply]))
    await at.call("state after supersteps", client.get_state(steps["thread_id"]))
    await at.call("get", client.get(thread))
    await at.call("get none", client.get(NO_THREAD))
    await at.call("get no id", client.get(NO_ID))
    await at.call("update", client.update(thread, metadata={"topic": "x"}))
    await at.call("update none", client.update(NO_THREAD, metadata={}))
    await at.call("empty state", client.get_state(thread))
    await at.call("empty history", client.get_history(thread))

    await at.client.runs.wait(thread, "agent", input=say("hello"))
    await at.call("get after a run", client.get(thread))
    await at.call("search by metadata", client.search(metadata={"who": "ada"}))
    await at.call("search by status", client.search(metadata={"who": "ada"}, status="interrupted"))
    notes: dict[str, Any] = {"notes": ["of threads"]}
    await at.call("update the state", client.update_state(thread, notes))
    await at.call("search by values", client.search(values=notes, select=["thread_id", "status", "values"]))
    extract = {"last": "values.messages[-1].content"}
    await at.call("search with extracts", client.search(ids=[thread], extract=extract, select=["thread_id"]))
    await at.call("search, oldest first", client.search(ids=[thread], sort_by="created_at", sort_order="asc", limit=1))
    await at.http("search with no such order", "POST", "/threads/search", json={"sort_by": "nope"})
    await at.call("count", client.count(metadata={"who": "ada"}))
    copied = await at.call("copy", client.copy(thread))
    await at.call("copy none", client.copy(NO_THREAD))
    await at.call("state of the copy", client.get_state(copied["thread_id"]))
    await at.call("prune to the latest", client.prune([thread], strategy="keep_latest"))
    await at.call("prune", client.prune([copied["thread_id"]]))
    await at.call("delete", client.delete(thread))
    await at.call("delete again", client.delete(thread))
    await at.call("get what was deleted", client.get(thread))


async def modes(at: Recorder) -> None:
    """Stream in each mode, and in several at once."""
    client = at.client.runs
    for mode in MODES:
        thread = await new_thread(at)
        await at.stream(mode, client.stream(thread, "agent", input=say("hi"), stream_mode=mode))
        text = "research moths" if mode == "custom" else "weather Riga"
        await at.stream(f"{mode}, again", client.stream(thread, "agent", input=say(text), stream_mode=mode))
    thread = await new_thread(at)
    several: Any = ["values", "updates", "custom", "messages-tuple"]
    moths = client.stream(thread, "agent", input=say("research moths"), stream_mode=several, stream_subgraphs=True)
    await at.stream("several, with subgraphs", moths)
    await at.stream("several", client.stream(thread, "agent", input=say("steps 2"), stream_mode=several))
    nope: Any = "nope"
    await at.stream("no such mode", client.stream(thread, "agent", input=say("hi"), stream_mode=nope))
    await at.stream("no mode", client.stream(thread, "agent", input=say("hi"), stream_mode=[]))
    await at.chunks("version 2", client.stream(thread, "agent", input=say("hi"), stream_mode="updates", version="v2"))


async def failing(at: Recorder) -> None:
    """Run what fails."""
    client, thread = at.client.runs, await new_thread(at)
    fail = say("fail")
    await at.stream("stream", client.stream(thread, "agent", input=fail, stream_mode=["values", "updates"]))
    await at.call("thread", at.client.threads.get(thread))
    await at.call("state", at.client.threads.get_state(thread))
    await at.call("wait", client.wait(thread, "agent", input=fail))
    await at.call("wait, raising nothing", client.wait(thread, "agent", input=fail, raise_error=False))
    await at.call("runs", client.list(thread, status="error", limit=1))
    await at.call("wait for what goes well", client.wait(thread, "agent", input=say("hi")))
    await at.call("thread afterwards", at.client.threads.get(thread))
    await at.stream("too many steps", client.stream(thread, "agent", input=say("hi"), config={"recursion_limit": 1}))


async def interrupts(at: Recorder) -> None:
    """Answer what the graph asks, stop before and after nodes, and go elsewhere."""
    client, states, thread = at.client.runs, at.client.threads, await new_thread(at)
    both: Any = ["values", "updates"]
    await at.stream("approve", client.stream(thread, "agent", input=say("approve it"), stream_mode=both))
    await at.call("thread", states.get(thread))
    await at.call("state", states.get_state(thread))
    await at.call("search", states.search(ids=[thread], status="interrupted"))
    decision: Any = {"resume": {"decisions": [{"type": "approve"}]}}
    await at.stream("approved", client.stream(thread, "agent", command=decision, stream_mode=both))
    await at.call("wait", client.wait(thread, "agent", input=say("ask me")))
    await at.call("thread that asks", states.get(thread))
    with_input = {"assistant_id": "agent", "input": {}, "command": {"resume": "yes"}}
    await at.http("an answer beside an empty input", "POST", f"/threads/{thread}/runs/wait", json=with_input)
    await at.call("nothing to answer", client.wait(thread, "agent", command={"resume": "yes"}))
    await at.call("another question instead", client.wait(thread, "agent", input=say("ask more")))
    await at.call("and no answer to it", client.wait(thread, "agent", input=say("hi")))

    inner = client.stream(thread, "agent", input=say("research approve"), stream_mode=both, stream_subgraphs=True)
    await at.stream("within a subgraph", inner)
    await at.call("state with subgraphs", states.get_state(thread, subgraphs=True))
    resumed = client.stream(thread, "agent", command={"resume": "yes"}, stream_mode=both, stream_subgraphs=True)
    await at.stream("answer to the subgraph", resumed)

    stop: Any = {"before": {"interrupt_before": ["model"]}, "after": {"interrupt_after": "*"}}
    for when, options in stop.items():
        await at.stream(f"stop {when}", client.stream(thread, "agent", input=say("weather Riga"), **options))
        await at.call(f"state of stop {when}", states.get_state(thread))
        await at.stream(f"go on from stop {when}", client.stream(thread, "agent", stream_mode="updates"))
    nowhere = client.stream(thread, "agent", input=say("hi"), interrupt_before=["nope"])
    await at.stream("stop at no node", nowhere)
    goto: Any = {"update": say("by a command"), "goto": "model"}
    await at.stream("goto", client.stream(thread, "agent", command=goto, stream_mode="updates"))
    await at.stream("goto no node", client.stream(thread, "agent", command={"goto": "nope"}, stream_mode="updates"))


async def options(at: Recorder) -> None:
    """Give runs right and wrong arguments."""
    client = at.client.runs
    configurable: Any = {"configurable": {"b": 1}, "tags": ["x"], "metadata": {"from": "config"}}
    wrong_role = {"messages": [{"role": "nope", "content": "x"}]}
    arguments: dict[str, dict[str, Any]] = {
        "metadata": {"metadata": {"m": 1}},
        "config": {"config": configurable},
        "context": {"context": {"a": 1}},
        "config and context": {"config": configurable, "context": {"a": 1}},
        "feedback keys": {"feedback_keys": ["up"]},
        "durability exit": {"durability": "exit"},
        "durability sync": {"durability": "sync"},
        "no checkpoints meanwhile": {"checkpoint_during": False},
        "a webhook": {"webhook": "http://127.0.0.1:1/x"},
        "a message of no role": {"input": wrong_role},
        "a text as input": {"input": "hello"},
        "no input": {"input": None},
        "no such key in the input": {"input": {"zzz": 1}},
        "later": {"after_seconds": 1},
    }
    for name, own in arguments.items():
        thread = await new_thread(at)
        run = client.stream(thread, "agent", **{"input": say("hi"), "stream_mode": "updates", **own})
        await at.stream(name, run)
    thread = await new_thread(at)
    await at.stream("no such assistant", client.stream(thread, "nope", input=say("hi")))
    await at.stream("no such thread", client.stream(NO_THREAD, "agent", input=say("hi")))
    on_new = client.stream(NO_THREAD, "agent", input=say("hi"), if_not_exists="create", stream_mode="updates")
    await at.stream("a thread that is made", on_new)
    await at.http("no assistant", "POST", f"/threads/{thread}/runs/wait", json={"input": say("hi")})


async def stateless(at: Recorder) -> None:
    """Run without a thread."""
    client = at.client.runs
    await at.stream("stream", client.stream(None, "agent", input=say("weather Riga"), stream_mode="updates"))
    await at.call("wait", client.wait(None, "agent", input=say("hi")))
    await at.call("wait for a question", client.wait(None, "agent", input=say("ask me")))
    await at.call("wait for what fails", client.wait(None, "agent", input=say("fail")))
    await at.call("create", client.create(None, "agent", input=say("hi")))
    await at.call("keep", client.wait(None, "agent", input=say("hi"), on_completion="keep"))
    payload: Any = {"assistant_id": "agent", "input": say("a")}
    await at.call("batch", client.create_batch([payload, payload]))


async def records(at: Recorder) -> None:
    """Begin runs, follow, list and delete them."""
    client, thread = at.client.runs, await new_thread(at)
    options: Any = {"metadata": {"m": 1}, "stream_resumable": True, "stream_mode": ["values", "messages-tuple"]}
    created = await at.call("create", client.create(thread, "agent", input=say("hold records"), **options))
    run = created["run_id"]
    await at.begun("records")
    await at.call("get while it runs", client.get(thread, run))
    await at.call("thread while it runs", at.client.threads.get(thread))
    at.server.open_gate("records")
    await at.call("join", client.join(thread, run))
    await at.call("get", client.get(thread, run))
    await at.call("thread", at.client.threads.get(thread))
    await at.stream("join the stream from its start", client.join_stream(thread, run, last_event_id="-1"))
    await at.stream("join the stream", client.join_stream(thread, run))
    one: Any = client.join_stream(thread, run, stream_mode="values", last_event_id="-1")
    await at.stream("join the stream, of one mode", one)
    await at.call("list", client.list(thread, limit=2))
    await at.call("list by status", client.list(thread, status="success", select=["run_id", "status"]))
    for limit in ("-1", "x", "0"):
        await at.http(f"list, limit {limit}", "GET", f"/threads/{thread}/runs?limit={limit}")
    await at.call("list of no thread", client.list(NO_THREAD))
    await at.call("get none", client.get(thread, NO_THREAD))
    await at.call("get no id", client.get(thread, NO_ID))
    await at.call("join none", client.join(thread, NO_THREAD))
    await at.stream("join the stream of none", client.join_stream(thread, NO_THREAD))
    await at.call("cancel what has ended", client.cancel(thread, run))
    await at.call("cancel none", client.cancel(thread, NO_THREAD))
    await at.call("delete", client.delete(thread, run))
    await at.call("delete again", client.delete(thread, run))


async def cancelling(at: Recorder) -> None:
    """Cancel runs that are at work, and leave their streams."""
    client = at.client.runs
    for action in ("interrupt", "rollback"):
        thread = await ran(at, "hi")
        run = await held(at, thread, f"cancel-{action}")
        await at.call(action, client.cancel(thread, run, wait=True, action=action))
        await at.call(f"run after {action}", client.get(thread, run))
        await at.call(f"thread after {action}", at.client.threads.get(thread))
        await at.call(f"state after {action}", at.client.threads.get_state(thread))
        await at.call(f"join after {action}", client.join(thread, run))
        await at.call(f"next run after {action}", client.wait(thread, "agent", input=say("go on")))
    thread = await new_thread(at)
    run = await held(at, thread, "cancel-many")
    await at.call("many", client.cancel_many(thread_id=thread, run_ids=[run]))
    await client.join(thread, run)
    await at.call("run after many", client.get(thread, run))
    await at.call("thread that is deleted while it runs", delete_held(at))
    for mode in ("cancel", "continue"):
        thread, gate = await new_thread(at), f"leave-{mode}"
        options: Any = {"stream_mode": "messages-tuple", "on_disconnect": mode}
        stream: Any = client.stream(thread, "agent", input=say(f"hold {gate}"), **options)
        await anext(stream)
        await at.begun(gate)
        await stream.aclose()
        [left] = await client.list(thread)
        if mode == "continue":
            at.server.open_gate(gate)
        await client.join(thread, left["run_id"])
        await at.call(f"run that a client left, {mode}", client.get(thread, left["run_id"]))
        await at.call(f"thread that a client left, {mode}", at.client.threads.get(thread))
        await at.call(f"state that a client left, {mode}", at.client.threads.get_state(thread))


async def delete_held(at: Recorder) -> None:
    """Delete a thread while a run is at work on it."""
    thread = await new_thread(at)
    await held(at, thread, "deleted")
    await at.client.threads.delete(thread)


async def multitask(at: Recorder) -> None:
    """Begin a run while another one is at work on the thread."""
    client = at.client.runs
    for strategy in ("reject", "interrupt", "rollback", "enqueue"):
        thread, gate = await ran(at, "hi"), f"multitask-{strategy}"
        first = await held(at, thread, gate)
        options: Any = {"multitask_strategy": strategy}
        second = await at.call(strategy, client.create(thread, "agent", input=say("second"), **options))
        if strategy in {"reject", "enqueue"}:
            at.server.open_gate(gate)
        if strategy != "rollback":  # which deletes the first, before or after somebody joins it
            await at.call(f"join the first, {strategy}", client.join(thread, first))
        if second is not None:
            await at.call(f"join the second, {strategy}", client.join(thread, second["run_id"]))
        await at.call(f"the first, {strategy}", client.get(thread, first))
        await at.call(f"state, {strategy}", at.client.threads.get_state(thread))
    thread = await new_thread(at)
    await held(at, thread, "update-meanwhile")
    await at.call("update the state meanwhile", at.client.threads.update_state(thread, say("x"), as_node="model"))
    at.server.open_gate("update-meanwhile")


async def history(at: Recorder) -> None:
    """Read the past of a thread, write its state, and begin runs in the past."""
    client, thread = at.client.threads, await ran(at, "one", "weather Riga")
    past = await at.call("history", client.get_history(thread, limit=20))
    first = next(state for state in past if state["next"] == ["model"])
    checkpoint = first["checkpoint"]
    await at.call("limit", client.get_history(thread, limit=2))
    await at.call("before a checkpoint", client.get_history(thread, limit=1, before=past[1]["checkpoint"]))
    await at.call("before an id", client.get_history(thread, limit=1, before=past[1]["checkpoint"]["checkpoint_id"]))
    await at.call("by metadata", client.get_history(thread, metadata={"source": "input"}))
    await at.call("selected", client.get_history(thread, limit=1, select=["next", "metadata"]))
    await at.call("state at a checkpoint", client.get_state(thread, checkpoint=checkpoint))
    await at.call("state at an id", client.get_state(thread, checkpoint_id=checkpoint["checkpoint_id"]))
    await at.call("state at none", client.get_state(thread, checkpoint_id=NO_CHECKPOINT))
    await at.call("state of no thread", client.get_state(NO_THREAD))
    await at.call("history of no thread", client.get_history(NO_THREAD))

    runs = at.client.runs
    await at.call("run from a checkpoint", runs.wait(thread, "agent", input=say("fork"), checkpoint=checkpoint))
    await at.call("run again from an id", runs.wait(thread, "agent", checkpoint_id=checkpoint["checkpoint_id"]))
    await at.call("history with branches", client.get_history(thread, limit=50))

    by_hand = {"messages": [{"role": "user", "content": "by hand", "id": "by-hand"}]}
    await at.call("update as a node", client.update_state(thread, by_hand, as_node="model"))
    await at.call("update", client.update_state(thread, {"notes": ["n"]}))
    await at.call("state after updates", client.get_state(thread))
    await at.call("update in the past", client.update_state(thread, by_hand, as_node="model", checkpoint=checkpoint))
    await at.call("state after an update in the past", client.get_state(thread))
    await at.call("update as no node", client.update_state(thread, {"notes": ["n"]}, as_node="nope"))
    await at.call("update no key", client.update_state(thread, {"zzz": 1}, as_node="model"))
    await at.call("update nothing", client.update_state(thread, None, as_node="model"))
    await at.call("update no thread", client.update_state(NO_THREAD, by_hand))

    thread = await ran(at, "one")  # of its own, as one of the servers goes on from nothing
    await at.call("run from none", runs.wait(thread, "agent", input=say("fork"), checkpoint_id=NO_CHECKPOINT))
    await at.call("update at none", client.update_state(await ran(at, "one"), by_hand, checkpoint_id=NO_CHECKPOINT))


async def thread_streams(at: Recorder) -> None:
    """Follow all runs of a thread."""
    thread = await new_thread(at)
    options: Any = {"stream_mode": ["values", "updates"], "stream_resumable": True}
    run = await at.client.runs.create(thread, "agent", input=say("hi"), **options)
    await at.client.runs.join(thread, run["run_id"])
    for mode in ("run_modes", "lifecycle", "state_update"):
        joined = await at.client.threads.join_stream(thread, stream_mode=[mode], last_event_id="-")
        await at.stream(mode, joined, until=lambda event: "run_done" in str(event.data))
    # Not tried: the stream of no thread, and of no mode, which LangGraph's server leaves open without a word.


async def store(at: Recorder) -> None:
    """Keep items under namespaces, and find them."""
    client = at.client.store
    await at.call("put", client.put_item(["a", "b"], key="k", value={"v": 1, "text": "moths like light"}))
    await at.call("get", client.get_item(["a", "b"], key="k"))
    await at.call("get none", client.get_item(["a", "b"], key="zz"))
    await at.call("put with a dot", client.put_item(["a.b"], key="k", value={}))
    await at.call("put without a namespace", client.put_item([], key="k", value={}))
    await at.http("put what is no object", "PUT", "/store/items", json={"namespace": ["a"], "key": "k", "value": 1})
    await at.call("search", client.search_items(["a"], limit=3))
    await at.call("search a prefix that has nothing", client.search_items(["zz"]))
    await at.call("search by words", client.search_items(["a"], query="moths"))
    await at.call("search by a value", client.search_items(["a"], filter={"v": 1}))
    await at.call("search by a comparison", client.search_items(["a"], filter={"v": {"$gte": 1}}))
    await at.call("namespaces", client.list_namespaces())
    await at.call("namespaces of a prefix", client.list_namespaces(prefix=["a"], max_depth=1))
    await at.call("delete", client.delete_item(["a", "b"], key="k"))
    await at.call("delete again", client.delete_item(["a", "b"], key="k"))


async def crons(at: Recorder) -> None:
    """Ask for runs by the clock."""
    client = at.client.crons
    await at.call("search", client.search())
    await at.call("count", client.count())
    created = await at.call("create", client.create("agent", schedule="0 0 1 1 *", input=say("x")))
    await at.call("delete", client.delete((created or {}).get("cron_id", NO_THREAD)))


async def remote_graph(at: Recorder) -> None:
    """Use the graph by `RemoteGraph`: alone, and as a node of a graph of the client's."""
    remote, thread = RemoteGraph("agent", url=at.server.url, name="remote"), await new_thread(at)
    config: RunnableConfig = {"configurable": {"thread_id": thread}}
    await at.call("get_graph", remote.aget_graph())
    await at.call("ainvoke", remote.ainvoke(say("hello"), config))
    await at.call("ainvoke without a thread", remote.ainvoke(say("hello")))
    modes: tuple[StreamMode, ...] = ("values", "updates", "messages")
    for mode in modes:
        await at.chunks(f"astream {mode}", remote.astream(say("weather Riga"), config, stream_mode=mode))
    several: list[StreamMode] = ["updates", "custom"]
    await at.chunks(
        "astream several", remote.astream(say("research moths"), config, stream_mode=several, subgraphs=True)
    )
    await at.call("ainvoke, a question", remote.ainvoke(say("approve it"), config))
    await at.chunks("astream, a question", remote.astream(say("ask me"), config, stream_mode="updates"))
    await at.call("aget_state", remote.aget_state(config))
    await at.call("ainvoke, the answer", remote.ainvoke(Command(resume="yes"), config))
    await at.chunks("aget_state_history", remote.aget_state_history(config, limit=3))
    await at.call("aupdate_state", remote.aupdate_state(config, say("by hand"), as_node="model"))
    await at.call("ainvoke, failing", remote.ainvoke(say("fail"), config))

    builder: Any = StateGraph(MessagesState)
    builder.add_node("remote", remote)
    builder.add_edge(START, "remote")
    around: Any = builder.compile(checkpointer=InMemorySaver())
    for name, text in {"hello": "hello", "a tool": "weather Riga", "a question": "ask me"}.items():
        here: RunnableConfig = {"configurable": {"thread_id": await new_thread(at)}}
        chunks = around.astream(say(text), here, stream_mode="updates", subgraphs=True)
        await at.chunks(f"as a node, {name}", chunks)


AREAS: Final[dict[str, Callable[[Recorder], Coroutine[Any, Any, None]]]] = {
    area.__name__.replace("_", "-"): area
    for area in (
        server,
        assistants,
        threads,
        modes,
        failing,
        interrupts,
        options,
        stateless,
        records,
        cancelling,
        multitask,
        history,
        thread_streams,
        store,
        crons,
        remote_graph,
    )
}

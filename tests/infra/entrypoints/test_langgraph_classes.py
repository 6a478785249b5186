"""Objects of classes in the state of graphs: they come back as with LangGraph's own saver, where the graph names their class."""

# Graphs take functions of states that pyright knows nothing of.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportDeprecated=false

import asyncio
import gc
import json
import logging
import operator
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

import hypothesis.strategies as st
import ormsgpack
import pytest
from hypothesis import given, settings
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import create_react_agent
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel, SecretStr
from tests.support.langgraph_programs import CountingModel
from tests.support.soak import examples

import chatledger
from chatledger.errors import ConfigurationError
from chatledger.infra.entrypoints.langgraph.serializer import StateSerializer
from chatledger.langgraph import LedgerSaver

T = TypeVar("T")
CONFIG: Any = {"configurable": {"thread_id": "t"}}
LOGGER = "chatledger.infra.entrypoints.langgraph.serializer"
Make = Callable[[Any], Any]


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Step(BaseModel):
    title: str
    color: Color = Color.RED


class Plan(BaseModel):
    steps: list[Step]
    key: SecretStr = SecretStr("k")


class Shape:
    """A class without fields, of which only derived ones are kept."""

    radius: int


@dataclass
class Circle(Shape):
    radius: int
    at: "Place | None" = None


class Place(NamedTuple):
    x: int


@dataclass
class Box(Generic[T]):
    content: T


class Inner(TypedDict):
    place: Place
    level: NotRequired[Level]


class State(TypedDict):
    plan: Plan
    shapes: Annotated[Sequence[Shape], operator.add]
    boxes: Mapping[str, Box[Color]]
    inner: Inner
    choice: Literal[Color.RED] | None
    messages: Annotated[list[AnyMessage], operator.add]


class Remark(HumanMessage):
    """A user's own kind of message."""


def state() -> State:
    return {
        "plan": Plan(steps=[Step(title="go")]),
        "shapes": [Circle(1, Place(2))],
        "boxes": {"b": Box(Color.RED)},
        "inner": {"place": Place(1), "level": Level.HIGH},
        "choice": Color.RED,
        "messages": [Remark(content="hm", id="r"), AIMessage("a", id="a")],
    }


def pausing(saver: Any) -> Any:
    """A node that waits once, and uses what it is given."""

    def node(given: State) -> dict[str, Any]:
        heard = interrupt("on?")
        return {
            "plan": Plan(steps=[*given["plan"].steps, Step(title=heard)]),
            "shapes": [Circle(given["shapes"][0].radius + 1)],
        }

    graph: Any = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    return graph.compile(checkpointer=saver)


class Private(BaseModel):
    only: Color


class Models(BaseModel):
    """A state that is a model itself; a node is sent something that only it knows."""

    plan: Plan
    seen: Annotated[list[str], operator.add] = []


def sending(saver: Any) -> Any:
    def worker(given: Private) -> dict[str, Any]:
        return {"seen": [f"{given.only} {interrupt('on?')}"]}

    graph: Any = StateGraph(Models)
    graph.add_node("worker", worker, input_schema=Private)
    graph.add_conditional_edges(START, lambda given: [Send("worker", Private(only=given.plan.steps[0].color))])
    return graph.compile(checkpointer=saver)


def nested(saver: Any) -> Any:
    """A graph within a graph, with a state of its own."""
    inner: Any = StateGraph(Models)
    inner.add_node("look", lambda given: {"seen": [f"{given.plan.steps[0].title} {interrupt('on?')}"]})
    inner.add_edge(START, "look")

    class Outer(TypedDict):
        plan: Plan
        seen: Annotated[list[str], operator.add]

    graph: Any = StateGraph(Outer)
    graph.add_node("inner", inner.compile())
    graph.add_edge(START, "inner")
    return graph.compile(checkpointer=saver)


@task
def make_step(title: str) -> Step:
    return Step(title=title)


def make_steps(titles: list[str]) -> list[Any]:
    return [make_step(title) for title in titles]


def functional(saver: Any) -> Any:
    """Tasks whose results are there already when the function runs again, and a result that is remembered."""

    @entrypoint(checkpointer=saver)
    def work(given: Plan, *, previous: Box[Step] | None = None) -> Box[Step]:
        first = make_steps([given.steps[0].title])[0].result()
        before = previous.content.title if previous else "-"
        return Box(Step(title=f"{before} {first.title} {interrupt('on?')}"))

    return work


def agent(saver: Any) -> Any:
    """The prebuilt agent, with a state of one's own and an answer of a class."""

    class Answering(CountingModel):
        def bind_tools(self, *_: Any, **__: Any) -> Any:
            return self

        def with_structured_output(self, schema: Any, **__: Any) -> Any:
            from langchain_core.runnables import RunnableLambda

            return RunnableLambda(lambda _: schema(title="answer"))

    class AgentState(TypedDict):
        messages: Annotated[list[BaseMessage], operator.add]
        remaining_steps: int
        structured_response: Step
        plan: Plan

    def look_up(query: str, tags: list[int]) -> str:
        """Look it up."""
        return f"{query} {tags} {interrupt('on?')}"

    return create_react_agent(Answering(), [look_up], state_schema=AgentState, response_format=Step, checkpointer=saver)


def current_agent(saver: Any) -> Any:
    """The agent of LangChain, whose state does not name the class of its answer."""
    agents = pytest.importorskip("langchain.agents")

    class Answering(CountingModel):
        def bind_tools(self, *_: Any, **__: Any) -> Any:
            return self

        def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
            name, args = (
                ("Step", {"title": "answer"}) if isinstance(messages[-1], ToolMessage) else ("look_up", {"query": "x"})
            )
            call = {"name": name, "args": args, "id": f"call-{len(messages)}"}
            return ChatResult(
                generations=[ChatGeneration(message=AIMessage("", tool_calls=[call], id=f"ai-{len(messages)}"))]
            )

    def look_up(query: str) -> str:
        """Look it up."""
        return f"{query} {interrupt('on?')}"

    return agents.create_agent(Answering(), [look_up], response_format=Step, checkpointer=saver)


def given_later(saver: Any) -> Any:
    """A graph that was compiled without a saver, as a server gives it one."""
    return pausing(None).copy(update={"checkpointer": saver})


def configured(saver: Any) -> Any:
    return pausing(saver).with_config(tags=["x"])


ENTRIES: list[tuple[Make, Any]] = [
    (pausing, state),
    (given_later, state),
    (configured, state),
    (sending, lambda: {"plan": state()["plan"]}),
    (nested, lambda: {"plan": state()["plan"]}),
    (functional, lambda: state()["plan"]),
    (agent, lambda: {"messages": [HumanMessage("q", id="h")], "plan": state()["plan"]}),
    (current_agent, lambda: {"messages": [HumanMessage("q", id="h")]}),
]
pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")  # to another distribution
entries = pytest.mark.parametrize(("make", "given"), ENTRIES, ids=[make.__name__ for make, _ in ENTRIES])


def ids_apart(found: Any) -> str:
    """A result as text, without the ids that depend on those of checkpoints."""
    import re

    return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}|run--\S+?'", "", repr(found))


def story(make: Make, given: Any, savers: Callable[[], Any]) -> Any:
    """A run that is interrupted, its state, how it goes on, and all its states; each step may have another saver."""
    found: list[Any] = [make(savers()).invoke(given(), CONFIG)]
    paused = make(savers()).get_state(CONFIG, subgraphs=True)
    found += [paused.values, [task.state and task.state.values for task in paused.tasks]]
    found.append(make(savers()).invoke(Command(resume="yes"), CONFIG))
    found += [one.values for one in make(savers()).get_state_history(CONFIG)]
    return found


async def async_story(make: Make, given: Any, savers: Callable[[], Any]) -> Any:
    found: list[Any] = [await make(savers()).ainvoke(given(), CONFIG)]
    paused = await make(savers()).aget_state(CONFIG, subgraphs=True)
    found += [paused.values, [task.state and task.state.values for task in paused.tasks]]
    found.append(await make(savers()).ainvoke(Command(resume="yes"), CONFIG))
    return found + [one.values async for one in make(savers()).aget_state_history(CONFIG)]


@entries
def test_values_have_their_classes_as_in_memory(
    ledger: chatledger.Ledger, caplog: pytest.LogCaptureFixture, make: Make, given: Any
) -> None:
    """A saver that knows nothing of what was written reads the same objects, whatever made the graph."""
    memory = InMemorySaver()
    expected = story(make, given, lambda: memory)
    assert "yes" in repr(expected)
    caplog.clear()

    assert ids_apart(story(make, given, lambda: LedgerSaver(ledger))) == ids_apart(expected)
    assert caplog.messages == []


@pytest.mark.matrix
@entries
def test_values_have_their_classes_in_tasks_too(ledger: chatledger.Ledger, make: Make, given: Any) -> None:
    """The asynchronous methods decode in threads, where no graph calls."""
    memory = InMemorySaver()
    expected = asyncio.run(async_story(make, given, lambda: memory))

    found = asyncio.run(async_story(make, given, lambda: LedgerSaver(ledger)))
    assert ids_apart(found) == ids_apart(expected)


def test_what_is_read_before_its_graph_is_there_is_read_anew(ledger: chatledger.Ledger) -> None:
    """Values that were decoded without their class are not given to the graph that names it, of any saver bound to an assistant."""
    pausing(LedgerSaver(ledger).for_assistant("a")).invoke(state(), CONFIG)
    whole = LedgerSaver(ledger)
    bound = whole.for_assistant("a")

    before = bound.get_tuple(CONFIG)
    assert before is not None
    assert type(before.checkpoint["channel_values"]["plan"]) is dict
    assert pausing(whole.for_assistant("a")).invoke(Command(resume="yes"), CONFIG)["plan"].steps[1].title == "yes"
    after = bound.get_tuple(CONFIG)
    assert after is not None
    assert type(after.checkpoint["channel_values"]["plan"]) is Plan


class Unnamed(BaseModel):
    x: int


class Loose(TypedDict):
    anything: Any
    log: Annotated[list[str], operator.add]


def loose(saver: Any) -> Any:
    graph: Any = StateGraph(Loose)
    graph.add_node("node", lambda given: {"log": [type(given["anything"]).__name__, interrupt("on?")]})
    graph.add_edge(START, "node")
    return graph.compile(checkpointer=saver)


def test_what_nobody_names_is_not_loaded(ledger: chatledger.Ledger, caplog: pytest.LogCaptureFixture) -> None:
    """NS-20. One line says which class it is and what to write; LangGraph's own line, which names its own argument, is not there."""
    events: list[SerdeEvent] = []
    unregister = register_serde_event_listener(events.append)
    loose(LedgerSaver(ledger)).invoke({"anything": [Unnamed(x=1)]}, CONFIG)
    with caplog.at_level(logging.WARNING):
        found = loose(LedgerSaver(ledger)).invoke(Command(resume="yes"), CONFIG)
    unregister()

    assert found["anything"] == [{"x": 1}]
    (record,) = caplog.records
    assert record.name == LOGGER
    assert f"'{__name__}.Unnamed'" in record.getMessage()
    assert "LedgerSaver(ledger, allow=[Unnamed])" in record.getMessage()
    assert {(event["kind"], event["name"]) for event in events} == {("msgpack_blocked", "Unnamed")}
    assert loose(LedgerSaver(ledger, allow=[Unnamed])).get_state(CONFIG).values["anything"] == [Unnamed(x=1)]


_names = st.sampled_from(["Plan", "Step", "Unnamed", "datetime", "Decimal", "set", "Send", "no\nname", ""])
_modules = st.sampled_from([__name__, "datetime", "decimal", "builtins", "langgraph.types", "antigravity", "no.such"])


def _extended(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects as they are stored, of classes that take such data and of others, within each other."""
    named = st.tuples(_modules, _names, inner, st.just("fromisoformat")).map(list)
    data = named.map(lambda value: ormsgpack.packb(value, option=ormsgpack.OPT_NON_STR_KEYS))
    extension = st.builds(ormsgpack.Ext, st.integers(0, 6), data)
    return st.lists(inner, max_size=3) | extension | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2)


_stored = st.recursive(st.none() | st.integers(0, 9) | st.text("ab", max_size=2), _extended, max_leaves=8)


@settings(max_examples=examples(60), deadline=None)
@given(_stored, st.booleans())
def test_objects_are_made_as_langgraph_makes_them(value: Any, is_allowed: bool) -> None:  # noqa: FBT001
    """Its own strict serializer gives the same objects and data for any content."""
    classes = [Plan, Step] if is_allowed else []
    data = "msgpack", ormsgpack.packb(value, option=ormsgpack.OPT_NON_STR_KEYS)

    theirs = JsonPlusSerializer(allowed_msgpack_modules=classes or None)
    assert repr(StateSerializer(classes).loads_typed(data)) == repr(theirs.loads_typed(data))


@given(st.integers(0, 9), st.binary(max_size=9))
def test_what_no_serializer_wrote_makes_no_object(code: int, data: bytes) -> None:
    """It may be refused too, but by the error that says that bytes are wrong."""
    try:
        found = StateSerializer().loads_typed(("msgpack", ormsgpack.packb(ormsgpack.Ext(code, data))))
    except ValueError:
        return
    assert (
        found is None or isinstance(found, bool | int | float | str | bytes | list | dict) or code == 7
    )  # a snapshot of it


def test_a_class_that_does_not_take_its_data_any_more(
    ledger: chatledger.Ledger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a change of the program; the log names the class, and nothing of the data."""
    pausing(LedgerSaver(ledger)).invoke(state(), CONFIG)

    def changed(**fields: Any) -> None:
        raise TypeError(fields)

    monkeypatch.setattr(sys.modules[__name__], "Circle", changed)
    read = LedgerSaver(ledger, allow=[Shape]).with_allowlist([(__name__, "Circle")]).get_tuple(CONFIG)

    assert read is not None
    assert read.checkpoint["channel_values"]["shapes"][0]["radius"] == 1
    (message,) = [one for one in caplog.messages if "Circle" in one]
    assert message.endswith("which are given instead: TypeError")
    assert "radius" not in message


def test_a_class_that_only_a_module_has_is_not_even_imported(ledger: chatledger.Ledger) -> None:
    """What the stored data name is looked up in nothing but the list."""
    saver = LedgerSaver(ledger)
    data = ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(("antigravity", "geohash", "x"))))

    assert saver.serde.loads_typed(("msgpack", data)) == "x"
    assert "antigravity" not in sys.modules


class Late:
    """As `type Late = Missing` is from Python 3.12 on: its value is looked up when it is asked for."""

    @property
    def __value__(self) -> Any:
        raise NameError

    def __call__(self) -> None:
        """As annotations must be callable."""


def test_an_annotation_that_cannot_be_resolved_stops_no_graph(ledger: chatledger.Ledger) -> None:
    schema: Any = TypedDict("schema", {"late": Late(), "plan": Plan})  # type: ignore[misc]
    builder: Any = StateGraph(schema)
    builder.add_node("node", lambda _: {"plan": state()["plan"]})
    builder.add_edge(START, "node")
    saver = LedgerSaver(ledger)
    builder.compile(checkpointer=saver).invoke({"late": 1}, CONFIG)

    found: Any = saver.get_tuple(CONFIG)
    assert type(found.checkpoint["channel_values"]["plan"]) is Plan


def test_a_form_that_only_another_serializer_knows_is_named(ledger: chatledger.Ledger) -> None:
    """Pickled values are never loaded by default."""
    theirs = LedgerSaver(ledger, serde=JsonPlusSerializer(pickle_fallback=True))
    loose(theirs).invoke({"anything": 1j}, CONFIG)

    with pytest.raises(ConfigurationError, match=r"'pickle'.*serde="):
        loose(LedgerSaver(ledger)).get_state(CONFIG)
    assert loose(theirs).get_state(CONFIG).values["anything"] == 1j


@pytest.mark.parametrize("id", [["os", "system"], ["langchain", "schema", "messages", "HumanMessage"], 5], ids=str)
def test_langchains_older_form_of_what_may_not_be_loaded(ledger: chatledger.Ledger, id: Any) -> None:  # noqa: A002 - its key
    """A class that is not LangChain's, one that does not take these values, and no class: nothing is loaded, in our error."""
    value = {"lc": 1, "type": "constructor", "id": id, "kwargs": {"command": "secret"}}
    with pytest.raises(ConfigurationError, match=r"older JSON form.*serde=") as caught:
        LedgerSaver(ledger).serde.loads_typed(("json", json.dumps(value).encode()))
    assert "secret" not in str(caught.value)


def test_graphs_of_one_saver_do_not_keep_each_other_alive(ledger: chatledger.Ledger) -> None:
    """A server makes a graph for each request."""
    saver = LedgerSaver(ledger)
    graph = pausing(saver)
    graph.invoke(state(), CONFIG)
    kept = weakref.ref(graph)
    del graph
    gc.collect()

    assert kept() is None


def test_the_list_that_compile_makes_is_taken_too(ledger: chatledger.Ledger) -> None:
    """As it is where `LANGGRAPH_STRICT_MSGPACK` is set: a saver of its own, for a graph that names other classes besides."""
    pausing(LedgerSaver(ledger)).invoke(state(), CONFIG)
    saver = LedgerSaver(ledger)
    allowing = saver.with_allowlist([(__name__, "Plan"), (__name__, "Step")])

    assert allowing is not saver
    assert allowing.with_allowlist([(__name__, "Plan")]) is allowing
    assert type(allowing.get_tuple(CONFIG).checkpoint["channel_values"]["plan"]) is Plan  # type: ignore[union-attr]
    assert type(saver.get_tuple(CONFIG).checkpoint["channel_values"]["plan"]) is dict  # type: ignore[union-attr]

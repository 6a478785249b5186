"""Real graphs on our saver: the same programs give the same states as with LangGraph's own in-memory saver."""

# White-box: what savers keep is looked at, and some of their methods are replaced.
# pyright: reportPrivateUsage=false, reportIncompatibleMethodOverride=false, reportUnknownLambdaType=false

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from tests.support.langgraph_programs import PROGRAMS, Program, asking, fan_out, history, nested, react

import chatledger
from chatledger.langgraph import LedgerSaver

CONFIG: Any = {"configurable": {"thread_id": "t"}}
Bind = Callable[[LedgerSaver], LedgerSaver]


def unbound(saver: LedgerSaver) -> LedgerSaver:
    return saver


def bound(saver: LedgerSaver) -> LedgerSaver:
    return saver.for_assistant("team:a")


@pytest.fixture(scope="module")
def expected() -> dict[Program, Any]:
    """The results of the programs with the in-memory saver."""
    return {program: _plain(program(InMemorySaver(), CONFIG)) for program in PROGRAMS}


def _plain(value: Any) -> str:
    """Interrupts have ids that depend on those of checkpoints."""
    import re

    return re.sub(r"id='[0-9a-f]{32}'", "", repr(value))


@pytest.mark.matrix
@pytest.mark.parametrize("bind", [unbound, bound])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_finds_what_it_finds_in_memory(
    ledger: chatledger.Ledger, program: Program, bind: Bind, expected: dict[Program, Any]
) -> None:
    """Loops, interrupts, time travel, edits, subgraphs and packets; fencing refuses none of it."""
    found = program(bind(LedgerSaver(ledger)), CONFIG)

    assert _plain(found) == expected[program]


@pytest.mark.guard
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_each_step_may_be_another_savers(
    ledger: chatledger.Ledger, program: Program, expected: dict[Program, Any]
) -> None:
    """A saver that remembers nothing of what it did finds the same: all is on the ledger."""

    class Forgetful(LedgerSaver):
        def get_tuple(self, config: Any) -> Any:
            return LedgerSaver(self.ledger).get_tuple(config)

        def put(self, *arguments: Any) -> Any:
            return LedgerSaver(self.ledger).put(*arguments)

    assert _plain(program(Forgetful(ledger), CONFIG)) == expected[program]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("make", [react, fan_out], ids=["react", "fan_out"])
def test_all_durabilities_through_the_async_methods(
    ledger: chatledger.Ledger, make: Callable[[Any], Any], durability: Any
) -> None:
    given: Any = {"messages": [HumanMessage("q", id="h")]} if make is react else {"log": ["s"]}

    async def run(saver: Any) -> Any:
        graph = make(saver)
        for _ in range(2):
            await graph.ainvoke(given, CONFIG, durability=durability)
        return [(one.values, one.next) async for one in graph.aget_state_history(CONFIG)]

    assert repr(asyncio.run(run(LedgerSaver(ledger)))) == repr(asyncio.run(run(InMemorySaver())))


def test_two_assistants_on_one_thread_are_apart(ledger: chatledger.Ledger) -> None:
    """Acceptance 1 and 2: interrupts interleave, each resumes with its own state, and finds it again later."""
    saver = LedgerSaver(ledger)
    a, b = (asking(saver.for_assistant(name), name) for name in "ab")
    loop = react(saver.for_assistant("c"))
    a.invoke({"log": ["for a"]}, CONFIG)
    b.invoke({"log": ["for b"]}, CONFIG)
    loop.invoke({"messages": [HumanMessage("q", id="h")]}, CONFIG)
    a.invoke(Command(resume="1"), CONFIG)
    assert [one.value for one in b.get_state(CONFIG).interrupts] == ["b: first?"]
    b.invoke(Command(resume="3"), CONFIG)
    assert a.invoke(Command(resume="2"), CONFIG)["log"] == ["for a", "a heard 1 and 2", "a ended after 2"]
    assert [one.value for one in b.get_state(CONFIG).interrupts] == ["b: second?"]
    assert b.invoke(Command(resume="4"), CONFIG)["log"] == ["for b", "b heard 3 and 4", "b ended after 2"]
    again = asking(saver.for_assistant("a"), "a").invoke({"log": ["again"]}, CONFIG)
    assert again["log"] == ["for a", "a heard 1 and 2", "a ended after 2", "again"]
    assert [one.owner for one in saver.threads()] == [None]
    assert saver.threads()[0].namespaces == ["assistant:a", "assistant:b", "assistant:c"]


@pytest.mark.parametrize("is_stateful", [False, True])
def test_a_subgraph_of_a_bound_saver_is_below_its_assistant(ledger: chatledger.Ledger, *, is_stateful: bool) -> None:
    """Acceptance 3."""
    saver = LedgerSaver(ledger).for_assistant("A")
    graph = nested(saver, is_stateful=is_stateful)
    graph.invoke({"log": []}, CONFIG)
    inner = graph.get_state(CONFIG, subgraphs=True).tasks[0].state

    assert inner.next == ("ask",)
    root, sub = saver.threads()[0].namespaces
    assert root == "assistant:A"
    assert sub == (
        "assistant:A|inner" if is_stateful else f"assistant:A|{inner.config['configurable']['checkpoint_ns']}"
    )


def test_pruning_in_the_middle_of_an_interrupt_repeats_nothing(ledger: chatledger.Ledger) -> None:
    """What ran before the interrupt, also inside a subgraph, is not run again."""
    found: list[Any] = []
    for saver in (LedgerSaver(ledger), InMemorySaver()):
        graph = nested(saver)
        graph.invoke({"log": ["one"]}, CONFIG)
        graph.invoke(Command(resume="r"), CONFIG)
        graph.invoke({"log": ["two"]}, CONFIG)
        if isinstance(saver, LedgerSaver):
            saver.prune(["t"])
            assert len(history(graph, CONFIG)) == 1
        found.append(graph.invoke(Command(resume="r"), CONFIG)["log"])

    assert found[0] == found[1]


KILLED = """
    import os, signal, sys
    import chatledger
    from chatledger.langgraph import LedgerSaver
    from langgraph.graph import START, StateGraph
    from tests.support.langgraph_programs import Log

    place, is_killed = sys.argv[1], sys.argv[2] == "killed"

    def step(number):
        def run(state):
            if number == 3 and is_killed:
                os.kill(os.getpid(), signal.SIGKILL)
            return {"log": [f"step {number} by {sys.argv[2]}"]}
        return run

    graph = StateGraph(Log)
    for number in range(6):
        graph.add_node(f"n{number}", step(number))
        graph.add_edge(f"n{number - 1}" if number else START, f"n{number}")
    with chatledger.open(place) as ledger:
        app = graph.compile(checkpointer=LedgerSaver(ledger).for_assistant("a"))
        config = {"configurable": {"thread_id": "t"}}
        found = app.invoke({"log": ["start"]} if is_killed else None, config, durability="sync")
        print(found["log"])
"""


@pytest.mark.soak
def test_a_killed_run_goes_on_in_another_process(tmp_path: Path) -> None:
    """Kill -9 in the fourth step: the steps before are not repeated."""

    def run(who: str) -> subprocess.CompletedProcess[str]:
        script = textwrap.dedent(KILLED)
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        return subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "ledger"), who],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )

    assert run("killed").returncode == -signal.SIGKILL
    finished = run("other")

    assert finished.returncode == 0, finished.stderr
    steps = [
        *(f"step {number} by killed" for number in range(3)),
        *(f"step {number} by other" for number in range(3, 6)),
    ]
    assert finished.stdout.strip() == str(["start", *steps])

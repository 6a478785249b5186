"""Threads of agents that the demo ships, as LangGraph writes them: run as a module, it records them anew."""

import operator
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict
from unittest.mock import patch

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt

import chatledger
from chatledger.importers import write_all
from chatledger.infra.entrypoints import demo
from chatledger.langgraph import LedgerSaver

_BEGAN: Final = datetime(2026, 3, 14, 14, 2, 10, tzinfo=UTC)
_HOUR_S: Final = 3600.0
_HEAT_PUMPS: Final = (
    "IEA, The Future of Heat Pumps",
    "Fraunhofer ISE, WPsmart im Bestand",
    "RMI, Heat pumps in the cold",
    "notes/2026-03.md",
)
_NIGHT_TRAINS: Final = (
    "European Commission, Long-distance cross-border passenger rail services",
    "Umweltbundesamt, Nachtzüge und Klima",
    "Back-on-Track, Night train map",
    "notes/2026-02.md",
)


class RateLimitError(Exception):
    """A model's refusal of too many requests."""


class Model:
    """The model that writes, which refuses while it is busy."""

    is_busy = False


class Clock:
    """The time that LangGraph and the ledger are told, which can be put on."""

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self._real, self._start_s = time.time_ns, time.time()

    def ns(self) -> int:
        """The time in ns since the epoch."""
        return self._real() + round((_BEGAN.timestamp() - self._start_s + self._ahead_s) * 1e9)

    def ms(self) -> int:
        """The time in ms since the epoch."""
        return self.ns() // 1_000_000

    def put_on(self, seconds: float) -> None:
        """Let time pass."""
        self._ahead_s += seconds


class Research(TypedDict, total=False):
    """State of a report that is researched and written."""

    messages: Annotated[list[Any], add_messages]
    plan: list[str]
    approved: bool
    sources: Annotated[list[str], operator.add]
    draft: str | None


class Night(TypedDict, total=False):
    """State of what is tidied up by night."""

    messages: Annotated[list[Any], add_messages]
    done: Annotated[list[str], operator.add]


def _plan(_state: Research) -> dict[str, Any]:
    time.sleep(0.82)
    text = "I search papers and the web, read your notes, and write a page."
    return {
        "plan": ["search", "read", "write"],
        "draft": None,
        "messages": [AIMessage(text, id="m-plan", name="planner")],
    }


def _ask(_state: Research) -> dict[str, Any]:
    return {"approved": interrupt({"question": "Approve the plan?", "options": ["yes", "no"]}) == "yes"}


def _look(channel: str, entries: tuple[str, ...], pause_s: float) -> Any:
    def look(_state: Any) -> dict[str, Any]:
        time.sleep(pause_s)
        return {channel: list(entries)}

    return look


def _write(_state: Research) -> dict[str, Any]:
    if Model.is_busy:
        time.sleep(1.38)
        msg = "429 too many requests, try again in 20 s"
        raise RateLimitError(msg)
    time.sleep(4.2)
    draft = "Heat pumps move three to four units of heat for each unit of electricity that they take, also at -10 °C."
    call = {"name": "save_draft", "args": {"title": "Heat pumps, plainly", "words": 812}, "id": "call-1"}
    usage = {"input_tokens": 9120, "output_tokens": 1204, "total_tokens": 10324}
    said = "The draft is ready: 812 words, four sources. It says plainly where the studies disagree."
    return {
        "draft": draft,
        "messages": [
            AIMessage("", id="m-call", name="writer", tool_calls=[call]),
            ToolMessage("drafts/heat-pumps.md", id="m-result", tool_call_id="call-1"),
            AIMessage(said, id="m-draft", name="writer", usage_metadata=usage),
        ],
    }


def _review(_state: Research) -> dict[str, Any]:
    return {
        "approved": interrupt(
            {"question": "Publish this report?", "title": "Heat pumps, plainly", "options": ["publish", "revise"]}
        )
    }


def _research(saver: LedgerSaver, sources: tuple[str, str, str, str]) -> Any:
    builder = StateGraph(Research)
    looks = {
        "search_papers": _look("sources", sources[:2], 3.1),
        "search_web": _look("sources", sources[2:3], 2.41),
        "read_notes": _look("sources", sources[3:], 0.61),
    }
    for name, node in {"plan": _plan, "ask": _ask, **looks, "write": _write, "review": _review}.items():
        builder.add_node(name, node)
    for name in looks:
        builder.add_edge("ask", name)
    for begin, end in ((START, "plan"), ("plan", "ask"), ([*looks], "write"), ("write", "review"), ("review", END)):
        builder.add_edge(begin, end)
    return builder.compile(checkpointer=saver)


def _nightly(saver: LedgerSaver) -> Any:
    builder = StateGraph(Night)
    for name, done, pause_s in (
        ("chats", "12 chats summarised", 0.52),
        ("reminders", "3 reminders sent", 0.31),
        ("invoices", "2 invoices filed", 0.74),
    ):
        builder.add_node(name, _look("done", (done,), pause_s))
        builder.add_edge(START, name)

    def report(state: Night) -> dict[str, Any]:
        time.sleep(0.2)
        return {"messages": [AIMessage(f"{', '.join(sorted(state['done']))}.", id="m-night")]}

    builder.add_node("report", report)
    builder.add_edge(["chats", "reminders", "invoices"], "report")
    builder.add_edge("report", END)
    return builder.compile(checkpointer=saver)


def record(path: Path) -> None:
    """Run the graphs, and write their threads."""
    clock = Clock()

    class Told(datetime):
        """The time of the clock."""

        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(clock.ns() / 1e9, tz)

    with (
        patch("time.time_ns", clock.ns),
        patch("chatledger.infra.ledger.threads.clock_ms", clock.ms),
        patch("chatledger.infra.log.envelope.clock_ms", clock.ms),
        patch("langgraph.pregel._checkpoint.datetime", Told),
        chatledger.open("memory:") as whole,
    ):
        ledger = whole.for_user("ada")
        research = _research(LedgerSaver(ledger), _HEAT_PUMPS)
        config = {"configurable": {"thread_id": "research-2"}}
        research.invoke({"messages": [("user", "Write about heat pumps.")]}, config)
        clock.put_on(2 * _HOUR_S + 240)
        # As far as before the draft; then once with another plan, when the model is busy, and once as it was.
        research.invoke(Command(resume="yes"), config, interrupt_before=["write"])
        before = research.get_state(config).config
        clock.put_on(40)
        aside = research.update_state(before, {"plan": ["search", "write"]}, as_node="read_notes")
        Model.is_busy = True
        with suppress(RateLimitError):
            research.invoke(None, aside)
        Model.is_busy = False
        clock.put_on(30)
        research.invoke(None, before)
        research, failing = _research(LedgerSaver(ledger), _NIGHT_TRAINS), {"configurable": {"thread_id": "research-1"}}
        clock.put_on(_HOUR_S)
        research.invoke({"messages": [("user", "Write about night trains.")]}, failing)
        clock.put_on(60)
        Model.is_busy = True
        with suppress(RateLimitError):
            research.invoke(Command(resume="yes"), failing)
        clock.put_on(8 * _HOUR_S)
        _nightly(LedgerSaver(ledger)).invoke(
            {"messages": [("user", "Tidy up.")]}, {"configurable": {"thread_id": "nightly-340"}}
        )
        threads = [ledger.export_thread(thread_id) for thread_id in ("research-2", "research-1", "nightly-340")]
    with path.open("wb") as stream:
        write_all(stream, threads)


if __name__ == "__main__":
    record(Path(demo.__file__).parent / "threads.jsonl")

"""
A graph on a ledger in a folder, run by a process that ends as a checkpoint is put.

Run as a program with three arguments for each graph: the folder, LangGraph's durability, and "before N" or "after N" of the step
whose checkpoint the process ends at. Each has a process of its own, which is a fork: LangGraph takes a second to import. It prints
how each of them ended.
"""

import operator
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.graph import START, StateGraph

import chatledger
from chatledger.infra.ledger.threads import Threads
from chatledger.langgraph import LedgerSaver


class Seen(TypedDict):
    """The state: which nodes ran."""

    seen: Annotated[list[str], operator.add]


def run(saver: LedgerSaver, folder: Path, durability: Any) -> list[str]:
    """Run nodes a, then b and c, or go on where a run ended; a file in the folder says which ran."""

    def node(name: str) -> Callable[[Seen], Seen]:
        def note(_state: Seen) -> Seen:
            with (folder / "ran").open("a") as ran:
                ran.write(f"{name}\n")
            return {"seen": [name]}

        return note

    builder: Any = StateGraph(Seen)
    for name in ("a", "b", "c"):
        builder.add_node(name, node(name))
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    builder.add_edge("a", "c")
    graph = builder.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    is_begun = bool(graph.get_state(config).values)
    answer: Any = graph.invoke(None if is_begun else {"seen": ["in"]}, config, durability=durability)
    return list(answer["seen"])


def run_and_end(folder: Path, durability: Any, die_at: str) -> None:
    """Run it until the process ends."""
    put_checkpoint = Threads.put_checkpoint
    with chatledger.open(folder / "ledger") as ledger:
        saver = LedgerSaver(ledger)

        def put_or_end(self: Threads, thread_id: str, put: Any, **options: Any) -> None:
            step = saver.serde.loads_typed(put.frames[1])["step"]
            if die_at == f"before {step}":
                os._exit(9)
            put_checkpoint(self, thread_id, put, **options)
            if die_at == f"after {step}":
                os._exit(9)

        Threads.put_checkpoint = put_or_end  # type: ignore[method-assign]
        run(saver, folder, durability)


def main() -> None:
    """Run each in a process of its own."""
    arguments = sys.argv[1:]
    for folder, durability, die_at in zip(arguments[::3], arguments[1::3], arguments[2::3], strict=True):
        child = os.fork()
        if not child:
            run_and_end(Path(folder), durability, die_at)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()

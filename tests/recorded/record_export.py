"""
An export of threads, a state and items, which is read for ever: `python -m tests.recorded.record_export`.

It has each kind of piece, versions that were pruned and copied, and writes that wait. A new version of the format gets a file of its own.
"""

from pathlib import Path
from typing import Any, Final

from langgraph.checkpoint.base import empty_checkpoint
from tests.support.agent_threads import put, tree_of

import chatledger
from chatledger.domain.versioned.events import Skeleton
from chatledger.domain.versioned.pruning import Removal
from chatledger.graph_state import StateStore, state_id
from chatledger.importers import write_all
from chatledger.infra.exchange.jsonl import VERSION
from chatledger.infra.ledger.threads import Threads
from chatledger.items import ItemStore
from chatledger.langgraph import LedgerSaver

SAMPLE: Final = Path(__file__).parent / "export-6.jsonl"


def fill(ledger: chatledger.Ledger) -> None:
    """Write what the export has."""
    ledger.create_chat("chat", "ada")
    ledger.append("chat", [chatledger.user("Riga?")])
    saver = LedgerSaver(ledger)
    config: Any = {"configurable": {"thread_id": "agent", "checkpoint_ns": ""}}
    messages: list[Any] = []
    for step in range(6):
        messages = [*messages, {"role": "user", "content": f"message {step} " + "x" * 90}]
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": messages, "long": "é" * 12_000 + str(step), "raw": b"\0\xff"}
        version = f"{step + 1:032}.0000000000000001"
        checkpoint["channel_versions"] = dict.fromkeys(checkpoint["channel_values"], version)
        metadata: Any = {"source": "loop", "step": step, "parents": {}}
        config = saver.put(config, checkpoint, metadata, checkpoint["channel_versions"])
        saver.put_writes(config, [("messages", {"n": step}), ("__interrupt__", ["stop"])], f"task{step}")
    threads = Threads(ledger.for_user("ada"))
    values: dict[str, Any] = {"list": [], "dict": {"a": "one", "b": "x" * 40_000}}
    for number in range(8):
        values["list"].append(f"element {number}")
        parent = f"{number - 1}" if number else None
        put(threads, "plain", str(number), values, parent_id=parent, namespace="assistant:a", run_id=f"run{number % 2}")
    threads.put_writes("plain", "", "later", task_id="t", task_path="~p", writes=[(-3, "c", tree_of("soon"))])
    threads.copy("plain", "copy", within="assistant:a")
    bare = [Skeleton("assistant:a", "3", ("list",))]
    threads.remove("copy", lambda _thread: Removal([("assistant:a", "0")], bare), reason="pruned")
    states = StateStore(ledger, ttl_seconds=10**10)
    for number in range(4):
        states.put(state_id("ada:x", "trip/漢"), {"docs": list(range(9_000 + number)), "n": number}, node="a")
    items = ItemStore(ledger.for_user("ada"))
    items.put(("memories", "a/b"), "food", {"likes": "soup"})
    items.put(("memories", "a/b"), "food", {"likes": "bread"})
    items.end(("memories", "a/b"), "food")


def main() -> None:
    """Write the file once."""
    assert SAMPLE.name == f"export-{VERSION}.jsonl", "this version of the format has a file of its own"
    with chatledger.open("memory:") as ledger, SAMPLE.open("xb") as stream:
        fill(ledger)
        write_all(stream, ledger.export_all())


if __name__ == "__main__":
    main()

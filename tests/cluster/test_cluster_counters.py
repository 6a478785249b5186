"""Updates that are computed from what is stored, by three nodes at the same time: none is lost, doubled or stale."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster_world import NAMES, Cluster
from tests.support.ledger_world import Worker, text
from tests.support.soak import IS_SOAK

import chatledger
from chatledger.events import ChatUpdated

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(1800), pytest.mark.xdist_group("cluster")]
EACH = 3_334 if IS_SOAK else 100
"""The updates of each node."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with contextlib.closing(Cluster(tmp_path / "cluster")) as running:
        for name in NAMES:
            running.start(name)
        running.wait_until_ready()
        yield running


def test_nodes_count_up(cluster: Cluster, tmp_path: Path) -> None:
    """Each with a process, an index and a server of its own, while somebody appends to another chat."""
    is_over = threading.Event()
    with chatledger.open(cluster.place("counters"), create=True, index=tmp_path / "index") as ledger:
        ledger.create_chat("c", "u", metadata={"n": 0})
        ledger.create_chat("other", "u")

        def append() -> None:
            while not is_over.is_set():
                ledger.append("other", [text("x")])

        appending = threading.Thread(target=append)
        with contextlib.ExitStack() as stack:
            nodes = [
                stack.enter_context(Worker(cluster.place("counters", first=name), index=str(tmp_path / name)))
                for name in NAMES
            ]
            for node in nodes:
                node.ready()
            appending.start()
            try:
                for node in nodes:
                    node.send("count_up", "c", EACH)
                acknowledged = [node.receive() for node in nodes]
            finally:
                is_over.set()
                appending.join()
        ledger.sync()
        updates = [one.body.changes for one in ledger.history("c") if isinstance(one.body, ChatUpdated)]
        ledger.verify()

    assert acknowledged == [["ok", EACH]] * len(NAMES)
    assert [changes["metadata"]["n"] for changes in updates] == list(range(1, len(NAMES) * EACH + 1))

"""Content that is taken away from events on a cluster: gone from the blocks of every server, and read whoever leads."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.cluster_world import NAMES, READY_S, Cluster, clustered
from tests.support.files_in_clear import in_clear
from tests.support.jetstream_world import eventually, new_name
from tests.support.log_world import LoggedChat, hashes, open_log

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]
SECRET = "swordfish"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with clustered(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.mark.parametrize("whose", ["", "-redacted"], ids=["log", "redacted"])
def test_a_leader_that_is_killed(cluster: Cluster, whose: str) -> None:
    """
    Another one goes on, and each server gives all events with their hashes. Those that lived have no byte in their blocks; one that is
    killed within a deletion may have left those of that message, as for chats.
    """
    stream = new_name()
    with open_log(cluster.place(stream), timeout_s=READY_S) as log:
        chat = LoggedChat(log)
        positions = [chat.append(f"{SECRET} {number}", "kept") for number in range(30)]
        chat.end()
        before = hashes(log)
        killed = ""
        for number, position in enumerate(positions):
            if number == 10:
                killed = cluster.leader(stream + whose)
                cluster.nodes[killed].send(signal.SIGKILL)
            assert log.rewrite(position, [3])
        assert before == hashes(log)
        cluster.start(killed)
        for name in (stream, f"{stream}-redacted"):
            cluster.wait_until_whole(name)
        for name in NAMES:
            with open_log(cluster.place(stream, first=name), timeout_s=READY_S) as other:
                assert before == hashes(other)
                assert other.count() == len(before)
        assert cluster.info(f"{stream}-redacted")["config"]["num_replicas"] == len(NAMES)
        for node in (node for name, node in cluster.nodes.items() if name != killed):
            blocks = [block for name in (stream, f"{stream}-redacted") for block in node.blocks(name)]
            assert blocks

            def is_gone(blocks: list[Path] = blocks) -> bool:
                return not any(SECRET.encode() in in_clear(block.read_bytes()) for block in blocks)

            eventually(is_gone)

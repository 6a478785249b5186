"""
Three servers that keep three copies: whichever is killed, paused or restarted, writers go on, and nothing is lost or doubled.

What was acknowledged is kept outside and compared in the end with what the ledger, a reader that followed, a fresh index and
each of the three servers have. The servers run with the configuration of the page about clusters.
"""

import contextlib
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli_world import run
from tests.support.cluster_world import NAMES, READY_S, Cluster, Writers, clustered, configuration, under_load
from tests.support.jetstream_world import eventually, new_name
from tests.support.ledger_world import text, texts
from tests.support.soak import IS_SOAK

import chatledger
from chatledger import ConfigurationError, LogUnavailableError, admin
from chatledger.domain.log.shares import bucket_of
from chatledger.jetstream import JetStreamClient

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300), pytest.mark.xdist_group("cluster")]
Nemesis = Callable[[Cluster, str, Writers], None]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with clustered(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def stream(cluster: Cluster) -> str:
    """The name of a new stream, on a cluster that is whole."""
    for name in NAMES:
        if not cluster.nodes[name].is_running:
            cluster.start(name)
    cluster.wait_until_whole("ready")
    return new_name()


def kill_leader(cluster: Cluster, stream: str, load: Writers) -> None:
    name = cluster.leader(stream)
    cluster.nodes[name].send(signal.SIGKILL)
    load.wait_for_more()
    cluster.start(name)


def kill_follower(cluster: Cluster, stream: str, load: Writers) -> None:
    name = cluster.follower(stream)
    cluster.nodes[name].send(signal.SIGKILL)
    load.wait_for_more()
    cluster.start(name)


def pause_leader(cluster: Cluster, stream: str, load: Writers) -> None:
    """It hangs: connections stay open, and nothing is answered. Then it wakes up and believes that it leads."""
    node = cluster.nodes[cluster.leader(stream)]
    node.send(signal.SIGSTOP)
    try:
        load.wait_for_more()
    finally:
        node.send(signal.SIGCONT)
    load.wait_for_more()


def pause_follower(cluster: Cluster, stream: str, load: Writers) -> None:
    node = cluster.nodes[cluster.follower(stream)]
    node.send(signal.SIGSTOP)
    try:
        load.wait_for_more()
    finally:
        node.send(signal.SIGCONT)
    load.wait_for_more()


def restart_all(cluster: Cluster, stream: str, load: Writers) -> None:
    """As for an upgrade: one after the other, each when the one before has caught up."""
    for name in NAMES:
        cluster.nodes[name].send(signal.SIGTERM)
        load.wait_for_more()
        cluster.start(name)
        cluster.wait_until_whole(stream)


def _only_in_soak(value: object) -> Any:
    return pytest.param(value, marks=pytest.mark.skipif(not IS_SOAK, reason="make soak runs it: it waits for servers"))


@pytest.mark.soak
@pytest.mark.parametrize(
    "nemesis",
    [kill_leader, kill_follower, _only_in_soak(pause_leader), _only_in_soak(restart_all)],
    ids=["kill_leader", "kill_follower", "pause_leader", "restart_all"],
)
def test_writers_ride_through(nemesis: Nemesis, cluster: Cluster, stream: str, tmp_path: Path) -> None:
    """No writer gets an error; nothing is lost, doubled or skipped; all three servers have the same in the end."""
    with under_load(cluster, stream, tmp_path) as load:
        nemesis(cluster, stream, load)
    print(f"{nemesis.__name__}: {load.count} appends, the longest took {load.longest_s:.1f} s")


@pytest.mark.soak
def test_three_shares_ride_through(cluster: Cluster, stream: str, tmp_path: Path) -> None:
    """
    Three nodes hold a share each, and write to chats of all three; each server is killed in turn, under all of them.

    No writer gets an error, and what was acknowledged is there once: in the one share it belongs to, in an index of that
    share that is built anew, and in a ledger that has all.
    """
    place, owners = cluster.place(stream), ["ida", "bob", "ada"]
    assert {0, 1, 2} == {bucket_of(owner) % 3 for owner in owners}
    with contextlib.ExitStack() as opened:
        nodes = [
            opened.enter_context(
                chatledger.open(
                    place, create=number == 0, share=(number, 3), timeout_s=30, index=tmp_path / f"{number}"
                )
            )
            for number in range(3)
        ]
        loads = [Writers(node, 3, name=f"by-{number}", owners=owners) for number, node in enumerate(nodes)]
        for load in loads:
            opened.callback(load.stop)
            load.start()
        for name in NAMES:
            cluster.nodes[name].send(signal.SIGKILL)
            for load in loads:
                load.wait_for_more()
            cluster.start(name)
            cluster.wait_until_whole(stream)
        for load in loads:
            load.stop()
            assert load.errors == []
        print(
            f"{sum(load.count for load in loads)} appends, the longest took {max(load.longest_s for load in loads):.1f} s"
        )
        acknowledged = {chat_id: done for load in loads for chat_id, done in load.acknowledged.items()}
        for number, node in enumerate(nodes):
            node.sync()
            with chatledger.open(place, share=(number, 3), timeout_s=30, index=tmp_path / "fresh") as fresh:
                for held in (node, fresh):
                    found = {chat.id: [one.id for one in held.get_messages(chat.id)] for chat in held.list_chats()}
                    assert found == {chat_id: acknowledged[chat_id] for chat_id in found}
                    assert len(found) == 3
                    assert held.verify().chat_count == 3
        with chatledger.open(place, timeout_s=30, index=tmp_path / "whole") as whole:
            assert whole.verify().chat_count == len(acknowledged)
            assert acknowledged == {
                chat.id: [one.id for one in whole.get_messages(chat.id)] for chat in whole.list_chats()
            }


@pytest.mark.skipif(not IS_SOAK, reason="make soak runs it: some minutes")
@pytest.mark.timeout(3600)
def test_writers_ride_through_one_after_another(cluster: Cluster, stream: str, tmp_path: Path) -> None:
    """The same for many faults on one log, in the order of a seed."""
    seed = int(os.environ.get("CHATLEDGER_SEED", "0")) or random.randrange(10**9)
    print(f"CHATLEDGER_SEED={seed}")
    dice = random.Random(seed)
    with under_load(cluster, stream, tmp_path, writers=8) as load:
        for _ in range(30):
            nemesis = dice.choice([kill_leader, kill_follower, pause_leader, pause_follower, restart_all])
            nemesis(cluster, stream, load)
            cluster.wait_until_whole(stream)
            load.wait_for_more(20)
            assert load.errors == []


@pytest.mark.skipif(not IS_SOAK, reason="make soak runs it: it waits for servers")
def test_a_live_stream_goes_on(cluster: Cluster, stream: str, tmp_path: Path) -> None:
    """Its leader hangs and wakes, and is killed: the writer is not taken for fenced, and every chunk is read once."""
    live = f"{stream}-live"
    with chatledger.open(cluster.place(stream), create=True, timeout_s=30, index=tmp_path) as ledger:
        ledger.create_chat("c", "u")
        with ledger.live("c", id="s") as answer:

            def write(count: int) -> None:
                for _ in range(count):
                    answer.write(f"{answer.chunk_count},")
                    answer.flush()

            for fault, cure in [("SIGSTOP", "SIGCONT"), ("SIGKILL", None)] * 2:
                name = cluster.leader(live)
                cluster.nodes[name].send(signal.Signals[fault])
                write(20)
                if cure is None:
                    cluster.start(name)
                else:
                    cluster.nodes[name].send(signal.Signals[cure])
                write(200)
                cluster.wait_until_whole(live)
            written = answer.chunk_count
            answer.commit()
        found = [chunk.data for chunk in ledger.read_live("c", "s")]
    assert [f"{number}," for number in range(written)] == found


@pytest.mark.soak
def test_reads_from_followers(cluster: Cluster, stream: str, tmp_path: Path) -> None:
    """Whoever asks one server only, which may be behind, gets everything up to the position that the leader has, each time."""
    with contextlib.ExitStack() as opened:
        ledger = opened.enter_context(chatledger.open(cluster.place(stream), create=True, index=tmp_path / "all"))
        ledger.create_chat("c", "u")
        pinned = [
            opened.enter_context(chatledger.open(cluster.place(stream, first=name), index=tmp_path / name))
            for name in NAMES
        ]
        written: list[str] = []
        for number in range(40):
            written += [message.text for message in ledger.append("c", [text(f"a {number}"), text(f"b {number}")])]
            for other in pinned:
                other.sync()
                assert texts(other, "c") == written
                positions = [recorded.position for recorded in other.history("c")]
                assert positions == list(range(1, ledger.last_position() + 1))


@pytest.mark.skipif(not IS_SOAK, reason="make soak runs it: it waits for a majority again")
def test_without_a_majority(cluster: Cluster, stream: str, tmp_path: Path) -> None:
    """Two of three are gone: an append is no success and no hang, and it is stored once when they are back."""
    with chatledger.open(cluster.place(stream), create=True, timeout_s=3, index=tmp_path) as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [text("before")])
        gone = [cluster.leader(stream), cluster.follower(stream)]
        for name in gone:
            cluster.nodes[name].send(signal.SIGKILL)
        with pytest.raises(LogUnavailableError):
            ledger.append("c", [text("during", id="m")])
        for name in gone:
            cluster.start(name)

        def is_stored() -> bool:
            try:
                ledger.append("c", [text("during", id="m")])
            except LogUnavailableError:
                return False
            return True

        eventually(is_stored, within_s=READY_S)
        assert texts(ledger, "c") == ["before", "during"]


@pytest.mark.skipif(not IS_SOAK, reason="make soak runs it: it waits for servers")
def test_a_damaged_replica_is_found_and_healed(cluster: Cluster, stream: str, tmp_path: Path) -> None:
    """
    One bit of one server's copy flips while it is down. It rejoins as if nothing were (the server says nothing), and the
    comparison names it and what it lacks. Without its copy it takes that of the others.
    """
    place = cluster.place(stream)
    with chatledger.open(place, create=True, compression="none", timeout_s=30, index=tmp_path / "index") as ledger:
        ledger.create_chat("c", "u")
        for number in range(200):
            ledger.append("c", [text(f"message {number} " + "x" * 300)])
        last = ledger.last_position()
    assert admin.compare_replicas(place) == []
    name = cluster.follower(stream)
    node = cluster.nodes[name]
    node.send(signal.SIGTERM)  # after a kill it reads its Raft log again, and heals what is still there
    block = node.blocks(stream)[0]
    content = bytearray(block.read_bytes())
    content[content.index(b"message 100 ")] ^= 1
    block.write_bytes(content)
    cluster.start(name)
    cluster.wait_until_whole(stream)

    (damage,) = admin.compare_replicas(place, page=64)
    assert (damage.server, damage.stream, damage.altered) == (name, stream, ())
    assert damage.missing
    assert f"server {name!r}, stream {stream!r}: lacks" in str(damage)
    # Who comes across the hole is told so, and never goes on without what is missing; other servers have it.
    try:
        with chatledger.open(cluster.place(stream, first=name), index=tmp_path / "fresh") as fresh:
            assert fresh.verify().position == last
    except chatledger.ChainIntegrityError as error:
        print(error)

    node.send(signal.SIGTERM)
    shutil.rmtree(node.store)  # not the stream's folder alone: its Raft group would believe that nothing is missing
    cluster.start(name)
    eventually(lambda: admin.compare_replicas(place) == [], within_s=READY_S)


@pytest.mark.skipif(not IS_SOAK, reason="make soak runs it: it waits for servers")
def test_a_damaged_replica_is_set_aside_and_grows_again(cluster: Cluster, stream: str, tmp_path: Path) -> None:
    """
    Only of the server that is stopped, while the others agree: its copy moves into the quarantine of its store, other streams
    stay, and after the start it has what the others have. However often they are compared, nobody else is named.
    """
    place = cluster.place(stream)
    with chatledger.open(place, create=True, compression="none", timeout_s=30, index=tmp_path / "index") as ledger:
        ledger.create_chat("c", "u")
        for number in range(200):
            ledger.append("c", [text(f"message {number} " + "x" * 300)])
    name = cluster.follower(stream)
    node = cluster.nodes[name]
    with pytest.raises(ConfigurationError, match="is running; stop it"):
        admin.set_replica_aside(place, name, node.store, timeout_s=2)
    node.send(signal.SIGTERM)
    block = node.blocks(stream)[0]
    content = bytearray(block.read_bytes())
    content[content.index(b"message 100 ")] ^= 1
    block.write_bytes(content)
    cluster.start(name)
    cluster.wait_until_whole(stream)
    for _ in range(4):
        assert {(damage.server, damage.stream) for damage in admin.compare_replicas(place, page=64)} == {(name, stream)}

    node.send(signal.SIGTERM)
    other = next(one for one in cluster.nodes.values() if one is not node)
    with pytest.raises(ConfigurationError, match="keeps no copy"):
        admin.set_replica_aside(place, "nobody", node.store)
    with pytest.raises(ConfigurationError, match="is not the store_dir"):
        admin.set_replica_aside(place, name, tmp_path)
    with pytest.raises(ConfigurationError, match="is running; stop it"):
        admin.set_replica_aside(place, other.name, other.store, timeout_s=2)
    kept = run("--location", place, "doctor", "--repair", "--replica", name, "--store", node.store)
    assert kept.exit_code == 0
    (aside,) = node.store.glob(f"quarantine/*/jetstream/APP/streams/{stream}/msgs/*.blk")
    assert aside.read_bytes() == bytes(content)
    assert node.blocks("ready")
    cluster.start(name)
    cluster.wait_until_whole(stream)
    eventually(lambda: admin.compare_replicas(place) == [], within_s=READY_S)
    assert run("--location", place, "doctor", "--replicas").exit_code == 0
    for offline in (name, other.name):  # two of three are gone: the last one is no majority
        cluster.nodes[offline].send(signal.SIGTERM)
    with pytest.raises(chatledger.ChatledgerError):
        admin.set_replica_aside(place, name, node.store, timeout_s=3)
    for offline in (name, other.name):
        cluster.start(offline)


@pytest.mark.soak
@pytest.mark.parametrize("count", [501, 5000, _only_in_soak(100_000)])
def test_replicas_of_logs_longer_than_a_batch(count: int, cluster: Cluster, stream: str, tmp_path: Path) -> None:
    """They are read in batches of 500, from each server: all of it is compared, and what one of them lacks is found."""
    place = cluster.place(stream)
    with chatledger.open(place, create=True, timeout_s=30, index=tmp_path):
        pass
    client = JetStreamClient(cluster.endpoint, timeout_s=READY_S)
    try:
        client.connection(client.deadline())
        for first in range(1, count + 1, 500):
            pipeline = client.pipeline()
            for number in range(first, min(first + 500, count + 1)):
                pipeline.send((f"{stream}.e.foreign", {}, f"message {number} of many".encode()))
            assert all(isinstance(answer, tuple) for answer in pipeline.finish())
    finally:
        client.close()
    cluster.wait_until_whole(stream)
    assert cluster.info(stream)["state"]["last_seq"] == count
    assert admin.compare_replicas(place, timeout_s=READY_S) == []
    assert run("--location", place, "doctor", "--replicas").exit_code == 0

    node = cluster.nodes[cluster.follower(stream)]
    node.send(signal.SIGTERM)
    block = node.blocks(stream)[0]
    content = bytearray(block.read_bytes())
    content[content.index(b"message 500 ")] ^= 1
    block.write_bytes(content)
    cluster.start(node.name)
    cluster.wait_until_whole(stream)
    (damage,) = admin.compare_replicas(place, timeout_s=READY_S)
    assert (damage.server, damage.stream) == (node.name, stream)
    assert 500 in damage.missing
    node.send(signal.SIGTERM)
    kept = run("--location", place, "doctor", "--repair", "--replica", node.name, "--store", node.store)
    assert kept.exit_code == 0
    cluster.start(node.name)
    cluster.wait_until_whole(stream)
    eventually(lambda: admin.compare_replicas(place, timeout_s=READY_S) == [], within_s=READY_S)


@pytest.mark.soak
def test_replicas_are_chosen_and_checked(cluster: Cluster, stream: str, tmp_path: Path) -> None:
    """Three where three servers are named; what was asked for and is not there is refused."""
    with chatledger.open(cluster.place(stream), create=True, index=tmp_path / "1"):
        assert cluster.info(stream)["config"]["num_replicas"] == 3
        assert cluster.info(f"{stream}-blobs")["config"]["num_replicas"] == 3
        assert cluster.info(f"KV_{stream}-feeds")["config"]["num_replicas"] == 3
    single = new_name()
    with chatledger.open(cluster.place(single), create=True, replicas=1, index=tmp_path / "2"):
        assert cluster.info(single)["config"]["num_replicas"] == 1
    with chatledger.open(cluster.place(single), index=tmp_path / "2"):
        pass
    with pytest.raises(ConfigurationError, match=r"1 of 3 replicas.*nats stream edit"):
        chatledger.open(cluster.place(single) + "?replicas=3", index=tmp_path / "2")
    with pytest.raises(ConfigurationError, match="nothing to compare"):
        admin.compare_replicas(cluster.place(single))


def test_the_page_shows_what_is_started() -> None:
    """The configuration under test is the page's: with syncs, and with pings that notice a server that hangs."""
    shown = configuration()
    assert all(words in shown for words in ("sync_interval: always", 'ping_interval: "2s"', "@three:6222"))

"""Three servers of the documented configuration and three clients, behind a network of faults, for a while; then the judge."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from tests.faults.cluster_client import COUNTERS, REGISTERS, SHARED, ClientOrder
from tests.faults.cluster_judge import ClusterVerdict
from tests.faults.cluster_network import CLIENTS, Network, NetworkedCluster
from tests.faults.nursery import ROOT
from tests.support.cluster_world import NAMES, READY_S

import chatledger
from chatledger import ChatledgerError
from chatledger.jetstream import JetStreamClient

STREAM: Final = "nemesis"
_QUICK_S: Final = 8.0
_END_S: Final = 150.0


class Nemesis:
    """
    Servers, clients and what happens to them.

    Args:
        base: A folder of its own.
        seed: What all choices follow from; when a fault meets an operation is up to the machine.
    """

    def __init__(self, base: Path, seed: str) -> None:
        self.base, self.seed = base, seed
        self.faults: Counter[str] = Counter()
        self.findings: list[str] = []
        self._dice = Random(seed)
        self._network = Network(seed)
        self._cluster = NetworkedCluster(base, self._network)
        self._clients: dict[str, subprocess.Popen[bytes]] = {}
        self._lives: Counter[str] = Counter()
        self._log = (base / "nemesis.log").open("a", buffering=1)

    def run(self, seconds: float) -> None:
        """Start everything, let faults happen for so long, and end the clients in peace."""
        for name in NAMES:
            self._cluster.start(name)
        self._cluster.wait_until_ready()
        with chatledger.open(self.place, create=True, timeout_s=READY_S, index=self.base / "first") as ledger:
            for chat in (*REGISTERS, *SHARED, *COUNTERS):
                ledger.create_chat(chat, "u")
        for name in CLIENTS:
            self._start_client(name)
        time.sleep(3)
        end, left = time.monotonic() + seconds, list[Callable[[], None]]()
        while time.monotonic() < end:
            left = left or self._dice.sample(self._acts(), len(self._acts()))
            act = left.pop()
            print(f"{time.monotonic():.1f} {act.__name__}", file=self._log)
            act()
            self.faults[act.__name__.strip("_").replace("_", " ")] += 1
            self._network.heal()
            self._revive()
            time.sleep(self._dice.uniform(1, 5))
        self._end()

    @property
    def place(self) -> str:
        """The location, past the network."""
        return self._cluster.place(STREAM)

    def close(self) -> None:
        """End what still runs."""
        for process in self._clients.values():
            process.kill()
            process.wait()
        self._cluster.close()
        self._log.close()

    def judge(self) -> ClusterVerdict:
        """Let a process look that knows nothing but the journals and the public API."""
        command = [sys.executable, "-m", "tests.faults.cluster_judge", self.place, str(self.base)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)
        if done.returncode:
            return ClusterVerdict(findings=[f"the judge ended with {done.returncode}: {done.stderr[-2000:]}"])
        return msgspec.json.decode(done.stdout.splitlines()[-1], type=ClusterVerdict)

    # Clients

    def _start_client(self, name: str) -> None:
        self._lives[name] += 1
        order = ClientOrder(
            location=self._cluster.place_for(name, STREAM),
            index=str(self.base / f"index-{name}"),
            folder=str(self.base),
            name=name,
            life=self._lives[name],
            seed=f"{self.seed}/{name}/{self._lives[name]}",
            skew_s=self._dice.choice([0, -10, 300, -300]) if name == CLIENTS[-1] else 0,
        )
        with (self.base / f"{name}.log").open("ab") as log:
            self._clients[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.cluster_client", json.dumps(msgspec.to_builtins(order))],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )

    def _revive(self) -> None:
        for name in NAMES:
            if not self._cluster.nodes[name].is_running:
                self.findings.append(f"server {name} had ended by itself")
                self._cluster.start(name)
        for name, process in self._clients.items():
            if process.poll() is not None:
                said = (self.base / f"{name}.log").read_text()[-1000:]
                self.findings.append(f"client {name} ended with {process.returncode}: {said}")
                self._start_client(name)

    def _end(self) -> None:
        self._network.heal()
        if not self._is_whole(120):
            self.findings.append("the replicas were not current two minutes after the last fault")
        time.sleep(5)  # feeds read what came last
        (self.base / "stop").touch()
        for name, process in self._clients.items():
            try:
                code = process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self.findings.append(f"client {name} hangs")
                process.kill()
                continue
            if code:
                self.findings.append(
                    f"client {name} ended with {code}: {(self.base / f'{name}.log').read_text()[-1000:]}"
                )

    # Looking at the servers, past the network

    def _info(self) -> dict[str, Any]:
        client = JetStreamClient(self._cluster.endpoint, timeout_s=_QUICK_S)
        try:
            info = client.api(f"STREAM.INFO.{STREAM}", None, dict[str, Any], client.deadline())
            group: dict[str, Any] = info["cluster"]
            return group
        finally:
            client.close()

    def _leader(self) -> str:
        """The leader; in doubt any server."""
        with suppress(Exception):
            if (name := self._info().get("leader")) in NAMES:
                return str(name)
        return self._dice.choice(NAMES)

    def _follower(self) -> str:
        leader = self._leader()
        return self._dice.choice([name for name in NAMES if name != leader])

    def _is_whole(self, within_s: float) -> bool:
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            with suppress(Exception):
                group = self._info()
                peers = group.get("replicas", [])
                if (
                    group.get("leader")
                    and len(peers) == 2
                    and all(peer["current"] and not peer.get("offline") and not peer.get("lag") for peer in peers)
                ):
                    return True
            time.sleep(0.5)
        return False

    # Faults

    def _acts(self) -> list[Callable[[], None]]:
        return [
            *(self._isolate_leader, self._isolate_follower, self._part_leader_from_servers, self._bridge),
            *(
                self._only_hear_leader,
                self._only_speak_to_leader,
                self._part_all,
                self._cut_off_client,
                self._slow_down,
            ),
            *(self._kill_leader, self._kill_follower, self._kill_two, self._kill_all, self._stop_server),
            *(self._pause_leader, self._pause_two, self._step_down, self._wipe),
            *(self._kill_client, self._kill_client_and_remove_index, self._pause_client, self._back_up),
        ]

    def _wait(self, least: float, most: float) -> None:
        time.sleep(self._dice.uniform(least, most))

    def _isolate_leader(self) -> None:
        self._network.isolate({self._leader()})
        self._wait(5, 15)

    def _isolate_follower(self) -> None:
        self._network.isolate({self._follower()})
        self._wait(5, 15)

    def _part_leader_from_servers(self) -> None:
        """Clients still reach the leader, who does not know yet that there is another one."""
        leader = self._leader()
        self._network.cut((one, other) for one in NAMES for other in NAMES if leader in {one, other} and one != other)
        self._wait(5, 15)

    def _bridge(self) -> None:
        """Two do not see each other, and both see the third."""
        one, other = self._dice.sample(NAMES, 2)
        self._network.cut([(one, other), (other, one)])
        self._wait(5, 15)

    def _only_hear_leader(self) -> None:
        self._network.isolate({self._leader()}, "in")
        self._wait(5, 15)

    def _only_speak_to_leader(self) -> None:
        self._network.isolate({self._leader()}, "out")
        self._wait(5, 15)

    def _part_all(self) -> None:
        for name in NAMES:
            self._network.isolate({name})
        self._wait(3, 12)

    def _cut_off_client(self) -> None:
        self._network.isolate({self._dice.choice(CLIENTS)})
        self._wait(5, 25)

    def _slow_down(self) -> None:
        self._network.slow_down(0.1)
        self._wait(8, 15)

    @contextmanager
    def _gone(self, *names: str, number: int = signal.SIGKILL) -> Generator[None]:
        for name in names:
            self._cluster.nodes[name].send(number)
        try:
            yield
        finally:
            for name in names:
                self._cluster.start(name)

    def _kill_leader(self) -> None:
        with self._gone(self._leader()):
            self._wait(1, 8)

    def _kill_follower(self) -> None:
        with self._gone(self._follower()):
            self._wait(1, 8)

    def _kill_two(self) -> None:
        with self._gone(*self._dice.sample(NAMES, 2)):
            self._wait(1, 6)

    def _kill_all(self) -> None:
        with self._gone(*NAMES):
            self._wait(0, 3)

    def _stop_server(self) -> None:
        with self._gone(self._dice.choice(NAMES), number=signal.SIGTERM):
            self._wait(0, 3)

    @contextmanager
    def _paused(self, *pids: int) -> Generator[None]:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def _pid(self, name: str) -> int:
        process = self._cluster.nodes[name].process
        assert process is not None
        return process.pid

    def _pause_leader(self) -> None:
        with self._paused(self._pid(self._leader())):
            self._wait(3, 15)

    def _pause_two(self) -> None:
        with self._paused(*map(self._pid, self._dice.sample(NAMES, 2))):
            self._wait(3, 10)

    def _step_down(self) -> None:
        for _ in range(3):
            client = JetStreamClient(self._cluster.endpoint, timeout_s=_QUICK_S)
            with suppress(Exception):
                client.api(f"STREAM.LEADER.STEPDOWN.{STREAM}", None, dict[str, Any], client.deadline(_QUICK_S))
            client.close()
            self._wait(0.5, 3)

    def _wipe(self) -> None:
        """A server loses its disk. Only where the others are whole: a cluster promises to bear no more."""
        if not self._is_whole(60):
            print("not whole, nothing was wiped", file=self._log)
            return
        name = self._dice.choice(NAMES)
        with self._gone(name):
            shutil.rmtree(self._cluster.nodes[name].store)
        if not self._is_whole(90):
            self.findings.append(f"server {name} was wiped, and the replicas were not current 90 s later")

    def _kill_client(self) -> None:
        name = self._dice.choice(CLIENTS)
        self._clients[name].kill()
        self._clients[name].wait()
        self._start_client(name)

    def _kill_client_and_remove_index(self) -> None:
        name = self._dice.choice(CLIENTS)
        self._clients[name].kill()
        self._clients[name].wait()
        shutil.rmtree(self.base / f"index-{name}", ignore_errors=True)
        self._start_client(name)

    def _pause_client(self) -> None:
        with self._paused(self._clients[self._dice.choice(CLIENTS)].pid):
            self._wait(5, 20)

    def _back_up(self) -> None:
        with suppress(ChatledgerError), chatledger.open(self.place, timeout_s=20, index=self.base / "first") as ledger:
            ledger.backup(self.base / "backup")


def run_nemesis(base: Path, seed: str, seconds: float) -> tuple[Counter[str], ClusterVerdict]:
    """Run faults for so long; returns what happened and what the judge found."""
    base.mkdir(parents=True)
    nemesis = Nemesis(base, seed)
    try:
        nemesis.run(seconds)
        verdict = nemesis.judge()
    finally:
        nemesis.close()
    verdict.findings = nemesis.findings + verdict.findings
    return nemesis.faults, verdict

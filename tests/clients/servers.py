"""The two servers on one graph: `langgraph dev` in a temporary folder, and `chatledger serve` on a new directory."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import httpx

AGENT: Final = Path(__file__).with_name("agent.py")
START_TIMEOUT_S: Final = 120
PROGRAMS: Final = Path(sys.executable).parent


class Server(NamedTuple):
    """A server that listens, and the folder of the gates of its graph."""

    name: str
    url: str
    gates: Path

    def open_gate(self, name: str) -> None:
        """Let the run go on that holds at a gate."""
        (self.gates / name).touch()


@contextmanager
def langgraph_dev(folder: Path) -> Generator[Server]:
    """LangGraph's development server, which keeps all in memory."""
    folder.mkdir(parents=True)
    shutil.copy(AGENT, folder)
    (folder / "langgraph.json").write_text(json.dumps({"dependencies": ["."], "graphs": {"agent": "./agent.py:graph"}}))
    port = free_port()
    command: list[str | Path] = [
        PROGRAMS / "langgraph",
        "dev",
        "--no-browser",
        "--no-reload",
        "--n-jobs-per-worker",
        "20",
        "--port",
        str(port),
    ]
    quiet = {"LANGGRAPH_CLI_NO_ANALYTICS": "1", "LANGSMITH_TRACING": "false"}
    with started(command, folder, f"http://127.0.0.1:{port}", quiet) as server:
        yield server


@contextmanager
def chatledger_serve(folder: Path, origins: Sequence[str] = ()) -> Generator[Server]:
    """Our server, which pages of these origins may call."""
    folder.mkdir(parents=True)
    port = free_port()
    command: list[str | Path] = [PROGRAMS / "chatledger", "--location", folder / "ledger", "serve", "--port", str(port)]
    options = ["--graph", f"agent={AGENT}:graph", *(f"--cors={origin}" for origin in origins)]
    with started([*command, *options], folder, f"http://127.0.0.1:{port}", {}) as server:
        yield server


def free_port() -> int:
    """Return a port at which nothing listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
    return port


@contextmanager
def started(command: Sequence[str | Path], folder: Path, url: str, environment: Mapping[str, str]) -> Generator[Server]:
    """Run a server until the block ends; its output is in `server.log` of its folder."""
    gates = folder / "gates"
    gates.mkdir()
    environment = {**os.environ, **environment, "CLIENTS_GATES": str(gates), "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        wait_until_it_answers(process, url, folder / "server.log")
        yield Server(folder.name, url, gates)
    finally:
        process.terminate()
        process.wait(60)


def wait_until_it_answers(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """
    Ask until there is an answer.

    Raises:
        RuntimeError: It ended, or nothing answered in time; with the end of its log.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            httpx.get(f"{url}/ok").raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.1)
        else:
            return
    msg = f"{process.args!r} did not come up:\n{log.read_text()[-3000:]}"
    raise RuntimeError(msg)

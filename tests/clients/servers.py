"""The two servers on one graph: `langgraph dev` in a temporary folder, and `chatledger serve` on a new directory."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
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
def langgraph_dev(folder: Path, log: Path) -> Generator[Server]:
    """LangGraph's development server, which keeps all in memory; as many runs at a time as the program holds."""
    port, gates = free_port(), gates_in(folder)
    shutil.copy(AGENT, folder)
    (folder / "langgraph.json").write_text(json.dumps({"dependencies": ["."], "graphs": {"agent": "./agent.py:graph"}}))
    quiet = {"LANGGRAPH_CLI_NO_ANALYTICS": "1", "LANGSMITH_TRACING": "false", "CLIENTS_GATES": str(gates)}
    options = ["--no-browser", "--no-reload", "--n-jobs-per-worker", "20", "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    with listening([str(PROGRAMS / "langgraph"), "dev", *options], folder, f"{url}/ok", log, quiet):
        yield Server("langgraph", url, gates)


@contextmanager
def chatledger_serve(folder: Path, log: Path, origins: Iterable[str] = ()) -> Generator[Server]:
    """Our server on a new directory, which pages of these origins may call."""
    port, gates = free_port(), gates_in(folder)
    options = ["--port", str(port), "--graph", f"agent={AGENT}:graph", *(f"--cors={origin}" for origin in origins)]
    command = [str(PROGRAMS / "chatledger"), "--location", str(folder / "ledger"), "serve", *options]
    url = f"http://127.0.0.1:{port}"
    with listening(command, folder, f"{url}/ok", log, {"CLIENTS_GATES": str(gates)}):
        yield Server("chatledger", url, gates)


def gates_in(folder: Path) -> Path:
    """Make the folder of a server, and that of the gates in it."""
    gates = folder / "gates"
    gates.mkdir(parents=True)
    return gates


def free_port() -> int:
    """Return a port at which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


@contextmanager
def listening(
    command: Sequence[str], folder: Path, url: str, log: Path, environment: Mapping[str, str] | None = None
) -> Generator[None]:
    """
    Run a server in a folder until the block ends, from when it answers at an address.

    Raises:
        RuntimeError: It ended, or nothing answered in time; with the end of its log.
    """
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **(environment or {})}, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not responds(url):
            if process.poll() is not None or time.monotonic() > deadline:
                msg = f"{command[0]} did not come up:\n{log.read_text()[-3000:]}"
                raise RuntimeError(msg)
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(60)


def responds(url: str) -> bool:
    """Whether a server is there, and well."""
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False

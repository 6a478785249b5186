"""A server of graphs in a process, at one address, which is killed and served again."""

import signal
from pathlib import Path
from typing import Self

from tests.support.cli_world import finish, start

from chatledger.infra.entrypoints.http.serving import listen


class KilledServer:
    """
    A server, which is there within `with`.

    Args:
        folder: Where its ledger and its program are.
        program: Python code that has a `graph`.
        names: The names under which that is served.
    """

    def __init__(self, folder: Path, program: str, *names: str) -> None:
        path = folder / "program.py"
        path.write_text(program)
        with listen("127.0.0.1", 0) as free:
            port = free.getsockname()[1]
        self.url, self.location = f"http://127.0.0.1:{port}", f"sqlite:///{folder / 'ledger.db'}"
        graphs = [part for name in names for part in ("--graph", f"{name}={path}:graph")]
        self._command = ["--location", self.location, "serve", "--port", str(port), *graphs]

    def __enter__(self) -> Self:
        self._process = start(*self._command)
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith("serving ")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        finish(self._process)

    def restart(self) -> None:
        """Kill the server, and serve again."""
        self._process.send_signal(signal.SIGKILL)
        finish(self._process)
        self.__enter__()

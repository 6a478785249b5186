"""
Processes that begin at once: children of one that has everything imported, and nothing open.

Starting Python and importing takes a second on a busy machine, most of a short life.
"""

import faulthandler
import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from tests.faults.writing import Order, run

import chatledger

ROOT: Final = Path(__file__).resolve().parents[2]


class Child:
    """A process of a nursery; `code` is set when it has ended, as `subprocess` does it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None
        self.is_doomed = False


class Nursery:
    """Starts writers, and says how they ended."""

    def __init__(self) -> None:
        self._children: dict[int, Child] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.nursery"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ask(self, question: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, order: Order, log: Path) -> Child:
        """Start a writer; what it prints goes to a file."""
        child = Child(self._ask({"order": msgspec.to_builtins(order), "log": str(log)}))
        self._children[child.pid] = child
        return child

    def reap(self) -> None:
        """Set the codes of those that have ended."""
        for pid, code in self._ask(None):
            self._children.pop(pid).code = code

    def close(self) -> None:
        """Kill those that still live."""
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _fork(order: dict[str, Any], log: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for number, target in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
            os.dup2(number, target)
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        run(msgspec.convert(order, Order))
        code = 0
    except BaseException:  # noqa: BLE001 - nothing may get into the loop of the parent
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(code)


def _ended() -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not pid:
            return found
        found.append((pid, os.waitstatus_to_exitcode(status)))


def main() -> None:
    """Start a child for every order, and tell of those that ended when asked."""
    chatledger.open("memory:").close()  # what is imported late is imported now
    for line in sys.stdin:
        question = json.loads(line)
        answer = _ended() if question is None else _fork(question["order"], question["log"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

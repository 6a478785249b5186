"""Deaths at chosen points: inside an append, a rebuild, the switch of generations, an erasure."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from chatledger.infra.log.nats.event_log import JetStreamAppends, JetStreamLog
from chatledger.infra.store.erasure import Eraser
from chatledger.projections import index as index_module
from chatledger.projections.chat.writer import ChatWriter
from chatledger.projections.generations import Generation, Generations
from chatledger.projections.index import Index
from chatledger.projections.lmdb.environment import Environment
from chatledger.projections.lmdb.scrub import PageFile
from chatledger.projections.projector import Projector

POINTS: Final[dict[str, tuple[Any, str, bool]]] = {
    "append: before the publish": (JetStreamLog, "append", True),
    "append: after the publish": (JetStreamLog, "append", False),
    "group: sent": (JetStreamAppends, "finish", True),
    "group: acknowledged": (JetStreamAppends, "finish", False),
    "group: applied": (Projector, "take_all", False),
    "project: before the transaction": (Projector, "take", True),
    "project: inside the transaction": (ChatWriter, "apply", False),
    "project: before the commit": (index_module, "apply_events", False),
    "project: after the commit": (Projector, "take", False),
    "rebuild: begun": (Index, "_fill", True),
    "rebuild: filled": (Index, "_fill", False),
    "switch: before the new name": (Generations, "publish", True),
    "switch: after the new name": (Generations, "publish", False),
    "switch: before the commit": (Generation, "retire", False),
    "switch: after the commit": (Generations, "remove_unused", True),
    "erase: before the log": (JetStreamLog, "erase", True),
    "erase: after the log": (JetStreamLog, "erase", False),
    "erase: noted": (Index, "finish_erasure", False),
    "erase: before the scrub": (Eraser, "_scrub", True),
    "erase: inside the scrub": (PageFile, "_overwrite", True),
    "close: before the sync": (Environment, "close", True),
}
"""Name to (class or module, function, whether before or after it)."""


class Death(NamedTuple):
    """A death: at the n-th passage of a point, of this process or of its server."""

    point: str
    passage: int
    victim: str


def server_pid(path: Path) -> int | None:
    """The process of the embedded server of a directory; None when none is known."""
    return _pid(path, "server_pid")


def owner_pid(path: Path) -> int | None:
    """The process that owns a directory; None when none is known."""
    return _pid(path, "owner_pid")


def _pid(path: Path, name: str) -> int | None:
    try:
        return int(json.loads((path / "endpoint.json").read_bytes())[name])
    except (OSError, ValueError):
        return None


def kill_server(path: Path) -> None:
    """Kill -9 of the embedded server of a directory, which must be known."""
    pid = server_pid(path)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def kill(pid: int | None) -> bool:
    """Kill -9; False when there is no such process any more."""
    if pid is None:
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def arm(death: Death, note: Callable[[Death], None], server: Callable[[], int | None]) -> None:
    """Let the victim die at its point. `note` is called before it; `server` gives the process of the server."""
    owner, name, is_before = POINTS[death.point]
    original = getattr(owner, name)
    passages = 0

    def pass_by() -> None:
        nonlocal passages
        passages += 1
        if passages != death.passage:
            return
        pid = os.getpid() if death.victim == "self" else server()
        if pid is not None:
            note(death)
            kill(pid)

    def deadly(*args: Any, **kwargs: Any) -> Any:
        if is_before:
            pass_by()
        answer = original(*args, **kwargs)
        if not is_before:
            pass_by()
        return answer

    setattr(owner, name, deadly)

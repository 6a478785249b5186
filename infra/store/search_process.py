"""A process that fills the search index while this one writes what is to be searched."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Final

from chatledger.projections.index import Index

from .inverting import usable_processes

_SERVE: Final = "from chatledger.infra.store.search_process import serve; serve()"
_PAUSE_S: Final = 3.0
"""Time between two looks: what came meanwhile is taken in together, as small parts would have to be merged."""


@contextlib.contextmanager
def filling_search(folder: Path, identity: str) -> Generator[None]:
    """
    A time in which another process takes messages into the search index that this one leaves out; none where no more can run.

    It ends with the time, when all are in, and with this process. What it does not come to, whoever completes the index does.

    Args:
        folder: The folder of the index.
        identity: That of its log.
    """
    process: subprocess.Popen[bytes] | None = None
    if usable_processes() > 1 and not getattr(sys, "frozen", False) and sys.executable:
        path = [os.path.realpath(entry) for entry in sys.path]
        with contextlib.suppress(OSError):  # no process or no memory is left
            process = subprocess.Popen(  # noqa: S603 - this interpreter, and a program of ours
                [sys.executable, "-P", "-c", _SERVE, str(folder), identity],
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
                start_new_session=True,  # an interrupt from the keyboard is for this process, which ends the other one
            )
    if process is None:
        yield
        return
    with process:
        try:
            yield
        except BaseException:
            process.kill()
            raise
        process.communicate()


def serve() -> None:
    """Fill the search index of the folder and the identity that the arguments name, until stdin is at its end."""
    is_over = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.buffer.read()
        is_over.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    index = Index(Path(sys.argv[1]), identity=sys.argv[2])
    try:
        if index.open() is None:
            index.fill_search(lambda: is_over.wait(_PAUSE_S))
    finally:
        index.close()

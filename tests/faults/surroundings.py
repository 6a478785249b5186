"""A server behind a bad network, and a disk that fills up."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path
from random import Random
from typing import Final

from tests.support.jetstream_world import TOKEN, Relay, Server

DISK_BYTES: Final = 512 * 1024 * 1024


class BadNetwork(Relay):
    """
    Some of the bytes are late, and connections end in the middle of things.

    `cuts` and `delays` count what it did.
    """

    def __init__(self, port: Callable[[], int], seed: str) -> None:
        self._rng = Random(seed)
        self.cuts = self.delays = 0
        self.is_bad = True
        super().__init__(port)

    def transfer(self, data: bytes, to: socket.socket, *, is_reply: bool) -> bool:
        """Pass on what one side sent: at once, late, or a part of it only."""
        chance = self._rng.random() if self.is_bad else 1.0
        if chance < 0.002:
            self.cuts += 1
            to.sendall(data[: self._rng.randrange(len(data))])
            return False
        if chance < 0.02:
            self.delays += 1
            time.sleep(self._rng.choice([0.02, 0.1, 0.5]))
        return super().transfer(data, to, is_reply=is_reply)


class RemoteServer:
    """A server that is nobody's child, behind a bad network; it comes back at its port when it was killed."""

    def __init__(self, base: Path, seed: str) -> None:
        self._server = Server(base / "server", jetstream="sync_interval: always").start()
        self._port = self._server.port
        self.network = BadNetwork(lambda: self._port, seed)
        self.location = f"nats://{TOKEN}@127.0.0.1:{self.network.port}"

    def kill(self) -> None:
        """Kill -9, and start it again."""
        self._server.kill()
        self._server.start(port=self._port)

    def close(self) -> None:
        """Stop it."""
        self.network.close()
        self._server.stop()


@contextlib.contextmanager
def small_disk(folder: Path, size_bytes: int = DISK_BYTES) -> Generator[Path | None]:
    """A file system of its own that is soon full; None where nothing can be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


def fill_up(disk: Path, *, leave_bytes: int = 0) -> int:
    """Take the space that is left on a disk, or all but so much; returns how much that was."""
    taken = 0
    with (disk / "filler").open("ab", buffering=0) as file:
        while True:
            space = os.statvfs(disk)
            left = space.f_bavail * space.f_frsize - leave_bytes
            if left <= 0:
                return taken
            try:
                taken += file.write(bytes(min(left, 1 << 20)))
            except OSError:
                return taken


def free(disk: Path) -> None:
    """Give it back."""
    (disk / "filler").unlink(missing_ok=True)

"""The generations of an index: numbered environments, of which one is current, so that a new one is built beside the old."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Generator
from pathlib import Path


class Generations:
    """A folder with one environment per generation and a file `CURRENT` that names the live one."""

    def __init__(self, root: Path) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root = root

    @property
    def current(self) -> int | None:
        """The live generation; None when there is none yet."""
        try:
            return int((self.root / "CURRENT").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def path(self, generation_no: int) -> Path:
        """Where a generation lies."""
        return self.root / f"{generation_no:06d}"

    def next(self) -> int:
        """The number of the next generation."""
        return max([0, *self._numbers()]) + 1

    def publish(self, generation_no: int) -> None:
        """Make a generation the current one, at once and for all processes."""
        draft = self.root / f"CURRENT.{os.getpid()}"
        with draft.open("w") as file:
            file.write(f"{generation_no}\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.root / "CURRENT")

    def remove_unused(self) -> None:
        """Delete the generations before the current one that no process has open any more."""
        for generation_no in self._numbers():
            if generation_no < (self.current or 0) and not _is_in_use(self.path(generation_no) / "in-use"):
                shutil.rmtree(self.path(generation_no), ignore_errors=True)

    @property
    def has_others(self) -> bool:
        """Whether there are generations besides the current one."""
        return len(self._numbers()) > 1

    @property
    def is_in_use(self) -> bool:
        """Whether a process has one of them open."""
        return any(_is_in_use(self.path(generation_no) / "in-use") for generation_no in self._numbers())

    def remove_others(self) -> bool:
        """
        Delete all but the current one, also what an interrupted build left; nobody may be building.

        Returns whether they are gone: those that a process still has open are not.
        """
        current = self.current
        for generation_no in self._numbers():
            if generation_no != current and not _is_in_use(self.path(generation_no) / "in-use"):
                shutil.rmtree(self.path(generation_no), ignore_errors=True)
        return all(generation_no == current for generation_no in self._numbers())

    @contextlib.contextmanager
    def building(self, *, is_waiting: bool = True) -> Generator[bool]:
        """
        Wait until no other process builds, and keep others waiting. Gives whether that is so now.

        Without `is_waiting` it may not be so: another one builds.
        """
        fd = os.open(self.root / "building", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | (0 if is_waiting else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(fd)

    def _numbers(self) -> list[int]:
        return sorted(int(entry.name) for entry in self.root.iterdir() if entry.name.isdigit())


def _is_in_use(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False

"""
A disk that knows what was flushed, for power cuts: a file system on a file in memory, which FUSE serves.

A cut gives an image of what would be on the disk now: all that was flushed, and of the sectors written since then none, all, or a
random half, in no order. The file system goes on undisturbed.
"""

import contextlib
import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from tests.faults.nursery import ROOT
from tests.support.jetstream_world import eventually

Keep = Literal["none", "all", "half"]
SIZE_MB: Final = 200
_SECTOR: Final = 512
_SPARSE: Final = 1 << 20
_START_S: Final = 20.0


class PowerDisk:
    """
    A file system on such a disk.

    Args:
        base: A folder of its own.

    Attributes:
        folder: Where the file system is mounted.

    Raises:
        AssertionError, subprocess.CalledProcessError: It takes root, FUSE and loop devices, see `why_missing`.
    """

    def __init__(self, base: Path) -> None:
        self.folder, self._fuse, self._base = base / "disk", base / "fuse", base
        self._number = 0
        for folder in (self.folder, self._fuse):
            folder.mkdir(parents=True)
        self._log = (base / "disk.log").open("ab")
        command = [sys.executable, "-m", "tests.faults.powerdisk", str(self._fuse)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=self._log, stderr=self._log)
        try:
            eventually(self._is_served, within_s=_START_S)
            _run("mkfs.ext4", "-q", self._fuse / "sectors")
            _run("mount", "-o", "loop", self._fuse / "sectors", self.folder)
        except BaseException:
            self.close()
            raise

    def _is_served(self) -> bool:
        assert self._process.poll() is None, (self._base / "disk.log").read_text()
        return (self._fuse / "sectors").exists()

    def cut(self, keep: Keep, seed: str) -> Path:
        """Return an image of what is on the disk when the power goes now."""
        self._number += 1
        image = self._base / f"cut-{self._number}.img"
        order = {"image": str(image), "keep": keep, "seed": seed}
        (self._fuse / "cut").write_text(json.dumps(order))
        return image

    def close(self) -> None:
        """Unmount it, and forget what it holds."""
        for folder in (self.folder, self._fuse):
            if os.path.ismount(folder):
                _run("umount", "--lazy", folder)
        self._process.terminate()
        self._process.wait()
        self._log.close()


@contextlib.contextmanager
def powered(base: Path) -> Generator[PowerDisk]:
    """Such a disk, while the block runs."""
    disk = PowerDisk(base)
    try:
        yield disk
    finally:
        disk.close()


def why_missing() -> str | None:
    """Why there can be no such disk here; None where there can be."""
    try:
        import mfusepy  # noqa: F401 - loads libfuse
    except (ImportError, OSError) as error:
        return f"a disk for power cuts takes mfusepy and libfuse: {error}"
    if os.geteuid() or not Path("/dev/fuse").exists() or not Path("/dev/loop-control").exists():
        return "a disk for power cuts takes root, /dev/fuse and /dev/loop-control"
    return None


def after_boot(image: Path, folder: Path, command: list[str]) -> list[str]:
    """The command that sees an image mounted at a folder, and another boot of the machine; it leaves no mounts behind."""
    boot = folder.with_name("boot_id")
    boot.write_text(f"{os.urandom(4).hex()}-{image.stem}\n")
    folder.mkdir(exist_ok=True)
    script = 'mount -o loop "$1" "$2" && mount --bind "$3" /proc/sys/kernel/random/boot_id && shift 3 && "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "after-boot", str(image), str(folder), str(boot), *command]


def _run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


class Sectors:
    """Content of the disk, the flushed part of it, and the sectors that were written since."""

    def __init__(self, size_bytes: int) -> None:
        self.content = np.zeros((size_bytes // _SECTOR, _SECTOR), np.uint8)
        self._flushed = self.content.copy()
        self._is_unflushed = np.zeros(len(self.content), np.bool_)

    def write(self, data: bytes, offset: int) -> None:
        """Take what is written, which may get lost."""
        self.content.reshape(-1)[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
        self._is_unflushed[offset // _SECTOR : -(-(offset + len(data)) // _SECTOR)] = True

    def flush(self) -> None:
        """Keep all that was written."""
        written = np.flatnonzero(self._is_unflushed)
        self._flushed[written] = self.content[written]
        self._is_unflushed[written] = False

    def cut(self, image: str, keep: Keep, seed: str) -> None:
        """Write an image of what is left: all that was flushed, and some of the rest."""
        unflushed = np.flatnonzero(self._is_unflushed)
        if keep == "half":
            dice = np.random.default_rng(list(seed.encode()))
            unflushed = unflushed[dice.random(len(unflushed)) < 0.5]
        left = self._flushed.copy()
        if keep != "none":
            left[unflushed] = self.content[unflushed]
        raw = left.reshape(-1)
        with Path(image).open("xb") as file:
            file.truncate(len(raw))
            for start in range(0, len(raw), _SPARSE):
                if raw[start : start + _SPARSE].any():
                    file.seek(start)
                    file.write(raw[start : start + _SPARSE].tobytes())


def serve(mountpoint: str) -> None:
    """Serve two files: `sectors`, the disk; and `cut`, which takes orders."""
    import mfusepy

    disk = Sectors(SIZE_MB << 20)

    class Files(mfusepy.Operations):
        """One thread serves all, so a cut is at one moment."""

        use_ns = True

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            if path == "/":
                return {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2}
            if path not in {"/sectors", "/cut"}:
                raise OSError(errno.ENOENT, path)
            return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1, "st_size": disk.content.size}

        def open(self, path: str, fi: Any) -> int:
            fi.direct_io = True  # the kernel is to keep nothing back
            return 0

        def truncate(self, path: str, length: int, fh: int | None = None) -> int:
            return 0

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return disk.content.reshape(-1)[offset : offset + size].tobytes()

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            if path == "/cut":
                disk.cut(**json.loads(data))
            else:
                disk.write(data, offset)
            return len(data)

        def fsync(self, path: str, datasync: int, fh: int) -> int:
            disk.flush()
            return 0

    mfusepy.FUSE(Files(), mountpoint, foreground=True, nothreads=True, raw_fi=True)


if __name__ == "__main__":
    serve(sys.argv[1])

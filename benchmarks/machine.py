"""Where a run took place."""

import os
import platform
import sqlite3
import statistics
import sysconfig
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import lmdb
import msgspec

from chatledger.infra.log.nats_server.launcher import ServerBinary, find_nats_server

_PACKAGES = ("chatledger", "nats-py", "msgspec", "lmdb")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine, and how long a write of 4 kB with its sync takes in the folder of the run."""

    system: str
    processor: str
    cores: int
    fsync_ms: float
    versions: dict[str, str]

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return (
            f"{self.cores} cores ({self.processor}), {self.system}, write and sync {self.fsync_ms:.2f} ms; {versions}"
        )


def describe_machine(folder: Path) -> Machine:
    """This machine."""
    versions = {
        "Python": f"{platform.python_version()} ({_build()})",
        "SQLite": sqlite3.sqlite_version,
        "nats-server": ServerBinary.at(find_nats_server()).version,
    }
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    versions["LMDB"] = ".".join(str(part) for part in lmdb.version())
    return Machine(
        system=f"{platform.system()} {platform.release().split('-')[0]}",
        processor=_processor(),
        cores=os.cpu_count() or 1,
        fsync_ms=_fsync_ms(folder / "sync"),
        versions=versions,
    )


def _build() -> str:
    """How the interpreter was built: another build of one version is up to a sixth faster."""
    flags = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    known = {"--enable-optimizations": "PGO", "--with-lto": "LTO"}
    made = [name for flag, name in known.items() if flag in flags]
    return ", ".join([platform.python_compiler(), *(made or ["neither PGO nor LTO"])])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _fsync_ms(path: Path) -> float:
    took: list[float] = []
    with path.open("wb") as stream:
        for _ in range(50):
            start = time.perf_counter()
            stream.write(bytes(4096))
            stream.flush()
            os.fsync(stream.fileno())
            took.append(time.perf_counter() - start)
    path.unlink()
    return statistics.median(took) * 1000

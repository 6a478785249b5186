"""A MariaDB server of the tests, on a socket in a folder of its own."""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

import pytest

_FOLDERS: Final = "/usr/sbin:/usr/bin:/usr/local/bin:/usr/local/sbin:/opt/homebrew/bin"
_PATIENCE_S: Final = 60


def _program(*names: str) -> str:
    for name in names:
        found = shutil.which(name) or shutil.which(name, path=_FOLDERS)
        if found is not None:
            return found
    pytest.skip(f"no {names[0]}: install Debian's mariadb-server to run the tests on MariaDB")


@contextlib.contextmanager
def running_mariadb(base: Path, *, user: str | None) -> Generator[Callable[[], str]]:
    """
    Run a server; yields what makes an empty database and returns its location.

    Args:
        base: A folder for its files.
        user: Who runs it; None for who runs the tests.
    """
    server, install = _program("mariadbd", "mysqld"), _program("mariadb-install-db", "mysql_install_db")
    if user is not None:
        shutil.chown(base, user)
    socket = base / "socket"
    common = ["--no-defaults", f"--datadir={base}/data"]
    installing = [install, *common, "--auth-root-authentication-method=normal", "--skip-test-db"]
    try:
        subprocess.run(installing, user=user, check=True, capture_output=True, cwd=base)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no MariaDB could be made: {error} {getattr(error, 'stderr', b'')!r}")
    # A socket in our own folder, and no port: nothing is shared with other servers.
    options = [f"--socket={socket}", "--skip-networking", "--skip-log-bin", f"--pid-file={base}/pid"]
    quick = ["--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync", "--innodb-buffer-pool-size=32M"]
    with (
        (base / "log").open("wb") as log,
        subprocess.Popen([server, *common, *options, *quick], user=user, stdout=log, stderr=log, cwd=base) as running,
    ):
        try:
            _connect(base, running).close()
            made: list[str] = []

            def new_database() -> str:
                name = f"test{len(made)}"
                with contextlib.closing(_connect(base, running)) as connection, connection.cursor() as cursor:
                    # The worst that a database may have: ids that differ in case, accents or spaces are one to it.
                    cursor.execute(f"CREATE DATABASE {name} CHARACTER SET latin1 COLLATE latin1_general_ci")
                made.append(name)
                return f"mysql+pymysql://root@localhost/{name}?unix_socket={socket}"

            yield new_database
        finally:
            running.terminate()
            running.wait(_PATIENCE_S)


def _connect(base: Path, server: "subprocess.Popen[bytes]") -> Any:
    import pymysql

    connect: Any = pymysql.connect  # without types
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        if (base / "socket").exists():  # without it PyMySQL leaves a socket open
            with contextlib.suppress(pymysql.OperationalError):
                return connect(user="root", unix_socket=str(base / "socket"), autocommit=True)
        is_hopeless = server.poll() is not None or time.monotonic() > deadline
        assert not is_hopeless, (base / "log").read_text()
        time.sleep(0.05)

"""PostgreSQL: parameters of locations, schemas, roles, locks, servers that freeze or restart, poolers, and older ledgers."""

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.ledger_world import refused

import chatledger
from chatledger import AccessDeniedError, ConfigurationError, LogUnavailableError, user
from chatledger.infra.store.opening.locations import log_at
from chatledger.infra.store.opening.options import LogOnly

psycopg: Any = pytest.importorskip("psycopg")
pytest.importorskip("sqlalchemy")


@pytest.fixture
def location(new_postgres_database: Callable[[], str]) -> str:
    """An empty database."""
    return new_postgres_database()


def fill(place: str, index: Path) -> None:
    with chatledger.open(place, index=index) as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [user("hello")])


def run(place: str, *statements: str) -> list[Any]:
    with psycopg.connect(place, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def as_role(location: str, role: str) -> str:
    return location.replace("postgres@", f"{role}@")


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_parameters_reach_the_server(location: str, scheme: str) -> None:
    """Those of libpq, by any name of the scheme."""
    place = location.replace("postgresql:", f"{scheme}:") + "&application_name=our%20ledger"
    with log_at(LogOnly(place)):
        assert [("our ledger",)] == run(
            location, "SELECT DISTINCT application_name FROM pg_stat_activity WHERE application_name LIKE 'our%'"
        )


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg"])
def test_unknown_parameters_are_refused(scheme: str, tmp_path: Path) -> None:
    place = f"{scheme}://ada:s3cret@db/x?shcema=tenant&sslmode=require"
    refused(place, ConfigurationError, "libpq, not shcema$", index=tmp_path / "index")


def test_nothing_goes_to_a_server_without_tls_that_was_to_have_it(tmp_path: Path) -> None:
    """It says that it has none; then not even the name of the user is sent."""
    received: list[bytes] = []

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(8)
            connection.sendall(b"N")
            received.append(connection.recv(1000))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=serve, args=(listening,))
        serving.start()
        port = listening.getsockname()[1]
        place = f"postgresql://ada:s3cret@127.0.0.1:{port}/x?sslmode=require"
        refused(place, LogUnavailableError, "SSL", index=tmp_path / "index", timeout_s=5)
        serving.join()
    assert [b""] == received


@pytest.mark.parametrize("name", ["tenant", "Tenant", "Big-One", 'odd "name', "%s"])
def test_a_schema_of_any_name(location: str, name: str, tmp_path: Path) -> None:
    quoted = name.replace('"', '""')
    run(location, f'CREATE SCHEMA "{quoted}"')
    place = f"{location}&schema={name.replace('%', '%25').replace(' ', '%20')}"
    fill(place, tmp_path / "index")
    with chatledger.open(place, index=tmp_path / "anew") as ledger:
        assert ["hello"] == [message.text for message in ledger.get_messages("trip")]
        ledger.delete_chat("trip")
        ledger.verify()
    with chatledger.open(location, index=tmp_path / "other") as ledger:
        assert ledger.get_chat("trip") is None


def test_a_schema_that_is_not_there(location: str, tmp_path: Path) -> None:
    refused(f"{location}&schema=nosuch", ConfigurationError, "no schema 'nosuch'", index=tmp_path / "index")


@pytest.mark.parametrize(
    ("tables", "hint"),
    [
        (["CREATE TABLE chatledger_log (one int PRIMARY KEY, id text)"], "older version"),
        (["CREATE TABLE chatledger_sql_log (one int PRIMARY KEY, id text)"], "older version"),
    ],
)
def test_a_ledger_of_an_older_version_is_refused(location: str, tables: list[str], hint: str, tmp_path: Path) -> None:
    run(location, *tables)
    refused(location, ConfigurationError, hint, index=tmp_path / "index")
    assert [(1,)] == run(location, "SELECT COUNT(*)::int FROM pg_tables WHERE schemaname = 'public'")


def test_older_versions_fail_on_these_tables(location: str, tmp_path: Path) -> None:
    """Writers that did not lock the counter began with these statements."""
    fill(location, tmp_path / "index")
    for statement in (
        "CREATE UNIQUE INDEX IF NOT EXISTS chatledger_events_idx ON chatledger_events (notification_id)",
        "INSERT INTO chatledger_log VALUES (1, 'x') ON CONFLICT DO NOTHING",
    ):
        with pytest.raises(psycopg.Error):
            run(location, statement)


@pytest.mark.guard
def test_roles(location: str, tmp_path: Path) -> None:
    """A login without the right to make tables uses those that are there, and one that may only read reads."""
    user_number = os.urandom(4).hex()
    writer, reader = f"writer{user_number}", f"reader{user_number}"
    run(location, *(f"CREATE ROLE {role} LOGIN" for role in (writer, reader)))
    refused(as_role(location, writer), AccessDeniedError, "permission denied", index=tmp_path / "none")
    fill(location, tmp_path / "index")
    run(
        location,
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {writer}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {reader}",
    )
    with chatledger.open(as_role(location, writer), index=tmp_path / "writer") as ledger:
        ledger.append("trip", [user("and more")])
    with chatledger.open(as_role(location, reader), index=tmp_path / "reader") as ledger:
        assert ["hello", "and more"] == [message.text for message in ledger.get_messages("trip")]
        with pytest.raises(AccessDeniedError, match="Nothing was written"):
            ledger.append("trip", [user("no")])


def test_opening_waits_for_nobody(location: str, tmp_path: Path) -> None:
    """Opening a ledger that is there makes nothing, so that a lock on its tables does not hold it up."""
    fill(location, tmp_path / "index")
    with psycopg.connect(location) as other:
        other.execute("LOCK TABLE chatledger_events IN ROW EXCLUSIVE MODE")
        with chatledger.open(location, index=tmp_path / "anew", timeout_s=5) as ledger:
            assert ledger.get_chat("trip")


def test_many_make_one_ledger(location: str) -> None:
    """Of several that open a new database at once none fails, and all find one log."""

    def opened(_: int) -> str:
        with log_at(LogOnly(location)) as log:
            return log.identity

    with ThreadPoolExecutor(8) as pool:
        assert 1 == len(set(pool.map(opened, range(16))))


@pytest.mark.guard
@pytest.mark.timeout(60)
def test_a_lock_of_others_ends_a_write_in_time(location: str, tmp_path: Path) -> None:
    with chatledger.open(location, index=tmp_path / "index", timeout_s=2) as ledger:
        ledger.create_chat("trip", "ada")
        with psycopg.connect(location) as other:
            other.execute("SELECT * FROM chatledger_counters FOR UPDATE")
            with pytest.raises(LogUnavailableError, match="lock"):
                ledger.append("trip", [user("hello")])
        ledger.append("trip", [user("again")])
        assert ["again"] == [message.text for message in ledger.get_messages("trip")]


class Proxy:
    """A socket before the server's own, which can freeze, and be gone for a while."""

    def __init__(self, folder: Path, server: str) -> None:
        self._path, self._server = str(folder / ".s.PGSQL.5432"), server
        self.is_frozen = threading.Event()
        self._ends: list[socket.socket] = []
        self.start()

    def start(self) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self._path)
        self._listening.listen()
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def stop(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        Path(self._path).unlink()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                self._ends += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                while self.is_frozen.is_set():
                    time.sleep(0.01)
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)
        source.close()


@pytest.fixture
def proxy(location: str) -> Iterator[Proxy]:
    folder = Path(location.partition("host=")[2])
    place = folder / "proxy"
    place.mkdir(exist_ok=True)
    made = Proxy(place, str(folder / ".s.PGSQL.5432"))
    yield made
    made.is_frozen.clear()
    made.stop()


@pytest.mark.guard
@pytest.mark.timeout(60)
def test_a_server_that_freezes(location: str, proxy: Proxy, tmp_path: Path) -> None:
    """A write ends in time, with an unknown outcome; the same ids again write it once."""
    with chatledger.open(f"{location}/proxy", index=tmp_path / "index", timeout_s=1) as ledger:
        ledger.create_chat("trip", "ada")
        proxy.is_frozen.set()
        started_s = time.monotonic()
        with pytest.raises(LogUnavailableError):
            ledger.append("trip", [user("hello", id="m1")])
        assert time.monotonic() - started_s < 20
        proxy.is_frozen.clear()
        ledger.append("trip", [user("hello", id="m1")])
        assert ["hello"] == [message.text for message in ledger.get_messages("trip")]
        ledger.verify()


@pytest.mark.guard
@pytest.mark.timeout(60)
def test_a_restart_is_no_outage(location: str, proxy: Proxy, tmp_path: Path) -> None:
    """Writing, reading, following and opening go on when the server is back."""
    place = f"{location}/proxy"
    with chatledger.open(place, index=tmp_path / "index", timeout_s=30) as ledger:
        ledger.create_chat("trip", "ada")
        feed = ledger.feed(after=ledger.position)
        proxy.stop()
        back = threading.Timer(1, proxy.start)
        back.start()
        with ThreadPoolExecutor(1) as pool:
            opening = pool.submit(fill_other, place, tmp_path)
            ledger.append("trip", [user("hello")])
            opening.result()
        back.join()
        assert next(iter(feed)).position == ledger.position
        feed.close()


def fill_other(place: str, folder: Path) -> None:
    with chatledger.open(place, index=folder / "other", timeout_s=30) as ledger:
        assert ledger.get_chat("trip")


def test_no_traceback_is_printed_for_a_connection_that_breaks(
    location: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with chatledger.open(location, index=tmp_path / "index") as ledger:
        ledger.create_chat("trip", "ada")
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        run(location, cut)
        ledger.append("trip", [user("hello")])
    assert "Traceback" not in capfd.readouterr().err


@pytest.fixture
def pooler(location: str) -> Iterator[str]:
    """The location by a PgBouncer that gives each transaction another of its sessions."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/bin")
    if program is None:
        pytest.skip("no pgbouncer: install Debian's pgbouncer")
    folder = Path(location.partition("host=")[2])
    place = folder / "pooler"
    place.mkdir(exist_ok=True)
    name = location.partition("@/")[2].partition("?")[0]
    (place / "users").write_text('"postgres" ""\n')
    (place / "ini").write_text(
        f"[databases]\n* = host={folder}\n[pgbouncer]\nlisten_addr =\nlisten_port = 5432\nunix_socket_dir = {place}\n"
        f"auth_type = any\nauth_file = {place}/users\npool_mode = transaction\ndefault_pool_size = 3\nlogfile = {place}/log\n"
    )
    account = "nobody" if os.geteuid() == 0 else None
    if account is not None:
        for path in (place, *place.iterdir()):
            shutil.chown(path, account)
    (place / "ini").write_text((place / "ini").read_text().replace("* = host", f"{name} = user=postgres host"))
    with subprocess.Popen([program, "-q", place / "ini"], user=account) as process:
        try:
            while not (place / ".s.PGSQL.5432").exists():
                assert process.poll() is None
                time.sleep(0.01)
            yield f"postgresql://postgres@/{name}?host={place}"
        finally:
            process.terminate()


def test_a_pooler(pooler: str, location: str, tmp_path: Path) -> None:
    """Sessions change from one transaction to the next, and carry nothing over: neither statements nor settings."""
    with ThreadPoolExecutor(6) as pool:

        def write(number: int) -> None:
            with chatledger.open(pooler, index=tmp_path / str(number)) as ledger:
                ledger.create_chat(f"c{number}", "ada")
                for text in range(20):
                    ledger.append(f"c{number}", [user(str(text))])

        list(pool.map(write, range(6)))
    with chatledger.open(location, index=tmp_path / "all") as ledger:
        assert 6 * 21 == ledger.verify().event_count
    settings = {
        run(pooler, f"SELECT current_setting('{name}')")[0][0]
        for name in ("lock_timeout", "statement_timeout")
        for _ in "abc"
    }
    assert {"0"} == settings

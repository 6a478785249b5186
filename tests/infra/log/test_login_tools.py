"""Backing up, restoring and the doctor where servers ask who comes: passwords, TLS, certificates, nkeys."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec import structs
from tests.support.backup_world import answers, fill
from tests.support.cli_world import run
from tests.support.secure_world import Authority, serving, user_key

import chatledger
from chatledger import AccessDeniedError, ConfigurationError, Login, admin
from chatledger.admin import Diagnosis
from chatledger.errors import LogRefusedError

Place = tuple[str, Login]
TLS = 'tls {{ cert_file: "{}", key_file: "{}", ca_file: "{}", verify: {} }}'


def by_password(base: Path) -> tuple[str, str, Login]:
    authority = Authority(base, "authority")
    certificate, key = authority.issue("server")
    tls = TLS.format(certificate, key, authority.file, "false")
    users = "authorization { users: [ { user: ada, password: secret } ] }"
    return f"{tls}\n{users}", "tls", Login(user="ada", password="secret", tls_ca=authority.file)


def by_certificate(base: Path) -> tuple[str, str, Login]:
    authority = Authority(base, "authority")
    certificate, key = authority.issue("server")
    ours, our_key = authority.issue("client")
    tls = TLS.format(certificate, key, authority.file, "true")
    return tls, "tls", Login(tls_ca=authority.file, tls_cert=ours, tls_key=our_key)


def by_nkey(base: Path) -> tuple[str, str, Login]:
    pair = user_key("tools")
    base.mkdir(parents=True, exist_ok=True)
    (base / "seed").write_bytes(pair.seed)
    return f"authorization {{ users: [ {{ nkey: {pair.public} }} ] }}", "nats", Login(nkey=base / "seed")


def by_token(_: Path) -> tuple[str, str, Login]:
    return "authorization { token: sesame }", "nats", Login(token="sesame")


WAYS: dict[str, Callable[[Path], tuple[str, str, Login]]] = {
    "password and TLS": by_password,
    "certificate": by_certificate,
    "nkey": by_nkey,
    "token": by_token,
}


@pytest.fixture(params=WAYS)
def guarded(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A server that asks who comes: the beginning of its locations, and a login that it lets in."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    configuration, scheme, login = WAYS[request.param](tmp_path / "secrets")
    with ExitStack() as stack:
        yield f"{scheme}://{stack.enter_context(serving(tmp_path / 'server', configuration))}", login


def kinds(found: Diagnosis) -> set[str]:
    return {finding.kind for finding in found.findings if finding.severity != "note"}


@pytest.mark.soak
def test_there_and_back(guarded: Place, tmp_path: Path) -> None:
    """A backup is taken with the login, restored with it, and the doctor looks at both; without it each says why not."""
    server, login = guarded
    with chatledger.open(f"{server}/one", create=True, login=login) as ledger:
        fill(ledger)
        ledger.backup(tmp_path / "backup")
        before = answers(ledger)
    admin.restore(tmp_path / "backup", f"{server}/two", login=login)
    with chatledger.open(f"{server}/two", login=login) as ledger:
        assert answers(ledger) == before
    found = admin.diagnose(f"{server}/two", login=login)
    assert (found.is_healthy, found.event_count) == (True, len(before["history"]))

    with pytest.raises(LogRefusedError):
        admin.restore(tmp_path / "backup", f"{server}/three")
    refused = admin.diagnose(f"{server}/two")
    assert kinds(refused) == {"log-refused"}
    assert "secret" not in str(refused)


@pytest.mark.soak
def test_the_commands_take_it_from_the_environment(
    guarded: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As every other command does; no secret is printed."""
    server, login = guarded
    with chatledger.open(f"{server}/one", create=True, login=login) as ledger:
        fill(ledger)
    for name, value in structs.asdict(login).items():
        if value and name != "inbox_prefix":
            monkeypatch.setenv(f"CHATLEDGER_{name.upper()}", str(value))
    place = ("--location", f"{server}/one")
    assert run(*place, "backup", tmp_path / "backup").exit_code == 0
    done = run("restore", tmp_path / "backup", f"{server}/two", "--json")
    assert (done.exit_code, json.loads(done.stdout)["event_count"]) == (0, 21)
    assert run("--location", f"{server}/two", "doctor").exit_code == 0
    assert run("--location", tmp_path / "data", "restore", tmp_path / "backup").exit_code == 0
    assert run("--location", tmp_path / "data", "doctor").exit_code == 0


def test_a_login_that_may_not(tmp_path: Path) -> None:
    """Who may only read can back up nothing into a stream: it is an error that names what is missing, and changes nothing."""
    users = (
        "authorization { users: [ { user: ada, password: secret },"
        ' { user: bo, password: secret, permissions { publish { deny: ["$JS.API.STREAM.CREATE.>"] } } } ] }'
    )
    with serving(tmp_path / "server", users) as address:
        with chatledger.open("memory:") as ledger:
            fill(ledger)
            ledger.backup(tmp_path / "backup")
        with pytest.raises(AccessDeniedError):
            admin.restore(tmp_path / "backup", f"nats://{address}/one", login=Login(user="bo", password="secret"))
        assert kinds(admin.diagnose(f"nats://{address}/one", login=Login(user="ada", password="secret"))) == {
            "log-refused"
        }


@pytest.mark.parametrize("place", ["data", "sqlite:///{}/a.db"])
def test_a_login_is_for_servers(tmp_path: Path, place: str) -> None:
    """Elsewhere it is a mistake, which is said before anything is made."""
    with chatledger.open("memory:") as ledger:
        fill(ledger)
        ledger.backup(tmp_path / "backup")
    location = place.format(tmp_path) if "://" in place else str(tmp_path / place)
    with pytest.raises(ConfigurationError, match="login, replicas and share are for nats"):
        admin.restore(tmp_path / "backup", location, login=Login(token="t"))
    with pytest.raises(ConfigurationError, match="login, replicas and share are for nats"):
        admin.diagnose(location, login=Login(token="t"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup"]

"""Logging in at servers: every way that NATS has, and every way in which it goes wrong, at once and with advice."""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.cli_world import run
from tests.support.ledger_world import text, texts
from tests.support.secure_world import DAY, Authority, Operated, serving, user_key

import chatledger
from chatledger import ConfigurationError, Login
from chatledger.errors import LogRefusedError

pytestmark = pytest.mark.timeout(60)
SECRET = "s3cret-hunter"
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "secure-nats.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder, "authority")


@pytest.fixture(scope="module")
def with_tls(folder: Path, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with TLS and a token."""
    certificate, key = authority.issue("server")
    tls = f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}\nauthorization {{ token: {SECRET} }}'
    with serving(tmp_path_factory.mktemp("tls"), tls) as address:
        yield address


@pytest.fixture(scope="module")
def with_certificates(folder: Path, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that wants to see the certificates of its clients, configured as the page about security says."""
    certificate, key = authority.issue("verifying")
    (tls,) = re.findall(r"```nginx\n(tls \{.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for shown, file in {"server.pem": certificate, "server-key.pem": key, "our-ca.pem": authority.file}.items():
        assert f'"/etc/nats/{shown}"' in tls
        tls = tls.replace(f"/etc/nats/{shown}", str(file))
    with serving(tmp_path_factory.mktemp("mtls"), tls) as address:
        yield address


def works(location: str, index: Path, login: Login | None = None) -> None:
    """A ledger can be made there, written and read."""
    with chatledger.open(location, create=True, index=index, login=login) as ledger:
        ledger.create_chat("c", "u")
        ledger.append("c", [text("hello")])
        assert texts(ledger, "c") == ["hello"]
        assert SECRET not in repr(ledger) + ledger.location


def refused(location: str, login: Login | None, match: str) -> None:
    """It is refused long before the time is over, with advice and without secrets."""
    with pytest.raises(LogRefusedError, match=match) as caught:
        chatledger.open(location, create=True, login=login, timeout_s=600)
    shown: BaseException | None = caught.value
    while shown is not None:
        assert SECRET not in str(shown) + repr(shown)
        shown = shown.__cause__


# TLS


@pytest.mark.parametrize("scheme", ["tls", "nats"])
def test_a_server_with_tls(scheme: str, with_tls: str, authority: Authority, tmp_path: Path) -> None:
    works(f"{scheme}://{SECRET}@{with_tls}/{scheme}", tmp_path, Login(tls_ca=authority.file))


def test_a_token_beside_the_location(with_tls: str, authority: Authority, tmp_path: Path) -> None:
    works(f"tls://{with_tls}/beside", tmp_path, Login(token=SECRET, tls_ca=str(authority.file)))


@pytest.mark.soak
def test_an_authority_that_is_not_known(with_tls: str, folder: Path) -> None:
    refused(f"tls://{SECRET}@{with_tls}", None, "not trusted.*tls_ca")
    refused(f"tls://{SECRET}@{with_tls}", Login(tls_ca=Authority(folder, "other").file), "not trusted")


@pytest.mark.guard
def test_no_tls_where_the_server_wants_it(with_tls: str) -> None:
    """nats-py begins TLS by itself then, and trusts whom the system trusts."""
    refused(f"nats://{SECRET}@{with_tls}", None, "tls_ca")


@pytest.mark.guard
@pytest.mark.parametrize(
    ("options", "match"),
    [({"host": "nats.example.com"}, "name the server as its certificate does"), ({"lasts": -DAY}, "expired.*renew")],
    ids=["of another host", "expired"],
)
def test_a_wrong_certificate(options: dict[str, Any], match: str, authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("wrong", **options)
    with serving(tmp_path, f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}') as address:
        refused(f"tls://{address}", Login(tls_ca=authority.file), match)


def test_tls_before_anything_is_said(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("first")
    tls = f'tls {{ cert_file: "{certificate}", key_file: "{key}", handshake_first: true }}'
    with serving(tmp_path, tls) as address:
        works(f"tls://{address}", tmp_path / "index", Login(tls_ca=authority.file, tls_first=True))


@pytest.mark.parametrize("login", [None, Login(tls_first=False)])
def test_a_server_without_tls_is_not_told_who_we_are(login: Login | None, authority: Authority) -> None:
    """Who stands in between could take the server's wish for TLS out of its greeting. (nats-py then sends the token in clear.)"""
    heard: list[bytes] = []
    greeting = b'INFO {"server_id":"x","server_name":"x","version":"2.15.1","headers":true,"max_payload":1048576}\r\n'
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            for _ in range(1):
                connection, _address = listener.accept()
                with connection:
                    connection.sendall(greeting)
                    connection.settimeout(20)
                    while data := connection.recv(4096):
                        heard.append(data)

        thread = threading.Thread(target=listen)
        thread.start()
        refused(f"tls://{SECRET}@127.0.0.1:{listener.getsockname()[1]}", login, "does not demand TLS")
        thread.join(30)

    assert b"".join(heard) == b""


# Certificates of clients


def test_a_certificate_of_ours(with_certificates: str, authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("client")
    works(f"tls://{with_certificates}", tmp_path, Login(tls_ca=authority.file, tls_cert=certificate, tls_key=key))


def test_no_certificate_that_the_server_trusts(with_certificates: str, authority: Authority, folder: Path) -> None:
    certificate, key = Authority(folder / "else", "stranger").issue("client")
    for login in (
        Login(tls_ca=authority.file),
        Login(tls_ca=authority.file, tls_cert=certificate, tls_key=key),
    ):
        refused(f"tls://{with_certificates}", login, "tls_cert and tls_key")


def test_certificates_are_read_again(authority: Authority, tmp_path: Path) -> None:
    """A renewed certificate counts from the next connection on."""
    certificate, key = authority.issue("renewing")
    login = Login(tls_ca=authority.file, tls_cert=certificate, tls_key=key)
    before = login.endpoint(("tls://x",)).tls
    authority.issue("renewing")
    assert login.endpoint(("tls://x",)).tls is not before


@pytest.mark.parametrize("name", ["tls_ca", "tls_cert"])
@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_files_that_are_no_certificates(name: str, content: bytes | None, authority: Authority, tmp_path: Path) -> None:
    file = tmp_path / "file.pem"
    if content is not None:
        file.write_bytes(content)
    _, key = authority.issue("unused")
    login = Login(tls_ca=file) if name == "tls_ca" else Login(tls_cert=file, tls_key=key)
    refused("tls://127.0.0.1:1", login, "PEM file")


# Users, nkeys and credentials


def test_a_user_and_its_password(tmp_path: Path) -> None:
    password = f"{SECRET}:/@#?%"
    quoted = f"{SECRET}%3A%2F%40%23%3F%25"
    with serving(tmp_path, f'authorization {{ users: [ {{ user: ada, password: "{password}" }} ] }}') as address:
        works(f"nats://ada:{quoted}@{address}/one", tmp_path / "1")
        works(f"nats://{address}/two", tmp_path / "2", Login(user="ada", password=password))
        refused(f"nats://ada:{SECRET}@{address}", None, "Check the token, password")
        refused(f"nats://eve:{quoted}@{address}", None, "Check the token, password")
        refused(f"nats://{address}", None, "Check the token, password")


def test_an_nkey(tmp_path: Path) -> None:
    key, other = user_key("ours"), user_key("theirs")
    (tmp_path / "ours.nk").write_bytes(key.seed + b"\n")
    (tmp_path / "theirs.nk").write_bytes(b"# the key of somebody else\n" + other.seed)
    with serving(tmp_path, f"authorization {{ users: [ {{ nkey: {key.public} }} ] }}") as address:
        works(f"nats://{address}", tmp_path / "index", Login(nkey=tmp_path / "ours.nk"))
        refused(f"nats://{address}", Login(nkey=tmp_path / "theirs.nk"), "nkey or credentials")


def test_credentials(tmp_path: Path) -> None:
    operated = Operated()
    with serving(tmp_path, operated.configuration) as address:
        good = operated.credentials(tmp_path / "good.creds")
        works(f"nats://{address}", tmp_path / "index", Login(creds=good))
        expired = operated.credentials(tmp_path / "expired.creds", lasts_s=-60)
        refused(f"nats://{address}", Login(creds=expired), "expired or revoked")
        misfit = operated.credentials(tmp_path / "misfit.creds", seed=user_key("other").seed)
        refused(f"nats://{address}", Login(creds=misfit), "nkey or credentials")


@pytest.mark.parametrize("kind", ["creds", "nkey"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe", SECRET.encode(), b"SUAB", b"-----BEGIN NATS USER JWT-----\n"])
def test_files_that_hold_no_login(kind: str, content: bytes, tmp_path: Path) -> None:
    """(nats-py looks for the beginning of credentials for ever, and blocks the process.)"""
    file = tmp_path / "file"
    file.write_bytes(content)
    refused("nats://127.0.0.1:1", Login(creds=file) if kind == "creds" else Login(nkey=file), str(file))


def test_missing_files() -> None:
    refused("nats://127.0.0.1:1", Login(creds="/no/such.creds"), "/no/such.creds")
    refused("nats://127.0.0.1:1", Login(nkey="/no/such.nk"), "/no/such.nk")
    refused("nats://127.0.0.1:1", Login(tls_ca="/no/such.pem"), "/no/such.pem")


# What does not belong together


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Login(user="ada"), "user and password"),
        (lambda: Login(password=SECRET), "user and password"),
        (lambda: Login(token=SECRET, nkey="x"), "token and nkey"),
        (lambda: Login(user="ada", password=SECRET, creds="x"), "user and creds"),
        (lambda: Login(tls_cert="x"), "tls_cert and tls_key"),
        (lambda: Login(token=""), "token"),
        (lambda: Login(inbox_prefix="a.>"), "inbox_prefix"),
        (lambda: Login(inbox_prefix="_INBOX."), "inbox_prefix"),
        (lambda: chatledger.open(f"nats://{SECRET}@127.0.0.1:1", login=Login(token=SECRET)), "both say who"),
        (lambda: chatledger.open("memory:", login=Login(token=SECRET)), "for nats://"),
        (lambda: chatledger.open("./x", login=Login(token=SECRET)), "for nats://"),
        (lambda: chatledger.open("./x", replicas=3), "for nats://"),
        (lambda: chatledger.open("nats://127.0.0.1:1", replicas=2), "1, 3 or 5"),
        (lambda: chatledger.open("nats://127.0.0.1:1", replicas=True), "1, 3 or 5"),
        (lambda: chatledger.open("nats://127.0.0.1:1/s?replicas=3", replicas=1), "say it once"),
        (lambda: chatledger.open(f"nats://127.0.0.1:1/s?token={SECRET}"), "not token"),
        (lambda: chatledger.open("nats://127.0.0.1:1", login=cast("Any", SECRET)), "chatledger.Login"),
        (lambda: Login.from_environment({"CHATLEDGER_TLS_FIRST": "perhaps"}), "TLS_FIRST"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_what_does_not_belong_together(
    make: Callable[[], object], match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=match) as caught:
        make()

    assert SECRET not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_environment() -> None:
    assert Login.from_environment({}) is None
    assert Login.from_environment({"CHATLEDGER_LOCATION": "x", "CHATLEDGER_TOKEN": ""}) is None
    found = Login.from_environment(
        {
            "CHATLEDGER_USER": "ada",
            "CHATLEDGER_PASSWORD": SECRET,
            "CHATLEDGER_TLS_CA": "ca",
            "CHATLEDGER_TLS_FIRST": "yes",
        }
    )
    assert found == Login(user="ada", password=SECRET, tls_ca="ca", tls_first=True)
    assert repr(found) == "Login(user='ada', password=…, tls_ca='ca', tls_first=True)"


def test_the_command_line_logs_in_by_the_environment(
    with_tls: str, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works(f"tls://{SECRET}@{with_tls}/cli", tmp_path, Login(tls_ca=authority.file))
    monkeypatch.setenv("CHATLEDGER_TOKEN", SECRET)
    monkeypatch.setenv("CHATLEDGER_TLS_CA", str(authority.file))
    result = run("--location", f"tls://{with_tls}/cli", "show", "c")

    assert "hello" in result.output
    assert SECRET not in result.output

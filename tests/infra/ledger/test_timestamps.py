"""Time stamps of anchors, by an authority that OpenSSL makes."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from msgspec.structs import replace
from rfc3161_client import HashAlgorithm, TimestampRequestBuilder
from tests.support.cli_world import fails, run

import chatledger
from chatledger import InvalidValueError, user
from chatledger.admin import Anchor, check_bundle, check_timestamp, stamped, timestamp_request
from chatledger.errors import ConfigurationError

pytestmark = pytest.mark.guard  # it makes keys, and runs programs

VERIFIER = Path(__file__).parents[3] / "tools" / "verify_bundle.py"
CONFIG = """
[req]
distinguished_name=name
[name]
[root]
basicConstraints=critical,CA:TRUE
keyUsage=critical,keyCertSign
[clock]
keyUsage=critical,digitalSignature
extendedKeyUsage=critical,timeStamping
[tsa]
serial=serial
default_policy=1.2.3.4.1
digests=sha256
signer_digest=sha256
ess_cert_id_alg=sha256
"""


class Authority:
    """A certificate authority, and a clock that it vouches for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.roots = folder, folder / "root.pem"
        folder.mkdir()
        (folder / "openssl.cnf").write_text(CONFIG)
        (folder / "serial").write_text("01")
        self._run("req -x509 -newkey rsa:2048 -nodes -keyout root.key -out root.pem -subj /CN=Root -extensions root")
        self._run("req -newkey rsa:2048 -nodes -keyout clock.key -out clock.csr -subj /CN=Clock")
        self._run(
            "x509 -req -in clock.csr -CA root.pem -CAkey root.key -CAcreateserial -out clock.pem -extfile openssl.cnf -extensions clock",
            is_configured=False,
        )

    def answer(self, request: bytes, *, further: str = "") -> bytes:
        (self.folder / "request").write_bytes(request)
        self._run(f"ts -reply -queryfile request -signer clock.pem -inkey clock.key -section tsa -out answer {further}")
        return (self.folder / "answer").read_bytes()

    def forge(self) -> None:
        """Write `forged.pem`, a certificate of another name with the number of the clock's; longer, as DER lists the shorter first."""
        number = x509.load_pem_x509_certificate((self.folder / "clock.pem").read_bytes()).serial_number
        self._run(
            f"req -x509 -newkey rsa:2048 -nodes -keyout f.key -out forged.pem -subj /O={'x' * 60}/OU={'x' * 60}/CN=Famous -set_serial {number}"
        )

    def _run(self, order: str, *, is_configured: bool = True) -> None:
        config = ["-config", "openssl.cnf"] if is_configured else []
        subprocess.run(["openssl", *order.split(), *config], cwd=self.folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tsa") / "a")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a ledger, its key, and an anchor of it."""
    folder = tmp_path_factory.mktemp("place")
    subprocess.run(
        ["openssl", "genpkey", "-algorithm", "ed25519", "-out", folder / "key"], check=True, capture_output=True
    )
    with chatledger.open(f"sqlite:///{folder}/chats.db") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", user("Where to?"))
        (folder / "anchor.json").write_text(ledger.anchor(folder / "key").to_json())
    return folder


@pytest.fixture
def anchor(place: Path) -> Anchor:
    return Anchor.from_json((place / "anchor.json").read_bytes())


def test_an_authority_says_when_it_was_there(anchor: Anchor, authority: Authority) -> None:
    with_stamp = stamped(anchor, authority.answer(timestamp_request(anchor)))

    again = Anchor.from_json(with_stamp.to_json())
    stamp = check_timestamp(again, authority.roots)
    assert again == with_stamp
    assert stamp is not None
    assert (stamp.authority, stamp.is_trusted) == ("CN=Clock", True)
    assert abs(stamp.at - anchor.created_at) < 3_600_000
    assert stamp == check_timestamp(with_stamp, authority.roots.read_bytes())
    twice = authority.roots.read_bytes() * 2  # as where files of certificates were put together
    assert stamp == check_timestamp(with_stamp, twice)
    unknown = check_timestamp(with_stamp)
    assert unknown is not None
    assert not unknown.is_trusted
    assert anchor.signed_bytes() == with_stamp.signed_bytes()


def test_a_stamp_travels_with_a_bundle(place: Path, anchor: Anchor, authority: Authority, tmp_path: Path) -> None:
    with_stamp = stamped(anchor, authority.answer(timestamp_request(anchor)))
    file = tmp_path / "trip.clb"
    with chatledger.open(f"sqlite:///{place}/chats.db") as ledger:
        ledger.bundle("trip", file, anchor=with_stamp)

    found = check_bundle(file).anchor
    assert found is not None
    assert check_timestamp(found, authority.roots) == check_timestamp(with_stamp, authority.roots)
    assert subprocess.run([sys.executable, VERIFIER, file], capture_output=True, check=False).returncode == 0


def test_a_stamp_that_does_not_hold_is_refused(anchor: Anchor, authority: Authority, tmp_path: Path) -> None:
    answer = authority.answer(timestamp_request(anchor))
    other = replace(anchor, signature=b"x" * 64)
    assert check_timestamp(anchor) is None
    refused: dict[str, Callable[[], object]] = {
        "has no time stamp": lambda: check_timestamp(anchor, authority.roots),
        "is not of the anchor": lambda: stamped(other, answer),
        "is none, or was refused": lambda: stamped(anchor, b"no stamp"),
        "a certificate that you trust": lambda: check_timestamp(
            stamped(anchor, answer), Authority(tmp_path / "another").roots
        ),
    }
    for words, call in refused.items():
        with pytest.raises(InvalidValueError, match=words):
            call()
    changed = bytearray(answer)
    changed[-10] ^= 1  # of the signature of the authority
    with pytest.raises(InvalidValueError, match="a certificate that you trust"):
        check_timestamp(stamped(anchor, bytes(changed)), authority.roots)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        check_timestamp(stamped(anchor, answer), tmp_path / "nowhere.pem")
    with pytest.raises(ConfigurationError, match="no certificate"):
        check_timestamp(stamped(anchor, answer), b"x")


def test_a_name_that_anybody_can_add_is_not_shown(anchor: Anchor, authority: Authority) -> None:
    """The certificates beside a stamp are signed by nobody: two of one number, and nobody knows whose it is."""
    authority.forge()
    answer = authority.answer(timestamp_request(anchor), further="-chain forged.pem")
    stamp = check_timestamp(stamped(anchor, answer), authority.roots)

    assert b"Famous" in answer
    assert stamp is not None
    assert (stamp.authority, stamp.is_trusted) == (None, True)


def test_a_refusal_of_the_authority_is_no_stamp(anchor: Anchor, authority: Authority) -> None:
    """It answers with a status, and without a stamp."""
    request = TimestampRequestBuilder().data(anchor.signature).hash_algorithm(HashAlgorithm.SHA512).build()
    with pytest.raises(InvalidValueError, match="was refused"):
        stamped(anchor, authority.answer(request.as_bytes()))


def test_in_a_shell(place: Path, authority: Authority, tmp_path: Path) -> None:
    anchor, request, answer, out, bundle = (
        *(place / "anchor.json",),
        *(tmp_path / name for name in ("a.tsq", "a.tsr", "stamped.json", "trip.clb")),
    )
    assert "has no time stamp" in run("timestamp", "check", anchor).stdout
    run("timestamp", "request", anchor, "-o", request)
    answer.write_bytes(authority.answer(request.read_bytes()))
    run("timestamp", "add", anchor, answer, "-o", out)
    said = run("timestamp", "check", out, "--roots", authority.roots).stdout
    assert said.startswith("There at the latest on ")
    assert "CN=Clock" in said
    location = f"sqlite:///{place}/chats.db"
    run("--location", location, "bundle", "create", "trip", "-o", bundle, "--anchor", out)
    assert "CN=Clock" in run("bundle", "verify", bundle, "--timestamp-roots", authority.roots).stdout
    assert "exists and is not overwritten" in fails(1, "timestamp", "request", anchor, "-o", request)
    assert "is none, or was refused" in fails(1, "timestamp", "add", anchor, request, "-o", tmp_path / "none")
    assert "no time stamp" in fails(1, "timestamp", "check", anchor, "--roots", authority.roots)

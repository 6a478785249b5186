"""Anchors: who can change the whole log and the index cannot change what was signed before."""

# White-box: events are erased from a memory log by hand.
# pyright: reportPrivateUsage=false

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from tests.support.ledger_world import internals
from tests.support.proof_world import KEY, OTHER, SqliteFile, fill, pem_of, public_pem_of, say, verify_at
from tests.support.salts import salts

import chatledger
from chatledger import ChainIntegrityError, ConfigurationError, InvalidValueError
from chatledger.admin import Anchor
from chatledger.domain.log.codec import decode_event, encode_event
from chatledger.domain.proof.anchors import stream_digest


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Anchor]:
    """A closed ledger in an SQLite file, and its anchor."""
    folder = tmp_path_factory.mktemp("template")
    with chatledger.open(SqliteFile(folder).location, compression="none") as ledger:
        fill(ledger)
        anchor = ledger.anchor(pem_of(KEY))
    return folder, anchor


@pytest.fixture
def file(template: tuple[Path, Anchor], tmp_path: Path) -> SqliteFile:
    shutil.copytree(template[0], tmp_path / "copy")
    return SqliteFile(tmp_path / "copy")


@pytest.fixture
def anchor(template: tuple[Path, Anchor]) -> Anchor:
    return template[1]


# What passes


@pytest.mark.parametrize("kind", ["memory", "sqlite", "directory"])
def test_a_log_that_went_on(kind: str, tmp_path: Path) -> None:
    """Whatever is written later, and after a rebuild, the log still has what was anchored."""
    location = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/log.db", "directory": str(tmp_path / "data")}[
        kind
    ]
    with chatledger.open(location) as ledger:
        assert ledger.verify(anchor=ledger.anchor(pem_of(KEY))).event_count == 0
        fill(ledger)
        anchor = ledger.anchor(pem_of(KEY))
        assert anchor.position == ledger.position
        assert {leaf.digest for leaf in anchor.leaves} == {
            stream_digest(name) for name in ("a", "b", "c", "gone", "last")
        }
        events = list(ledger.history("b"))
        leaf = anchor.leaf("b")
        assert leaf is not None
        assert (leaf.version, leaf.position, leaf.hash) == (events[-1].version, events[-1].position, events[-1].hash)
        ledger.append("b", [say("later")])
        ledger.create_chat("new", "ada")
        ledger.rebuild()
        found = ledger.verify(anchor=Anchor.from_json(anchor.to_json()), public_key=public_pem_of(KEY))
        assert found.erased_since_anchor == ()


@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_chats_deleted_since(kind: str, tmp_path: Path) -> None:
    """They are reported as erased, not as tampering, also when they were changed in between or begin anew."""
    with chatledger.open("memory:" if kind == "memory" else tmp_path / "data") as ledger:
        fill(ledger)
        anchor = ledger.anchor(pem_of(KEY))
        ledger.delete_chat("b")
        ledger.append("a", [say("later")])
        ledger.delete_chat("a")
        ledger.create_chat("a", "bob")
        ledger.delete_chat("gone")
        assert ledger.verify(anchor=anchor).erased_since_anchor == ("b", "a", "gone")
        later = ledger.anchor(pem_of(KEY))
        assert ledger.verify(anchor=later).erased_since_anchor == ()
        ledger.rebuild()
        assert ledger.verify(anchor=anchor).erased_since_anchor == ("b", "a", "gone")


def test_an_anchor_is_deterministic() -> None:
    """Two anchors of one position say the same, but for the time."""
    with chatledger.open("memory:") as ledger:
        fill(ledger)
        one, other = ledger.anchor(pem_of(KEY)), ledger.anchor(pem_of(KEY))
    assert (one.root, one.leaves, one.position) == (other.root, other.leaves, other.position)
    again = msgspec.structs.replace(other, created_at=one.created_at, signature=one.signature)
    assert again.to_json() == one.to_json()
    assert one.check_proof("a", one.proof("a"))


# What is found, with a new index that knows nothing


def truncate(file: SqliteFile) -> None:
    """The end of the log is cut off."""
    rows = file.rows()
    file.execute("DELETE FROM stored_events WHERE rowid > ?", rows[len(rows) // 2][0])


def swap_chats(file: SqliteFile) -> None:
    """Two events of two chats change places; each chat is as it was."""
    one = next(row[0] for row in file.rows() if row[1] == "a" and row[2] == 3)
    file.swap(one, next(row[0] for row in file.rows() if row[1] == "b" and row[2] == 3))


def false_tombstone(file: SqliteFile) -> None:
    """Somebody else's tombstone is put in place of a chat's last event, and claims to have erased the others."""
    _, _, _, topic, state = next(row for row in file.rows() if row[3].startswith("chatledger.chat_deleted"))
    *_, last = (row for row in file.rows() if row[1] == "b")
    event = decode_event(topic, state)
    forged = msgspec.structs.replace(
        event,
        originator_id="b",
        originator_version=last[2] + 1,
        previous_hash=bytes(32),
        body=msgspec.structs.replace(event.body, first_position=1, event_count=last[2]),
    )
    file.execute("DELETE FROM stored_events WHERE originator_id = 'b'")
    file.execute(
        "INSERT INTO stored_events (originator_id, originator_version, topic, state) VALUES ('b', ?, ?, ?)",
        last[2] + 1,
        topic,
        encode_event(forged, salts()).state,
    )


FORGERIES: dict[str, tuple[Callable[[SqliteFile], object], str]] = {
    "rewritten chat": (lambda file: file.rewrite("b", b"leeks", b"peaks"), "chat 'b' is not as it was"),
    "last event of all": (lambda file: file.rewrite("last", b"ada", b"eve"), "chat 'last' is not as it was"),
    "dropped chat": (
        lambda file: file.execute("DELETE FROM stored_events WHERE originator_id = 'b'"),
        stream_digest("b").hex()[:16],
    ),
    "dropped end of a chat": (
        lambda file: file.drop(max(row[0] for row in file.rows() if row[1] == "b")),
        stream_digest("b").hex()[:16],
    ),
    "truncated": (truncate, "not on the log, or end earlier"),
    "swapped chats": (swap_chats, "stand at other positions"),
    "false tombstone": (false_tombstone, "tombstone does not continue"),
}


@pytest.mark.matrix
@pytest.mark.parametrize(("damage", "says"), FORGERIES.values(), ids=FORGERIES)
def test_what_only_an_anchor_finds(
    damage: Callable[[SqliteFile], object], says: str, file: SqliteFile, anchor: Anchor
) -> None:
    """All hashes fit and the index was built from the forgery, so `verify` alone has nothing to compare with."""
    damage(file)
    file.drop_index()
    verify_at(file.location)
    with pytest.raises(ChainIntegrityError, match=says):
        verify_at(file.location, anchor)


def test_a_truncated_dense_log(tmp_path: Path) -> None:
    """The same where positions have no gaps."""
    path = tmp_path / "data"
    with chatledger.open(path) as ledger:
        fill(ledger)
    shutil.copytree(path / "log", tmp_path / "older")
    with chatledger.open(path) as ledger:
        ledger.append("a", [say("later")])
        anchor = ledger.anchor(pem_of(KEY))
    for name in ("log", "index", "witness"):
        shutil.rmtree(path / name)
    shutil.copytree(tmp_path / "older", path / "log")
    with pytest.raises(ChainIntegrityError, match="not on the log, or end earlier"):
        verify_at(str(path), anchor)


def test_an_anchor_says_what_the_index_knows(ledger: chatledger.Ledger) -> None:
    """The log is not read for it: what was lost there is found by verifying, with the anchor or without."""
    fill(ledger)
    anchor = ledger.anchor(pem_of(KEY))
    internals(ledger).log._events.erase("b", first=8, before=12)
    assert ledger.anchor(pem_of(KEY)).root == anchor.root
    with pytest.raises(ChainIntegrityError):
        ledger.verify(anchor=anchor)
    with pytest.raises(ChainIntegrityError):
        ledger.verify()


# Keys and signatures


@pytest.mark.parametrize("field", ["position", "created_at", "count", "root", "public_key", "signature", "leaves"])
def test_a_changed_anchor_is_refused(field: str, anchor: Anchor) -> None:
    """Every field is signed, or follows from one that is."""
    value = getattr(anchor, field)
    changed = value + 1 if isinstance(value, int) else value[::-1]
    with chatledger.open("memory:") as ledger, pytest.raises(InvalidValueError, match="anchor"):
        ledger.verify(anchor=msgspec.structs.replace(anchor, **{field: changed}))


def test_a_changed_key_id_is_refused(anchor: Anchor) -> None:
    """Whoever reads the file may go by it, and it is not signed: it follows from the key."""
    with pytest.raises(InvalidValueError, match="key id"):
        Anchor.from_json(anchor.to_json().replace(anchor.key_id, anchor.key_id[::-1]))


def test_an_anchor_of_somebody_else(anchor: Anchor, file: SqliteFile) -> None:
    """A forger can sign anew with a key of their own; who names the key they trust finds it."""
    file.rewrite("b", b"leeks", b"peaks")
    file.drop_index()
    with chatledger.open(file.location) as ledger:
        forged = ledger.anchor(pem_of(OTHER))
        ledger.verify(anchor=forged, public_key=public_pem_of(OTHER))
        with pytest.raises(InvalidValueError, match="another key"):
            ledger.verify(anchor=forged, public_key=public_pem_of(KEY))
        kept = msgspec.structs.replace(forged, public_key=anchor.public_key)
        with pytest.raises(InvalidValueError, match="signature"):
            ledger.verify(anchor=kept, public_key=public_pem_of(KEY))


def test_keys_that_can_not_be_used(ledger: chatledger.Ledger, tmp_path: Path, anchor: Anchor) -> None:
    """Each with what to do."""
    rsa = generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    locked = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    for key, says in (
        (tmp_path / "none.key", "openssl genpkey"),
        (b"no key", "no Ed25519 private key"),
        (rsa, "no Ed25519 private key"),
        (public_pem_of(KEY), "no Ed25519 private key"),
        (locked, "needs a password"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            ledger.anchor(key)
    with pytest.raises(ConfigurationError, match="no Ed25519 public key"):
        ledger.verify(anchor=anchor, public_key=pem_of(KEY))


def test_the_library_may_be_missing(ledger: chatledger.Ledger, monkeypatch: pytest.MonkeyPatch, anchor: Anchor) -> None:
    def find_nothing(_: str) -> None:
        """No module is installed."""

    monkeypatch.setattr("chatledger.infra.ledger.proof.find_spec", find_nothing)
    ledger.verify()
    with pytest.raises(ConfigurationError, match=r"chatledger\[crypto\]"):
        ledger.anchor(pem_of(KEY))
    with pytest.raises(ConfigurationError, match=r"chatledger\[crypto\]"):
        ledger.verify(anchor=anchor)


@pytest.mark.anyio
async def test_the_async_ledger_anchors(tmp_path: Path) -> None:
    async with chatledger.open_async(f"sqlite:///{tmp_path}/log.db") as ledger:
        await ledger.create_chat("a", "ada")
        anchor = await ledger.anchor(pem_of(KEY))
        assert (await ledger.verify(anchor=anchor)).chat_count == 1

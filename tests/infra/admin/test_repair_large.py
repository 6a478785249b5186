"""Repairing a log with large data, which lie in a stream of their own: they are carried over, and what is damaged is named."""

import os
import shutil
from pathlib import Path

import pytest
from tests.support.backup_world import block, changed, fill
from tests.support.soak import IS_SOAK

import chatledger
from chatledger import CorruptStateError, Encryption, admin, user
from chatledger.infra.log.nats_server.blocks import read_frames
from chatledger.infra.store.opening import STREAM

LARGE = {"mid": "m" * 300_000, "big": "".join(f"{number:08}" for number in range(200_000))}


def filled(data: Path, **options: object) -> None:
    with chatledger.open(data, durability="fast", compression="none", **options) as ledger:  # type: ignore[arg-type] # what the case is about
        fill(ledger)
        ledger.create_chat("large", "ada")
        for text in LARGE.values():
            ledger.append("large", [user(text)])
        ledger.append("large", [user("after the large ones")])


def blob_block(data: Path) -> Path:
    return next(data.glob(f"log/jetstream/$G/streams/{STREAM}-blobs/msgs/*.blk"))


def zero(file: Path, text: bytes, count: int = 64) -> None:
    with changed(file) as raw:
        at = raw.index(text)
        raw[at : at + count] = bytes(count)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["clear", "encrypted"])
@pytest.mark.parametrize("has_index", [False, True])
def test_large_data_are_carried_over(tmp_path: Path, kind: str, *, has_index: bool) -> None:
    """Damage in another chat loses nothing of the chats that have large data."""
    data = tmp_path / "data"
    options = {"encryption": Encryption(Encryption.new_key())} if kind == "encrypted" else {}
    filled(data, **options)
    with changed(block(data)) as raw:
        raw[len(raw) // 3 : len(raw) // 3 + 40] = bytes(40)
    if not has_index:
        shutil.rmtree(data / "index", ignore_errors=True)  # that of an encrypted ledger is in memory
    done = admin.repair(data, **options)  # type: ignore[arg-type] # as above

    assert "large" not in {*done.cut, *done.recreated}
    with chatledger.open(data, **options) as ledger:  # type: ignore[arg-type] # as above
        assert [message.text for message in ledger.get_messages("large")] == [*LARGE.values(), "after the large ones"]
        ledger.verify()
        assert [event.version for event in ledger.history("large")] == [1, 2, 3, 4]


@pytest.mark.guard
def test_large_data_whose_names_are_lost_are_found_by_what_they_are(tmp_path: Path) -> None:
    """The secret that their names depend on is damaged: a ledger misses them, and a repair names them anew."""
    data = tmp_path / "data"
    filled(data)
    file = blob_block(data)
    raw = bytearray(file.read_bytes())
    secret = next(
        span for span in read_frames(bytes(raw))[0] if b".b.names" in raw[span.offset : span.offset + span.length]
    )
    raw[secret.offset + 30 : secret.offset + secret.length - 8] = bytes(secret.length - 38)
    file.write_bytes(raw)

    done = admin.repair(data)

    assert (done.recreated, done.lost_data) == ((), ())  # the index has them too
    with chatledger.open(data) as ledger:
        ledger.verify()
        assert [*LARGE.values(), "after the large ones"] == [message.text for message in ledger.get_messages("large")]


@pytest.mark.guard
def test_what_no_event_needs_may_be_missing(tmp_path: Path) -> None:
    """The last deletion beside the log is cut off: opening says so, a repair finds all events whole, and then it opens."""
    data = tmp_path / "data"
    filled(data)
    with chatledger.open(data) as ledger:
        ledger.create_chat("kept", "ada")
        ledger.append("kept", [user("k" * 300_000)])
        ledger.delete_chat("large")
    file = blob_block(data)
    last = read_frames(file.read_bytes())[0][-1]
    assert not last.is_message
    os.truncate(file, last.offset)
    with pytest.raises(CorruptStateError, match="bytes are left of"):
        chatledger.open(data)

    done = admin.repair(data)

    assert (done.kept_as, done.lost_count) == (None, 0)
    with chatledger.open(data) as ledger:
        ledger.verify()
        assert ["k" * 300_000] == [message.text for message in ledger.get_messages("kept")]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["clear", "encrypted"] if IS_SOAK else ["encrypted"])
def test_damaged_large_data_are_named(tmp_path: Path, kind: str) -> None:
    """What is lost is said by chat and message; the message, and all that follows, is kept without them."""
    data = tmp_path / "data"
    options = {"encryption": Encryption(Encryption.new_key())} if kind == "encrypted" else {}
    filled(data, **options)
    with chatledger.open(data, **options) as ledger:  # type: ignore[arg-type] # what the case is about
        before = ledger.get_messages("large")
    with changed(blob_block(data)) as raw:
        raw[len(raw) - 400_000 : len(raw) - 399_000] = bytes(1000)
    shutil.rmtree(data / "index", ignore_errors=True)
    done = admin.repair(data, **options)  # type: ignore[arg-type] # as above

    (lost,) = done.lost_data
    assert (lost.chat_id, lost.message_id, lost.version) == ("large", before[1].id, 3)
    assert lost.size >= len(LARGE["big"])
    assert (done.cut, done.lost, done.lost_count) == (("large",), (), 0)
    assert any(f"message {before[1].id!r} of chat 'large'" in line for line in done.describe())
    admin.give_up(data, "large")
    with chatledger.open(data, **options) as ledger:  # type: ignore[arg-type] # as above
        ledger.verify()
        after = ledger.get_messages("large")
        assert [after[0].text, after[2].text] == [LARGE["mid"], "after the large ones"]
        assert "bytes were lost when the log was damaged" in after[1].text
        assert [message.id for message in after] == [message.id for message in before]


@pytest.mark.skipif(not IS_SOAK, reason="takes 20 seconds")
def test_the_index_has_damaged_large_data(tmp_path: Path) -> None:
    """An index brings back the message with all its data."""
    data = tmp_path / "data"
    filled(data)
    zero(blob_block(data), b"00010000")
    found = admin.diagnose(data)
    assert {finding.kind for finding in found.findings} >= {"file-damaged", "event-unreadable"}
    done = admin.repair(data)

    assert (done.recreated, done.cut, done.lost_data) == (("large",), (), ())
    with chatledger.open(data) as ledger:
        assert [message.text for message in ledger.get_messages("large")] == [*LARGE.values(), "after the large ones"]
        ledger.verify()


@pytest.mark.soak
def test_a_flipped_bit_beside_large_data(tmp_path: Path) -> None:
    """What the stream of large data says besides them is corrected like the rest."""
    data = tmp_path / "data"
    filled(data)
    with changed(blob_block(data)) as raw:
        raw[-20] ^= 1
    shutil.rmtree(data / "index")
    found = admin.diagnose(data)
    assert [finding.kind for finding in found.findings if finding.severity == "error"] == ["bit-flipped"]
    done = admin.repair(data)

    assert (len(done.corrected), done.lost_count, done.cut, done.lost_data) == (1, 0, (), ())
    with chatledger.open(data) as ledger:
        assert [message.text for message in ledger.get_messages("large")] == [*LARGE.values(), "after the large ones"]


@pytest.mark.soak
def test_large_data_that_nothing_says_are_complete(tmp_path: Path) -> None:
    """All parts are there, and the note behind them is not: a repair writes it anew, and loses nothing."""
    data = tmp_path / "data"
    filled(data)
    with chatledger.open(data) as ledger:
        before = [message.text for message in ledger.get_messages("large")]
    raw = blob_block(data).read_bytes()
    spans, _ = read_frames(raw)
    chunks = [span for span in spans if span.length > 10_000]
    blob_block(data).write_bytes(raw[: chunks[-1].offset + chunks[-1].length])
    (data / "seals").unlink()
    shutil.rmtree(data / "index")
    with pytest.raises(CorruptStateError, match="are missing"):
        chatledger.open(data)
    assert admin.repair(data).lost_count == 0
    with chatledger.open(data) as ledger:
        ledger.verify()
        assert [message.text for message in ledger.get_messages("large")] == before

"""Repairing a log with large data, which lie in a stream of their own: they are carried over, and what is damaged is named."""

import shutil
from pathlib import Path

import pytest
from tests.infra.backup_world import block, fill, word

import chatledger
from chatledger import Encryption, user
from chatledger.infra.locations import STREAM

LARGE = {"mid": "m" * 300_000, "big": "".join(f"{number:08}" for number in range(200_000))}


def filled(data: Path, **options: object) -> None:
    with chatledger.open(data, durability="fast", **options) as ledger:  # type: ignore[arg-type] # what the case is about
        fill(ledger)
        ledger.create_chat("large", "ada")
        for text in LARGE.values():
            ledger.append("large", [user(text)])
        ledger.append("large", [user("after the large ones")])


def blob_block(data: Path) -> Path:
    return next(data.glob(f"log/jetstream/$G/streams/{STREAM}-blobs/msgs/*.blk"))


def zero(file: Path, text: bytes, count: int = 64) -> None:
    raw = bytearray(file.read_bytes())
    at = raw.index(text)
    raw[at : at + count] = bytes(count)
    file.write_bytes(raw)


@pytest.mark.parametrize("kind", ["clear", "encrypted"])
@pytest.mark.parametrize("has_index", [False, True])
def test_large_data_are_carried_over(tmp_path: Path, kind: str, has_index: bool) -> None:
    """Damage in another chat loses nothing of the chats that have large data."""
    data = tmp_path / "data"
    options = {"encryption": Encryption(Encryption.new_key())} if kind == "encrypted" else {}
    filled(data, **options)
    raw = bytearray(block(data).read_bytes())
    raw[len(raw) // 3 : len(raw) // 3 + 40] = bytes(40)
    block(data).write_bytes(raw)
    if not has_index:
        shutil.rmtree(data / "index")
    done = chatledger.repair(data, **options)  # type: ignore[arg-type] # as above

    assert "large" not in {*done.cut, *done.recreated}
    with chatledger.open(data, **options) as ledger:  # type: ignore[arg-type] # as above
        assert [message.text for message in ledger.get_messages("large")] == [*LARGE.values(), "after the large ones"]
        ledger.verify()
        assert [event.version for event in ledger.history("large")] == [1, 2, 3, 4]

"""A repair says exactly what is lost: its account is compared with the files before the damage, record by record."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.backup_world import block, changed
from tests.support.soak import IS_SOAK

import chatledger
from chatledger import Encryption, admin, user
from chatledger.admin import Repair
from chatledger.infra.log.nats_server.blocks import (
    BlockRecord,
    Span,
    block_files,
    block_key,
    read_block_record,
    scan_block,
    subject_prefix,
)
from chatledger.infra.store.opening import STREAM

KEY = Encryption.new_key()


class Known(NamedTuple):
    """The event at a position: where in the files it is, and of which chat."""

    file: Path
    span: Span
    chat_id: str
    version: int


def filled(data: Path, seed: int, options: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Some chats written by turns, with branches and checkpoints; returns ids and texts of the messages by chat."""
    drawn = random.Random(seed)
    texts: dict[str, list[tuple[str, str]]] = {}
    with chatledger.open(data, durability="fast", **options) as ledger:
        for number in range(60):
            chat_id = f"c{drawn.randrange(5)}"
            if chat_id not in texts:
                ledger.create_chat(chat_id, "ada", title=f"about {chat_id}")
                texts[chat_id] = []
            (message,) = ledger.append(chat_id, [user(f"{chat_id} says {number} " * drawn.randrange(1, 6))])
            texts[chat_id].append((message.id, message.text))
            if drawn.random() < 0.2:
                ledger.fork(chat_id, message.id)
            if drawn.random() < 0.2:
                ledger.set_checkpoint(chat_id, f"p{drawn.randrange(3)}", message.id)
            if drawn.random() < 0.1:
                ledger.update_chat(chat_id, title=f"about {chat_id} since {number}")
    return texts


def known_records(data: Path, options: dict[str, Any]) -> dict[int, Known]:
    """Every record of the log by position, as the files and the history say."""
    folder = data / "log" / "jetstream" / "$G" / "streams" / STREAM
    found: dict[int, tuple[Path, Span]] = {}
    for file in block_files(folder):
        raw = file.read_bytes()
        for span in scan_block(raw, block_key(STREAM, int(file.stem)), subject_prefix(STREAM)).spans:
            if isinstance(read_block_record(raw, span), BlockRecord):
                found[span.position] = (file, span)
    with chatledger.open(data, **options) as ledger:
        history = {event.position: event for event in ledger.history()}
    assert found.keys() == history.keys()
    return {at: Known(*place, history[at].chat_id, history[at].version) for at, place in found.items()}


def overwrite(file: Path, start: int, count: int) -> tuple[int, int]:
    """Zero bytes of a file; returns where the damage begins and ends."""
    raw = bytearray(file.read_bytes())
    end = min(start + count, len(raw))
    raw[start:end] = bytes(end - start)
    file.write_bytes(raw)
    return start, end


def some(known: dict[int, Known], drawn: random.Random) -> Known:
    """A record that is not among the last ones."""
    return known[sorted(known)[drawn.randrange(len(known) - 5)]]


def zero_sector(known: dict[int, Known], drawn: random.Random) -> set[int]:
    one = some(known, drawn)
    start, end = overwrite(one.file, one.span.offset + drawn.randrange(one.span.length), 512)
    return hit(known, one.file, start, end)


def flip_bit(known: dict[int, Known], drawn: random.Random) -> set[int]:
    one = some(known, drawn)
    with changed(one.file) as raw:
        raw[one.span.offset + drawn.randrange(one.span.length)] ^= 1 << drawn.randrange(8)
    return set()


def break_length(known: dict[int, Known], drawn: random.Random) -> set[int]:
    one = some(known, drawn)
    with changed(one.file) as raw:
        raw[one.span.offset] ^= 0x15
    return hit(known, one.file, one.span.offset, one.span.offset + 1)


def break_sequence(known: dict[int, Known], drawn: random.Random) -> set[int]:
    one = some(known, drawn)
    with changed(one.file) as raw:
        raw[one.span.offset + 4 + drawn.randrange(8)] ^= 0x33
    return hit(known, one.file, one.span.offset, one.span.offset + 1)


def break_several(known: dict[int, Known], drawn: random.Random) -> set[int]:
    return zero_sector(known, drawn) | flip_bit(known, drawn) | break_sequence(known, drawn)


def hit(known: dict[int, Known], file: Path, start: int, end: int) -> set[int]:
    return {
        at
        for at, one in known.items()
        if one.file == file and one.span.offset < end and start < one.span.offset + one.span.length
    }


DAMAGES: dict[str, Callable[[dict[int, Known], random.Random], set[int]]] = {
    "bit": flip_bit,
    "zeros": zero_sector,
    "length": break_length,
    "sequence": break_sequence,
    "several": break_several,
}
KINDS: dict[str, dict[str, Any]] = {
    "clear": {"compression": "none"},
    "zstd": {"compression": "zstd"},
    "encrypted": {"encryption": Encryption(KEY)},
}


def check_account(done: Repair, known: dict[int, Known], lost: set[int]) -> None:
    """The account names each lost event of a chat that has others behind it, counts all, and makes nothing up."""
    truly = {(known[at].chat_id, known[at].version) for at in lost}
    named = {
        (one.chat_id, version)
        for one in done.lost
        for first, last in one.versions
        for version in range(first, last + 1)
    }
    unnamed = sum(one.count for one in done.lost if one.chat_id is None)
    assert named <= truly
    assert len(named) + unnamed == len(truly) == done.lost_count == sum(one.count for one in done.lost)
    ends = {
        chat: max(one.version for at, one in known.items() if one.chat_id == chat and at not in lost)
        for chat, _ in truly
    }
    assert {(chat, version) for chat, version in truly if version < ends[chat]} <= named


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(2 if IS_SOAK else 1))
@pytest.mark.parametrize("kind", KINDS if IS_SOAK else ["zstd"])
@pytest.mark.parametrize("name", DAMAGES)
def test_the_account_is_the_difference(tmp_path: Path, name: str, kind: str, seed: int) -> None:
    """Without an index and without a backup: what is lost is said exactly, and all else is there."""
    data, options = tmp_path / "data", KINDS[kind]
    texts = filled(data, seed, options)
    known = known_records(data, options)
    lost = DAMAGES[name](known, random.Random(f"{name} {seed}"))
    shutil.rmtree(data / "index", ignore_errors=True)
    repair_options = {name: value for name, value in options.items() if name == "encryption"}
    done = admin.repair(data, **repair_options)

    check_account(done, known, lost)
    if name != "several":  # whose flipped bit may be in a record that is damaged otherwise, too
        assert bool(done.corrected) == (name == "bit")
    if not lost:
        assert (done.cut, done.kept_after, done.event_count) == ((), (), len(known))
    for chat_id in done.cut:
        admin.give_up(data, chat_id)
    with chatledger.open(data, **options) as ledger:
        ledger.verify()
        for chat_id, said in texts.items():
            kept = {message.id: message.text for message in all_messages(ledger, chat_id)}
            real = {message_id: text for message_id, text in kept.items() if "This message was lost" not in text}
            missing = dict(said).keys() - real.keys()
            assert real.items() <= dict(said).items()
            assert len(missing) <= len({at for at in lost if known[at].chat_id == chat_id})
            assert kept.keys() - real.keys() <= missing
    assert admin.diagnose(data, **repair_options).is_healthy


def all_messages(ledger: chatledger.Ledger, chat_id: str) -> list[chatledger.Message]:
    if ledger.get_chat(chat_id) is None:
        return []
    found = [ledger.get_message(node.id) for node in ledger.graph(chat_id).nodes]
    return [message for message in found if message is not None]


@pytest.mark.soak
@pytest.mark.parametrize("where", ["inside", "between"])
@pytest.mark.parametrize("has_index", [False, True])
def test_a_truncated_log(tmp_path: Path, where: str, *, has_index: bool) -> None:
    """What the end of a file lacks is known from the index alone: with it everything is named, without it nothing is made up."""
    data = tmp_path / "data"
    texts = filled(data, 4, {})
    known = known_records(data, {})
    one = known[sorted(known)[-7]]
    cut = one.span.offset + (one.span.length // 2 if where == "inside" else 0)
    block(data).write_bytes(block(data).read_bytes()[:cut])
    lost = {at for at, other in known.items() if other.span.offset >= one.span.offset}
    if not has_index:
        shutil.rmtree(data / "index")
    done = admin.repair(data)

    if has_index:
        check_account(done, known, lost)
        assert all(entry.is_content_kept for entry in done.lost)
        with chatledger.open(data) as ledger:
            for chat_id, said in texts.items():
                assert {(message.id, message.text) for message in all_messages(ledger, chat_id)} == set(said)
    else:
        assert done.lost_count <= len(lost)
        assert done.cut == ()
        assert done.event_count == len(known) - len(lost)


@pytest.mark.soak
@pytest.mark.parametrize("has_index", [False, True])
def test_a_dropped_block(tmp_path: Path, *, has_index: bool) -> None:
    """Of a log of several block files one is gone: the others are kept, and each lost event is counted."""
    data = tmp_path / "data"
    with chatledger.open(data, durability="fast", compression="none") as ledger:
        for number in range(150):
            chat_id = f"c{number % 3}"
            if number < 3:
                ledger.create_chat(chat_id, "ada")
            ledger.append(chat_id, [user(f"{number} " + "x" * 150_000)])
    known = known_records(data, {})
    files = sorted({one.file for one in known.values()}, key=lambda file: int(file.stem))
    assert len(files) > 2
    lost = {at for at, one in known.items() if one.file == files[1]}
    files[1].unlink()
    if not has_index:
        shutil.rmtree(data / "index")
    done = admin.repair(data)

    check_account(done, known, lost)
    if has_index:
        assert (done.cut, done.recreated) == ((), ("c0", "c1", "c2"))
        assert all(entry.is_content_kept for entry in done.lost)
    else:
        assert done.cut == ("c0", "c1", "c2")
        for chat_id in done.cut:
            admin.give_up(data, chat_id)
    with chatledger.open(data) as ledger:
        ledger.verify()
        said = [
            message.text.partition(" ")[0] for chat_id in ("c0", "c1", "c2") for message in ledger.get_messages(chat_id)
        ]
        placeholders = 0 if has_index else 3
        assert len(said) == 150 - (0 if has_index else len(lost)) + placeholders
    assert "lost: version" in "\n".join(done.describe())

"""Bundles: a file of chats that proves itself, checked by two programs that share nothing, and taken in by other ledgers as it is."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.bundle_mutations import mutations
from tests.support.page_verifier import VERIFIER
from tests.support.proof_world import KEY, OTHER, fill, pem_of, public_pem_of
from tests.support.salts import salts
from tests.support.soak import examples

import chatledger
from chatledger import Ledger, assistant, user
from chatledger.admin import check_bundle
from chatledger.domain.chat.events import Event, MessagesAppended
from chatledger.domain.log.codec import NO_HASH, encode_event
from chatledger.domain.proof.bundle import START, ChatEntry, Frame, entry_of, event_frames, manifest_frame
from chatledger.domain.versioned.keys import THREAD_PREFIX, VERSIONED_PREFIX
from chatledger.errors import (
    AccessDeniedError,
    ChatledgerError,
    ChatNotFoundError,
    ConfigurationError,
    InvalidValueError,
    MessageConflictError,
)

CHATS = ("a", "b", "gone", "last", "big")
LARGE = "leeks " * 60_000


def filled(ledger: Ledger) -> Ledger:
    """Chats with all kinds of events, one that was begun anew, redacted messages and large data."""
    fill(ledger, chats="ab", messages=3)
    ledger.create_chat("big", "ada")
    ledger.append("big", [user(LARGE, id="l1"), assistant("short", id="l2"), user(LARGE, id="l3")])
    ledger.append("big", [user(LARGE + "!", id="l4"), user("secret", id="l5")])
    ledger.redact(["l4", "l5"], reason="a test")
    return ledger


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed bundle of five chats."""
    path = tmp_path_factory.mktemp("bundles") / "all.clb"
    with chatledger.open("memory:") as ledger:
        filled(ledger).bundle(CHATS, path, key=pem_of(KEY))
    return path


def exported(ledger: Ledger, chats: tuple[str, ...] = CHATS) -> list[object]:
    return [ledger.export_chat(chat) for chat in chats]


@pytest.mark.parametrize("place", ["memory:", "sqlite:///{}/log.db", "{}/data"])
def test_another_ledger_has_the_same(tmp_path: Path, place: str) -> None:
    """Events, ids, times and hashes are those of the source, whatever the log; a second time nothing is new; the chats go on."""
    path = tmp_path / "all.clb"
    with chatledger.open("memory:") as source:
        report = filled(source).bundle(CHATS, path, key=pem_of(KEY))
        with chatledger.open(place.format(tmp_path)) as other:
            other.create_chat("own", "eve")
            other.append("own", [user("of its own")])
            adopted = other.import_bundle(path, public_key=public_pem_of(KEY))

            assert [(chat.chat_id, chat.version) for chat in report.chats if chat.signed_version == chat.version] == [
                (chat.chat_id, chat.version) for chat in report.chats
            ]
            assert [chat.added for chat in adopted] == [chat.version - chat.first_version + 1 for chat in report.chats]
            assert exported(other) == exported(source)
            for chat in CHATS:
                assert [event.hash for event in other.history(chat)] == [event.hash for event in source.history(chat)]
            assert other.search("leeks", chat_id="big")
            other.verify()
            assert [chat.added for chat in other.import_bundle(path)] == [0] * len(CHATS)
            other.append("a", [user("and on")])
            other.rebuild()
            other.verify()


def test_what_was_written_since(tmp_path: Path) -> None:
    """A second bundle with what came after the first one continues the chats; alone it is refused, and nothing is written."""
    with chatledger.open("memory:") as source, chatledger.open("memory:") as other:
        filled(source).bundle(CHATS, tmp_path / "first.clb")
        position = source.position
        source.append("a", [user("later", id="later")])
        source.redact("later", reason="again")
        source.create_chat("new", "ada")
        report = source.bundle(("a", "b", "new"), tmp_path / "rest.clb", since=position, key=pem_of(KEY))
        assert [chat.chat_id for chat in report.chats] == ["a", "new"]
        assert VERIFIER.verify((tmp_path / "rest.clb").read_bytes())
        with pytest.raises(InvalidValueError, match="does not have those before"):
            other.import_bundle(tmp_path / "rest.clb")
        assert other.list_chats() == []

        other.import_bundle(tmp_path / "first.clb")
        assert [chat.added for chat in other.import_bundle(tmp_path / "rest.clb")] == [2, 1]
        assert exported(other) == exported(source)
        other.verify()
        with pytest.raises(InvalidValueError, match="nothing was written to b"):
            source.bundle("b", tmp_path / "none.clb", since=position)
        assert not (tmp_path / "none.clb").exists()


def test_content_that_is_kept_back(tmp_path: Path) -> None:
    """Its bytes are not in the file, structure and proof are; no ledger takes it in."""
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [user("to Riga"), assistant("the number is 4929", id="secret"), user(LARGE, id="large")])
        path = tmp_path / "trip.clb"
        report = ledger.bundle("trip", path, key=pem_of(KEY), redact=lambda message: message.id in {"secret", "large"})

        assert (report.chats[0].withheld, report.chats[0].redacted, report.chats[0].messages) == (2, 0, 3)
        assert b"4929" not in path.read_bytes()
        assert path.stat().st_size < len(LARGE) / 10
        assert b"to Riga" in path.read_bytes()
        assert VERIFIER.verify(path.read_bytes())
        with chatledger.open("memory:") as other, pytest.raises(InvalidValueError, match="kept back"):
            other.import_bundle(path)


def test_who_signed_it(file: Path, tmp_path: Path) -> None:
    """A key that is trusted is that of the signer, or the bundle is refused; so is one that nobody signed."""
    assert check_bundle(file, public_pem_of(KEY)).anchor is not None
    with pytest.raises(InvalidValueError, match="another key"):
        check_bundle(file, public_pem_of(OTHER))
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")
        ledger.bundle("trip", tmp_path / "trip.clb")
    assert check_bundle(tmp_path / "trip.clb").anchor is None
    with pytest.raises(InvalidValueError, match="nobody signed"):
        check_bundle(tmp_path / "trip.clb", public_pem_of(KEY))


def test_an_anchor_of_before(tmp_path: Path) -> None:
    """It proves the events up to it; it is no proof for a chat that it does not have, nor one of another ledger."""
    with chatledger.open("memory:") as ledger, chatledger.open("memory:") as other:
        for each in (ledger, other):
            each.create_chat("trip", "ada")
            each.append("trip", [user("to Riga")])
        anchor = ledger.anchor(pem_of(KEY))
        ledger.append("trip", [user("by train")])
        ledger.create_chat("new", "ada")
        report = ledger.bundle("trip", tmp_path / "trip.clb", anchor=anchor)

        assert (report.chats[0].signed_version, report.chats[0].version) == (2, 3)
        with pytest.raises(InvalidValueError, match="does not have chat 'new'"):
            ledger.bundle("new", tmp_path / "new.clb", anchor=anchor)
        with pytest.raises(InvalidValueError, match="not those that the anchor has"):
            ledger.bundle("trip", tmp_path / "other.clb", anchor=other.anchor(pem_of(KEY)))
        assert [path.name for path in tmp_path.iterdir()] == ["trip.clb"]


def test_chats_that_both_went_on_with(tmp_path: Path) -> None:
    """The whole bundle is refused, with the other chats in it, and nothing is written."""
    with chatledger.open("memory:") as source, chatledger.open("memory:") as other:
        source.create_chat("trip", "ada")
        source.bundle("trip", tmp_path / "first.clb")
        other.import_bundle(tmp_path / "first.clb")
        source.create_chat("new", "ada")
        for ledger, words in ((source, "there"), (other, "here")):
            ledger.append("trip", [user(words)])
        source.bundle(["new", "trip"], tmp_path / "second.clb")
        before = other.position
        with pytest.raises(InvalidValueError, match="gone on with here"):
            other.import_bundle(tmp_path / "second.clb")
        other.append("trip", [user("longer")])
        with pytest.raises(InvalidValueError, match="gone on with here"):
            other.import_bundle(tmp_path / "second.clb")
        assert (other.position, other.get_chat("new")) == (before + 1, None)


def test_ids_and_deletions_of_here_win(tmp_path: Path) -> None:
    """A message id of another chat refuses the bundle; a chat that was deleted here stays so."""
    with chatledger.open("memory:") as source, chatledger.open("memory:") as other:
        source.create_chat("trip", "ada")
        source.append("trip", [user("hello", id="m1")])
        source.bundle("trip", tmp_path / "trip.clb")
        other.create_chat("own", "eve")
        other.append("own", [user("mine", id="m1")])
        with pytest.raises(MessageConflictError):
            other.import_bundle(tmp_path / "trip.clb")
        assert other.get_chat("trip") is None
        other.delete_chat("own")
        other.import_bundle(tmp_path / "trip.clb")
        other.delete_chat("trip")
        (adopted,) = other.import_bundle(tmp_path / "trip.clb")
        assert (adopted.added, adopted.is_deleted, other.get_chat("trip")) == (0, True, None)
        other.verify()


def test_who_may_and_what_is_there(tmp_path: Path, file: Path) -> None:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("trip", "ada")
        with pytest.raises(ChatNotFoundError):
            ledger.bundle("none", tmp_path / "none.clb")
        with pytest.raises(ChatNotFoundError):
            ledger.for_user("bob").bundle("trip", tmp_path / "bob.clb")
        with pytest.raises(AccessDeniedError):
            ledger.for_user("ada").bundle("trip", tmp_path / "ada.clb", key=pem_of(KEY))
        assert ledger.for_user("ada").bundle("trip", tmp_path / "own.clb").chats[0].version == 1
        with pytest.raises(AccessDeniedError):
            ledger.for_user("ada").import_bundle(file)
        with pytest.raises(ConfigurationError, match="exists"):
            ledger.bundle("trip", tmp_path / "own.clb")
        with pytest.raises(ConfigurationError, match="cannot be read"):
            ledger.import_bundle(tmp_path / "nowhere.clb")
        assert [path.name for path in tmp_path.iterdir()] == ["own.clb"]
    with chatledger.open("memory:", redact=str.upper) as ledger, pytest.raises(InvalidValueError, match="redact="):
        ledger.import_bundle(file)


def _outcome(verify: Callable[[], object]) -> bool:
    """Whether a bundle is taken for sound; ours may refuse it by its own errors only."""
    try:
        verify()
    except ChatledgerError:
        return False
    return True


def _by_the_other(content: bytes) -> bool:
    try:
        VERIFIER.verify(content)
    except Exception:  # noqa: BLE001 - whatever it stumbles over is no proof
        return False
    return True


@pytest.mark.guard
@pytest.mark.parametrize("is_signed", [True, False])
def test_both_verifiers_refuse_what_was_changed(tmp_path: Path, file: Path, is_signed: bool) -> None:  # noqa: FBT001
    """Bytes that are flipped, lost, repeated or moved: two programs that share no line refuse the same files."""
    path = tmp_path / "changed.clb"
    if is_signed:
        content = file.read_bytes()
    else:
        with chatledger.open("memory:") as ledger:
            fill(ledger, chats="ab", messages=2)
            ledger.bundle(("a", "b", "gone"), path)
        content = path.read_bytes()
    assert VERIFIER.verify(content)
    path.write_bytes(content)
    report = check_bundle(path)
    for mutation in mutations(content, examples(10_000), 11):
        changed = mutation.of(content)
        path.write_bytes(changed)
        is_sound = _outcome(lambda: check_bundle(path))
        assert is_sound == _by_the_other(changed), mutation
        # What is taken for sound says the same: digits of a hash in capitals, or positions that nobody signed.
        assert not is_sound or check_bundle(path) == report, mutation


def _forged(path: Path, chats: Mapping[str, Sequence[Event[Any]]]) -> None:
    """Write a bundle of made-up chats, with hashes that fit: who signs nothing can claim anything."""
    frames: list[Frame] = []
    entries: list[ChatEntry] = []
    for chat_id, events in chats.items():
        previous, position, written = NO_HASH, 0, list[Frame]()
        for version, event in enumerate(events, 1):
            event = replace(event, originator_id=chat_id, originator_version=version, previous_hash=previous)  # noqa: PLW2901 - the same event
            encoded = encode_event(event, salts())
            previous, position = encoded.hash, position + 1
            written += event_frames(position, encoded.state, encoded.large)
        frames += written
        entries.append(entry_of(chat_id, count=len(events), hash_=previous, before=0, peaks=b"", proof=None))
    with path.open("wb") as stream:
        stream.write(START)
        for kind, body in [manifest_frame(entries, None), *frames]:
            stream.write(kind + len(body).to_bytes(4) + body)


def _lies(events: Sequence[Event[Any]]) -> Iterator[dict[str, Sequence[Event[Any]]]]:
    """Each event of a chat left out, written twice, or before the one that it followed; and chats that cannot be."""
    for at in range(len(events)):
        yield {"a": [*events[:at], *events[at + 1 :]]}
        yield {"a": [*events[: at + 1], *events[at:]]}
        yield {"a": [*events[:at], *events[at : at + 2][::-1], *events[at + 2 :]]}
    yield {"a": events}
    yield {"a": events, "b": events}
    yield {"a": events[:1], "b": events}
    for chat_id in ("", f"{VERSIONED_PREFIX}a", f"{THREAD_PREFIX}a", "a\0b", "a" * 3_000):
        yield {chat_id: events}
    first = next(at for at, event in enumerate(events) if isinstance(event.body, MessagesAppended))
    body: Any = events[first].body
    for message_id in ("", "m\0", "m" * 3_000):
        message = replace(body.messages[0], id=message_id)
        yield {"a": [*events[:first], replace(events[first], body=replace(body, messages=(message,)))]}


def test_what_is_made_up_is_refused_or_can_be_lived_with(tmp_path: Path) -> None:
    """A forger who signs nothing has all hashes right. What is believed all the same leaves a ledger that is sound."""
    path = tmp_path / "forged.clb"
    with chatledger.open("memory:") as ledger:
        fill(ledger, chats="a", messages=2)
        ledger.record_run("a", "run-1", thread_id="t", assistant_id="x", message_id=ledger.get_messages("a")[0].id)
        ledger.hold("chat", "a", reason="a case")
        events = [recorded.event for recorded in ledger.history("a")]
    believed = 0
    for lie in _lies(events):
        _forged(path, lie)
        try:
            check_bundle(path)
        except InvalidValueError:
            continue
        assert set(lie) <= {"a", "b"}, "the others are no ids of chats"
        with chatledger.open("memory:") as ledger:
            ledger.import_bundle(path)
            ledger.verify()
            ledger.append("a", [user("and on")])
        believed += 1
    assert believed > 1
    _forged(path, {"a": events, "b": events})
    with pytest.raises(InvalidValueError, match="is there twice"):
        check_bundle(path)


def test_claims_of_size(tmp_path: Path) -> None:
    """A frame that claims to be larger than memory is refused before it is read."""
    path = tmp_path / "bomb.clb"
    path.write_bytes(START + b"m" + b"\xff\xff\xff\xff" + b"{")
    with pytest.raises(InvalidValueError, match="cut off"):
        check_bundle(path)
    path.write_bytes(START + b"m\0\0\0\2[]")
    with pytest.raises(InvalidValueError, match="manifest"):
        check_bundle(path)


@pytest.mark.guard
def test_an_import_that_is_killed_goes_on(tmp_path: Path) -> None:
    """Whenever the process ends, the next import writes what is missing, and nothing twice."""
    path, location = tmp_path / "long.clb", f"sqlite:///{tmp_path}/log.db"
    with chatledger.open("memory:") as source:
        source.create_chat("trip", "ada")
        for number in range(1_500):
            source.append("trip", [user(f"message {number}", id=f"m{number}")])
        source.bundle("trip", path, key=pem_of(KEY))
        source_chat = source.export_chat("trip")
    program = "import sys, chatledger\nwith chatledger.open(sys.argv[1]) as l: l.import_bundle(sys.argv[2])"
    seen = 0
    for delay_s in (0.5, 0.65, 0.8, 0.9, 1.0, 1.1, 1.3):
        process = subprocess.Popen([sys.executable, "-c", program, location, path])
        with suppress(subprocess.TimeoutExpired):
            process.wait(delay_s)
        process.kill()
        process.wait()
        with chatledger.open(location) as ledger:
            assert ledger.position >= seen
            seen = ledger.position
    with chatledger.open(location) as ledger:
        (adopted,) = ledger.import_bundle(path)
        assert adopted.added + seen == 1_501
        assert ledger.export_chat("trip") == source_chat
        ledger.verify()

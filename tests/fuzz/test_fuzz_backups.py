"""Damaged backups: reading one gives what was backed up, or an error of ours. Also where its digests were made to fit."""

import base64
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.fuzz_inputs import nearly, odd_msgpack, odd_values, only_ours
from tests.infra.backup_world import fill

import chatledger
from chatledger import CorruptStateError
from chatledger.infra.backup.checking import check_backup
from chatledger.infra.backup.manifest import MANIFEST, BackupFolder

FEW = settings(max_examples=25, deadline=None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("backup")
    with chatledger.open("memory:") as ledger:
        fill(ledger, chats="a", messages=2)
        ledger.backup(place)
    return place


@pytest.fixture
def files(folder: Path) -> Iterator[dict[str, bytes]]:
    """What the files of the backup hold; they hold it again afterwards."""
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    yield found
    for path in folder.iterdir():
        path.unlink()
    for name, content in found.items():
        (folder / name).write_bytes(content)


def named(files: dict[str, bytes], kind: str) -> str:
    return next(name for name in files if name.endswith(kind))


def publish(folder: Path, raw: bytes) -> None:
    """A manifest with a right digest."""
    head = b'{"format":1,"sha256":"%s","manifest":' % sha256(raw).hexdigest().encode()
    (folder / MANIFEST).write_bytes(head + raw + b"}")


def republish(folder: Path, files: dict[str, bytes], change: Callable[[Any], object]) -> None:
    """The manifest with a change, and a right digest."""
    manifest = msgspec.json.decode(files[MANIFEST])["manifest"]
    change(manifest)
    publish(folder, msgspec.json.encode(manifest))


@pytest.mark.parametrize("kind", [MANIFEST, ".segment", ".heads"])
def test_damaged_files(kind: str, folder: Path, files: dict[str, bytes]) -> None:
    name = named(files, kind)

    @given(raw=nearly([files[name]]))
    @FEW
    def check(raw: bytes) -> None:
        (folder / name).write_bytes(raw)
        found = only_ours(lambda: check_backup(folder))
        assert found is None or found.event_count == 5

    check()


def test_a_segment_whose_digest_fits(folder: Path, files: dict[str, bytes]) -> None:
    name = named(files, ".segment")

    @given(raw=nearly([files[name]]))
    @FEW
    def check(raw: bytes) -> None:
        (folder / name).write_bytes(raw)

        def change(manifest: Any) -> None:
            manifest["segments"][0]["sha256"] = sha256(raw).hexdigest()

        republish(folder, files, change)
        only_ours(lambda: check_backup(folder))

    check()


def test_heads_whose_digest_fits(folder: Path, files: dict[str, bytes]) -> None:
    name = named(files, ".heads")

    @given(raw=nearly([files[name]]) | odd_msgpack([files[name]]))
    @FEW
    def check(raw: bytes) -> None:
        (folder / name).write_bytes(raw)
        republish(folder, files, lambda manifest: manifest["heads"].update(sha256=sha256(raw).hexdigest()))
        only_ours(lambda: BackupFolder(folder).read_heads(BackupFolder(folder).require()))

    check()


def test_a_manifest_whose_digest_fits(folder: Path, files: dict[str, bytes]) -> None:
    manifest = msgspec.json.encode(msgspec.json.decode(files[MANIFEST])["manifest"])

    @given(raw=nearly([manifest]))
    @FEW
    def check(raw: bytes) -> None:
        publish(folder, raw)
        only_ours(lambda: check_backup(folder))

    check()


def test_a_manifest_with_an_odd_value(folder: Path, files: dict[str, bytes]) -> None:
    names = sorted(msgspec.json.decode(files[MANIFEST])["manifest"])

    @given(name=st.sampled_from(names), value=odd_values)
    @FEW
    def check(name: str, value: Any) -> None:
        try:
            republish(folder, files, lambda manifest: manifest.update({name: value}))
        except (TypeError, ValueError):  # no JSON
            return
        only_ours(lambda: check_backup(folder))

    check()


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "00000001.segment/../../secret", "manifest.json", "\0"])
def test_a_manifest_names_no_foreign_files(name: str, folder: Path, files: dict[str, bytes]) -> None:
    """A backup that somebody gives you does not make you read other files."""
    republish(folder, files, lambda manifest: manifest["segments"][0].update(file=name))
    with pytest.raises(CorruptStateError, match="none of a backup"):
        check_backup(folder)


def test_a_manifest_with_bookmarks_that_can_not_be_read(folder: Path, files: dict[str, bytes]) -> None:
    """They are read when it is restored; nothing is left at the place."""
    republish(folder, files, lambda manifest: manifest.update(bookmarks=[base64.b64encode(b"\xff").decode()]))
    place = folder.parent / "restored.db"
    with pytest.raises(CorruptStateError):
        chatledger.restore(folder, f"sqlite:///{place}")
    assert not place.exists()

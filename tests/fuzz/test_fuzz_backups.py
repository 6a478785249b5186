"""Manifests of backups that say odd things, with digests that fit; `test_fuzz_targets` has all else that is damaged."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.fuzz_inputs import odd_values, only_ours
from tests.fuzz.targets_backups import make_backup, republish
from tests.support.soak import examples

from chatledger import CorruptStateError, admin
from chatledger.infra.admin.backups import check_backup
from chatledger.infra.store.backup.manifest import MANIFEST


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("backup")
    make_backup(place)
    return place


@pytest.fixture
def files(folder: Path) -> Iterator[dict[str, bytes]]:
    """The content of the files of the backup; they have it again afterwards."""
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    yield found
    for path in folder.iterdir():
        path.unlink()
    for name, content in found.items():
        (folder / name).write_bytes(content)


def test_a_manifest_with_an_odd_value(folder: Path, files: dict[str, bytes]) -> None:
    names = sorted(msgspec.json.decode(files[MANIFEST])["manifest"])

    @given(name=st.sampled_from(names), value=odd_values)
    @settings(max_examples=examples(25), deadline=None)
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
        admin.restore(folder, f"sqlite:///{place}")
    assert not place.exists()

"""The pages of LMDB: what is not as expected is not written to."""

# White-box: the format of the file is altered.
# pyright: reportPrivateUsage=false

import os
from pathlib import Path
from struct import Struct

import pytest
from tests.support.scrubbed_index import opened

from chatledger.projections.lmdb.page_check import PageError
from chatledger.projections.lmdb.scrub import PageFile


@pytest.mark.parametrize(
    ("offset", "value"), [(16, b"\0\0"), (20, b"\x02"), (40, b"\x07\x00")], ids=["magic", "version", "size"]
)
def test_an_unknown_format_is_left_alone(tmp_path: Path, offset: int, value: bytes) -> None:
    """Another LMDB than 0.9 may lay its file out otherwise: nothing is written to it."""
    with opened(tmp_path / "one") as world:
        world.put("rows", [1000] * 20)
        file = world.generation.file
        page_bytes = os.sysconf("SC_PAGESIZE")
        altered = bytearray(file.read_bytes())
    for meta in (0, page_bytes):
        altered[meta + offset : meta + offset + len(value)] = value
    copy = tmp_path / "copy"
    copy.write_bytes(altered)
    pages = PageFile(copy)
    with pytest.raises(PageError):
        pages.snapshot(3)
    pages.close()

    assert copy.read_bytes() == altered


def test_a_damaged_page_is_left_alone(tmp_path: Path) -> None:
    """A page that is not what the tree says stops the scrub before anything is written to it."""
    with opened(tmp_path) as world:
        world.put("rows", [1000] * 200)
        file = world.generation.file
        txn_id = world.generation.last_txn_id
    pages = PageFile(file)
    snapshot = pages.snapshot(txn_id)
    assert snapshot is not None
    wrong = snapshot._replace(main=snapshot.main._replace(root=snapshot.last_page + 5))
    with pytest.raises(PageError):
        pages.clean_trees(wrong)
    with pytest.raises(PageError):
        pages._clean_tail(snapshot.main.root, 10, snapshot)
    assert pages.snapshot(txn_id + 5) is None
    pages.close()


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (16, b"\0\x20"),
        (16, b"\x08\0"),
        (16, b"\xf1\x0f"),
        ("child", b"\xff\xff\xff\xff\0\0\xff\x7f"),
        ("child", b"itself"),
    ],
    ids=[
        "row behind the page",
        "row in the header",
        "row at an odd place",
        "child behind the file",
        "child is its parent",
    ],
)
def test_a_branch_that_refers_anywhere_is_left_alone(tmp_path: Path, offset: int | str, value: bytes) -> None:
    """It is an error of ours, and comes to an end."""
    with opened(tmp_path) as world:
        world.put("rows", [1000] * 200)
        file = world.generation.file
        txn_id = world.generation.last_txn_id
    altered = bytearray(file.read_bytes())
    page_bytes = os.sysconf("SC_PAGESIZE")
    for start in range(2 * page_bytes, len(altered), page_bytes):
        if altered[start + 10] == 1:  # a branch
            number = (start // page_bytes).to_bytes(6, "little")
            (node,) = Struct("<H").unpack_from(altered, start + 16)
            at = start + (node if isinstance(offset, str) else offset)
            wanted = number if value == b"itself" else value[:6]
            altered[at : at + len(wanted)] = wanted
    file.write_bytes(altered)
    pages = PageFile(file)
    snapshot = pages.snapshot(txn_id)
    assert snapshot is not None
    with pytest.raises(PageError):
        pages.clean_trees(snapshot)
    pages.close()


@pytest.mark.parametrize(
    "value", [b"\x07", b"\xff" * 8, b"\x01\0\0\0\0\0\0\0\xff" + b"\0" * 7], ids=["cut", "count", "page"]
)
def test_a_damaged_list_of_free_pages_is_refused(tmp_path: Path, value: bytes) -> None:
    with opened(tmp_path) as world:
        for _ in range(3):
            world.put("rows", [1000] * 20)
        file = world.generation.file
        txn_id = world.generation.last_txn_id
    pages = PageFile(file)
    snapshot = pages.snapshot(txn_id)
    assert snapshot is not None
    altered = bytearray(file.read_bytes())
    start = snapshot.free.root * os.sysconf("SC_PAGESIZE")
    (node,) = Struct("<H").unpack_from(altered, start + 16)
    altered[start + node : start + node + 2] = len(value).to_bytes(2, "little")
    altered[start + node + 16 : start + node + 16 + len(value)] = value
    file.write_bytes(altered)
    with pytest.raises(PageError):
        pages.clean_free(snapshot, oldest_reader=None)
    pages.close()

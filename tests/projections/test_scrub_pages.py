"""The pages of LMDB: what is not as expected is not written to."""

# White-box: the format of the file is altered.
# pyright: reportPrivateUsage=false

import os
from pathlib import Path

import pytest
from tests.projections.test_scrub import opened

from chatledger.projections.scrub_pages import PageFile, UnknownFormatError


@pytest.mark.parametrize(
    ("offset", "value"), [(16, b"\0\0"), (20, b"\x02"), (40, b"\x07\x00")], ids=["magic", "version", "size"]
)
def test_an_unknown_format_is_left_alone(tmp_path: Path, offset: int, value: bytes) -> None:
    """Another LMDB than 0.9 may lay its file out otherwise: nothing is written to it."""
    with opened(tmp_path / "one") as world:
        world.put("rows", [1000] * 20)
        file = world.generation.env.file
        page_bytes = os.sysconf("SC_PAGESIZE")
        altered = bytearray(file.read_bytes())
    for meta in (0, page_bytes):
        altered[meta + offset : meta + offset + len(value)] = value
    copy = tmp_path / "copy"
    copy.write_bytes(altered)
    pages = PageFile(copy)
    with pytest.raises(UnknownFormatError):
        pages.meta(3)
    pages.close()

    assert copy.read_bytes() == altered


def test_a_damaged_page_is_left_alone(tmp_path: Path) -> None:
    """A page that is not what the tree says stops the scrub before anything is written to it."""
    with opened(tmp_path) as world:
        world.put("rows", [1000] * 200)
        file = world.generation.env.file
        txn_id = world.generation.env.last_txn_id
    pages = PageFile(file)
    meta = pages.meta(txn_id)
    assert meta is not None
    wrong = meta._replace(main_root=meta.last_page + 5)
    with pytest.raises(UnknownFormatError):
        pages.clean_trees(wrong)
    with pytest.raises(UnknownFormatError):
        pages._clean_tail(meta.main_root, 10, meta)
    assert pages.meta(txn_id + 5) is None
    pages.close()

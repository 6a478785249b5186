"""The pictures of the explorer: small, each shown somewhere, and taken of pages that are there."""

from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest
from docs.pictures import FOLDER, MOST_BYTES, PICTURES, pictured
from tests.docs.page import PAGES


@pytest.mark.parametrize("file", sorted(file.name for file in FOLDER.iterdir()))
def test_each_file_is_a_small_picture_that_some_page_shows(file: str) -> None:
    """`python -m docs.pictures` makes it, with few colours."""
    png = (FOLDER / file).read_bytes()

    assert file in {picture.name for picture in PICTURES}
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(png) < MOST_BYTES
    assert any(f"images/{file})" in page.read_text(encoding="utf-8") for page in PAGES)


@pytest.mark.guard
def test_pictures_are_of_pages(tmp_path: Path) -> None:
    """What a picture shows is asked of a server as its browser asks, and the picture was taken."""
    with pictured(tmp_path) as url, httpx.Client(base_url=url, headers={"Accept": "text/html"}) as client:
        for picture in PICTURES:
            answer = client.get(unquote(picture.path))

            assert answer.status_code == 200, picture.path
            assert (FOLDER / picture.name).exists()

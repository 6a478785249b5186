"""The pictures of the documentation can be taken anew."""

from pathlib import Path

import pytest
from docs.pictures import MOST_BYTES, PICTURES, pictured, take
from playwright.sync_api import Browser


@pytest.mark.soak
def test_pictures_are_taken(browser: Browser, tmp_path: Path) -> None:
    """Each page comes to rest without an error, and its picture is small."""
    with pictured(tmp_path) as url:
        assert all(0 < len(take(browser, url, picture)) < MOST_BYTES for picture in PICTURES)

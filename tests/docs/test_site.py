"""The documentation as a site: every page is there, every link leads somewhere, and nothing is fetched from elsewhere."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pytest
from docs.site import SITE, build, place_of
from tests.docs.page import PAGES, ROOT

_LED: Final = re.compile(r'(?:href|src)="([^"]*)"')
_FETCHED: Final = re.compile(r'<(?:script|img|iframe|link)[^>]*(?:href|src)="https?:')
_ANCHOR: Final = re.compile(r'(?:id|name)="([^"]*)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assert build(folder) == 0
    return folder / SITE


@pytest.mark.guard
@pytest.mark.xdist_group("site")
def test_each_link_leads_somewhere_and_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    """Files, and places in them; of what another host has, there are links of the text only."""
    texts = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html") if page.name != "404.html"}
    anchors = {page: set(_ANCHOR.findall(text)) for page, text in texts.items()}
    astray: list[str] = []
    for page, text in texts.items():
        assert not _FETCHED.search(text), page
        for link in map(unescape, _LED.findall(text)):
            if re.match(r"[a-z]+:|//", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / unquote(path)).resolve() if path else page
            if not target.exists() or (anchor and unquote(anchor) not in anchors.get(target, {unquote(anchor)})):
                astray.append(f"{page.relative_to(site)}: {link}")
    assert not astray


@pytest.mark.guard
@pytest.mark.xdist_group("site")
def test_each_page_is_there_for_people_search_and_agents(site: Path) -> None:
    """As HTML, in the index of the search, in the list for agents, and as a text."""
    found = {item["location"].partition("#")[0] for item in json.loads((site / "search.json").read_text())["items"]}
    listed = (site / "llms.txt").read_text()
    whole = (site / "llms-full.txt").read_text()
    for page in PAGES:
        place = place_of(page)
        assert str(place.with_suffix(".html")) in found
        assert (site / place).is_file()
        assert page.read_text(encoding="utf-8") in whole or page == ROOT / "README.md"
        assert place.name == "index.md" or f"({place})" in listed or place.parts[:2] == ("reference", "renderers")

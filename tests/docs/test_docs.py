"""The documentation says what is true: links lead somewhere, generated pages are up to date, examples are found."""

import functools
import re
from pathlib import Path
from typing import Final

import pytest
from docs.generate import FOLDER, MODULES, pages
from tests.docs.page import PAGES, ROOT, ExampleError, blocks, is_generated, matches, page_name

import chatledger
from chatledger import errors

LINKING: Final = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
# Not asked for from `pages()`: each worker would make all pages while it collects.
GENERATED: Final = sorted(
    page.name for page in FOLDER.iterdir() if page.suffix == ".json" or (page.suffix == ".md" and is_generated(page))
)
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.*)$", re.MULTILINE)
_FENCED: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    return pages()


@pytest.mark.soak
def test_each_generated_page_says_so(generated: dict[str, str]) -> None:
    assert sorted(generated) == GENERATED


@pytest.mark.lint
@pytest.mark.xdist_group("pages")  # one worker generates them, which takes seconds
@pytest.mark.parametrize("file", GENERATED)
def test_generated_pages_are_up_to_date(generated: dict[str, str], file: str) -> None:
    """`make docs` writes them."""
    assert generated[file] == (FOLDER / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", LINKING, ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links name files of the repository, and headings that they have."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    for link in _LINK.findall(text):
        if link.startswith(("https://", "mailto:")):
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page_name(page)}: {link}"
        assert target.is_relative_to(ROOT), f"{page_name(page)}: {link} leaves the repository"
        if heading:
            assert heading in _anchors(target), f"{page_name(page)}: {link}"


@functools.cache
def _anchors(page: Path) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)}


def test_every_page_is_on_the_map() -> None:
    """`docs/index.md` links every page of the documentation."""
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link).resolve() for link in _LINK.findall(index.read_text(encoding="utf-8"))}
    assert {page for page in PAGES if page not in {index, ROOT / "README.md"}} - linked == set()


def test_every_public_name_is_documented() -> None:
    """Each error has a heading on the page of errors, and every other name a heading or a line on a page of the API."""
    headings = _HEADING.findall((FOLDER / "errors.md").read_text(encoding="utf-8"))
    api = "\n".join(page.read_text(encoding="utf-8") for page in FOLDER.glob("api*.md"))
    named = set(re.findall(r"^#+ `?(?:chatledger\.)?(\w+)`?$", api, re.MULTILINE))
    named |= set(re.findall(r"^- `(\w+)\(", api, re.MULTILINE))
    listed = {name for module in (chatledger, *MODULES) for name in module.__all__}

    assert set(errors.__all__) <= set(headings)
    assert {*listed, "open"} - set(errors.__all__) - named == set()


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("one\ntwo", "one\ntwo\n"),
        ("one ... three", "one two three"),
        ("a\n...\nd", "a\nb\nc\nd\n"),
        ("a", "a   \n"),
        ("a\n...", "a\n"),
        ("node    took\nstart   4 ms\n", "node     took\nstart  1.2 s\n"),
    ],
)
def test_shown_output_matches(expected: str, actual: str) -> None:
    assert matches(expected, actual)


@pytest.mark.parametrize(("expected", "actual"), [("one", "one two"), ("one.two", "one two"), ("a\nb", "b\na")])
def test_other_output_does_not_match(expected: str, actual: str) -> None:
    assert not matches(expected, actual)


def test_a_block_must_say_its_language() -> None:
    with pytest.raises(ExampleError, match="language"):
        list(blocks("```\nx\n```\n"))


def test_blocks_are_found() -> None:
    """What is run, what is not, and what is compared."""
    text = "```python\nx = 1\n```\n\n<!-- not run: why -->\n\n```bash\nfalse\n```\n\n<!-- prints -->\n```text\n1\n```\n"
    found = [(block.language, block.line, block.is_run, block.is_output) for block in blocks(text)]
    assert found == [("python", 2, True, False), ("bash", 8, False, False), ("text", 13, True, True)]


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_begin_with_their_headers(page: Path) -> None:
    """A row that a merge put before the header, or behind a blank line, is shown as text with bars."""
    lines = page.read_text(encoding="utf-8").split("\n")
    rows = [number for number, line in enumerate(lines) if line.startswith("|")]
    first = [number for number in rows if not lines[number - 1].startswith("|")]

    assert [] == [lines[number] for number in first if not re.match(r"\|[ :|-]+\|$", lines[number + 1])]

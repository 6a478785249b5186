"""The documentation says what is true: examples run, links lead somewhere, generated pages are up to date."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest
from docs.generate import FOLDER, pages
from tests.docs.page import ExampleError, blocks, matches

ROOT: Final = Path(__file__).resolve().parents[2]
RUNNER: Final = Path(__file__).with_name("page.py")
FILES: Final = Path(__file__).with_name("files")
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKING: Final = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
GENERATED: Final = frozenset(pages())
TOKEN: Final = "s3cret"
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_GIVEN: Final = re.compile(r"^<!-- given: (\S+) -->$", re.MULTILINE)
_HEADING: Final = re.compile(r"^#+ (.*)$", re.MULTILINE)
_FENCED: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def nats_url(tmp_path: Path) -> Generator[str]:
    """A real server, not the embedded one: the address with its token, as the pages take it from NATS_URL."""
    executable = shutil.which("nats-server", path=sysconfig.get_path("scripts")) or shutil.which("nats-server")
    assert executable is not None
    folder = tmp_path / "nats"
    folder.mkdir()
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [
                executable,
                "-js",
                "-sd",
                folder,
                "-a",
                "127.0.0.1",
                "-p",
                "-1",
                "--auth",
                TOKEN,
                "--ports_file_dir",
                folder,
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield f"nats://{TOKEN}@127.0.0.1:{_port(folder / f'nats-server_{server.pid}.ports')}"
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture
def memory() -> Generator[Path]:
    """A folder in memory, for the indexes of encrypted ledgers."""
    with tempfile.TemporaryDirectory(prefix="chatledger-docs-", dir="/dev/shm") as folder:
        yield Path(folder)


def _port(file: Path) -> int:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = re.search(r"nats://[^\"]*:(\d+)", file.read_text()) if file.exists() else None
        if found is not None:
            return int(found[1])
        time.sleep(0.01)
    msg = "the server did not start"
    raise TimeoutError(msg)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent != FOLDER or page.name not in GENERATED], ids=name
)
def test_examples_run(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each page in a directory and a process of its own, as if a reader typed along."""
    text = page.read_text(encoding="utf-8")
    desk = tmp_path / "desk"
    desk.mkdir()
    for given in _GIVEN.findall(text):
        shutil.copy(FILES / given, desk / given)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("CHATLEDGER_", "XDG_"))}
    environment |= {
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), environment["PATH"]]),
        "HOME": str(tmp_path),
        "NO_COLOR": "1",
        "PYTHONUTF8": "1",
    }
    if "NATS_URL" in text:
        environment["NATS_URL"] = request.getfixturevalue("nats_url")
    if "Encryption(" in text:
        environment["CHATLEDGER_RUNTIME_DIR"] = str(request.getfixturevalue("memory"))
    done = subprocess.run(
        [sys.executable, "-W", "error", RUNNER, page],
        cwd=desk,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("file", sorted(pages()))
def test_generated_pages_are_up_to_date(file: str) -> None:
    """`make docs` writes them."""
    assert pages()[file] == (FOLDER / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", LINKING, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links name files of the repository, and headings that they have."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    for link in _LINK.findall(text):
        if link.startswith(("https://", "mailto:")):
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)}: {link}"
        assert target.is_relative_to(ROOT), f"{name(page)}: {link} leaves the repository"
        if heading:
            assert heading in _anchors(target), f"{name(page)}: {link}"


def _anchors(page: Path) -> set[str]:
    """The anchors of the headings, as GitHub makes them."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)}


def test_every_page_is_on_the_map() -> None:
    """`docs/index.md` links every page of the documentation."""
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link).resolve() for link in _LINK.findall(index.read_text(encoding="utf-8"))}
    assert {page for page in PAGES if page not in {index, ROOT / "README.md"}} - linked == set()


def test_every_error_is_documented() -> None:
    """Each exported error has a heading on the page of errors."""
    import chatledger

    exported = {name for name in chatledger.__all__ if name.endswith("Error")}
    assert exported <= set(_HEADING.findall((FOLDER / "errors.md").read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("one\ntwo", "one\ntwo\n"),
        ("one ... three", "one two three"),
        ("a\n...\nd", "a\nb\nc\nd\n"),
        ("a", "a   \n"),
        ("a\n...", "a\n"),
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

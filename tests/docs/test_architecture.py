"""The page on the architecture against the tree: every folder is described, and every name that it mentions is there."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
TEXT: Final = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
_CONTRACTS: Final = ROOT / "infra/entrypoints/http"
"""Its folders are described by their bare names, in the row of `native/`."""


def test_every_folder_with_modules_is_described() -> None:
    folders = {
        path.parent
        for layer in ("domain", "projections", "infra")
        for path in (ROOT / layer).rglob("*.py")
        if path.name != "__init__.py"
    }
    described = [str(path.relative_to(ROOT)) for path in folders if path.parent != _CONTRACTS]
    bare = [path.name for path in folders if path.parent == _CONTRACTS]

    assert [] == sorted(name for name in described if f"`{name}/`" not in TEXT)
    assert [] == sorted(name for name in bare if f"{name}/`" not in TEXT)


def test_the_table_of_folders_is_true() -> None:
    """Each row is of folders that are there, which no other row has, and names modules that they have."""
    table = TEXT[TEXT.index("### What each folder holds") : TEXT.index("### The import rules")]
    described: list[str] = []
    unknown: list[tuple[str, str]] = []
    for first, about in re.findall(r"^\| (`[^|]*) \| (.*) \|$", table, re.MULTILINE):
        folders = re.findall(r"`([\w/]+)/`", first)
        described += folders
        for module in re.findall(r"`([a-z_]+)`", about):
            places = [ROOT / folder / module for folder in folders]
            if not any(place.is_dir() or place.with_suffix(".py").is_file() for place in places):
                unknown.append((first, module))

    assert [] == unknown
    assert sorted(set(described)) == sorted(described)
    assert [] == [folder for folder in described if not (ROOT / folder).is_dir()]


def test_every_name_is_in_its_file() -> None:
    """In the answers to the questions, and in the table of one operation."""
    said = [(file, name) for name, file in re.findall(r"`([\w.]+)` in\s+\[`([\w/]+\.py)`\]", TEXT)]
    for files, names in re.findall(
        r"^\|[ \d]*\| (`infra/[^|]*`|`projections/[^|]*`|`domain/[^|]*`) \| (`[^|]*`) \|", TEXT, re.MULTILINE
    ):
        in_row = re.findall(r"`([\w/]+\.py)`", files)
        said += [(" ".join(in_row), name) for name in re.findall(r"`([\w.]+)`", names)]

    assert len(said) > 20
    assert [] == [(files, name) for files, name in said if not _defines(files.split(), name)]


def _defines(files: list[str], name: str) -> bool:
    code = "".join((ROOT / file).read_text(encoding="utf-8") for file in files)
    return all(
        re.search(rf"^\s*(?:(?:async )?def |class ){part}\b|^{part}\b", code, re.MULTILINE) for part in name.split(".")
    )

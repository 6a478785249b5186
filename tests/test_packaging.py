"""The three layers at the root are parts of one package, under one name."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

import chatledger

ROOT = Path(__file__).parent.parent
LAYERS = ["domain", "projections", "infra"]


@pytest.mark.parametrize("layer", LAYERS)
def test_layer_is_linked(layer: str) -> None:
    """`chatledger.<layer>` is the folder at the root."""
    link = ROOT / "src" / "chatledger" / layer

    assert link.is_symlink()
    assert (ROOT / layer).resolve() == link.resolve()


@pytest.mark.parametrize("layer", LAYERS)
def test_layer_has_no_second_name(layer: str) -> None:
    """Nothing named `domain` is importable from the package's path."""
    source = Path(chatledger.__file__).parent.parent

    assert not (source / layer).exists()
    assert importlib.util.find_spec(f"chatledger.{layer}") is not None


def test_package_is_typed() -> None:
    """Type checkers read the package's own annotations."""
    assert (ROOT / "src" / "chatledger" / "py.typed").exists()


def test_version_is_that_of_the_metadata() -> None:
    """`__version__` is read from the installed package; other unknown names are errors."""
    from importlib.metadata import version

    assert version("chatledger") == chatledger.__version__
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(chatledger, "nonsense")  # noqa: B009 - the type checkers know that there is none


def test_the_readme_lists_the_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = re.search(r"Optional extras: ([^.]*)\.", (ROOT / "README.md").read_text(encoding="utf-8"))

    assert listed is not None
    assert sorted(project["optional-dependencies"]) == sorted(re.findall(r"`([\w-]+)`", listed[1]))

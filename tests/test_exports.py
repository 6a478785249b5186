"""Names that the facade exports."""

import builtins
import inspect
import re
import subprocess
import sys
import tomllib
import types
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, Final

import pytest

import chatledger
from chatledger.domain import errors

ROOT: Final = Path(__file__).parent.parent
MAX_NAMES: Final = 70
MODULES: Final = sorted(
    f"chatledger.{path.stem}" for path in Path(chatledger.__file__).parent.glob("*.py") if not path.stem.startswith("_")
)
WITH_NAMES: Final = [name for name in MODULES if name != "chatledger.pytest_plugin"]


def test_an_application_sees_few_names() -> None:
    """What is used less has a module of its own."""
    assert sorted(chatledger.__all__) == list(chatledger.__all__)
    assert len({*chatledger.__all__, "open"}) <= MAX_NAMES
    assert set(chatledger.__all__) <= set(dir(chatledger))


def test_help_shows_public_names_only() -> None:
    """Neither the layers, nor the functions that import the names on first use, nor what they import."""
    shown = subprocess.run(
        [sys.executable, "-m", "pydoc", "chatledger"], capture_output=True, check=True, text=True
    ).stdout
    sections = dict(re.findall(r"^([A-Z ]+)\n(.*?)(?=^\S|\Z)", shown, re.MULTILINE | re.DOTALL))
    modules = {line.split()[0] for line in sections["PACKAGE CONTENTS"].splitlines() if line}
    behind_the_classes = shown[shown.index("\nFUNCTIONS\n") :]
    functions = re.findall(r"^    (\w+)\(", behind_the_classes, re.MULTILINE)

    assert {name for name in modules if not name.startswith("_")} == {
        *(name.removeprefix("chatledger.") for name in MODULES),
        "adapters",
    }
    assert "SUBMODULES" not in sections
    assert set(functions) <= set(chatledger.__all__)
    assert "user" in functions
    assert re.findall(r"^    (\w+) = ", behind_the_classes, re.MULTILINE) == ["ANY"]


@pytest.mark.parametrize("name", ["chatledger", *WITH_NAMES])
def test_all_replaces_no_builtin(name: str) -> None:
    """`from chatledger import *` leaves `open` as it is."""
    names: list[str] = import_module(name).__all__

    assert len(set(names)) == len(names)
    assert set() == set(names) & set(vars(builtins))


@pytest.mark.parametrize("name", WITH_NAMES)
def test_all_is_what_a_module_binds(name: str) -> None:
    """Modules and underscore names aside, nothing else is bound."""
    module = import_module(name)
    bound = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }

    assert set(module.__all__) == bound


def test_every_error_is_exported() -> None:
    """Whatever chatledger raises can be caught by a name of `chatledger.errors`; some have a place in the facade too."""
    from chatledger import errors as exported

    raised = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.ChatledgerError)
    }

    assert sorted(raised) == list(exported.__all__)
    assert {name for name in chatledger.__all__ if name.endswith("Error")} <= raised


def test_naming_the_package_imports_nothing() -> None:
    """Plugins and command lines that only name it start at once; the first name that is used imports all."""
    program = (
        "import sys, chatledger; before = {name for name in sys.modules if name.startswith('chatledger')}; "
        "assert before == {'chatledger'}, before; assert chatledger.Ledger is sys.modules['chatledger'].Ledger"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("scheme", ["memory:", "sqlite:///{}", "{}"])
def test_opening_imports_what_it_needs(scheme: str, tmp_path: Path) -> None:
    """A client of servers elsewhere is none of that, nor what only some users need: asyncio, vectors, other scripts, other databases."""
    program = (
        "import sys, chatledger\n"
        "with chatledger.open(sys.argv[1]) as ledger:\n"
        "    modules = [name.removeprefix('chatledger.') for name in sys.modules if name.startswith('chatledger.')]\n"
        "    assert len(modules) <= 250, len(modules)  # each costs half a millisecond\n"
        "    assert not {'domain.forms.openai', 'infra.ledger.sweeper', 'infra.ledger.scopes.as_of'} & set(modules)\n"
        "    assert not {'difflib', 'zoneinfo'} & set(sys.modules)\n"
        "    from chatledger import Ledger, user\n"
        "    assert not {'aiohttp', 'anyio', 'asyncio', 'nats', 'numpy', 'regex', 'sqlalchemy', 'ssl'} & set(sys.modules)\n"
        "    ledger.create_chat('c', 'ada'); ledger.append('c', [user('hi')])\n"
        "assert not {'numpy', 'regex', 'sqlalchemy'} & set(sys.modules)"
    )
    location = scheme.format(tmp_path / "chats.db")
    subprocess.run([sys.executable, "-W", "error", "-c", program, location], check=True, timeout=60)


def test_what_opens_comes_before_what_is_opened() -> None:
    """A server gets ready while the ledger, its index and its log are imported."""
    program = (
        "import sys, chatledger; chatledger.open\n"
        "assert not {'chatledger.infra.ledger.ledger', 'chatledger.infra.log.port', 'chatledger.infra.store.store', "
        "'chatledger.projections.index'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)


def test_the_version_alone_imports_no_command_line() -> None:
    """It is what the command line itself says."""
    program = (
        "import sys; from chatledger.__main__ import main; sys.argv[1:] = ['--version']; main()\n"
        "assert not {'click', 'rich', 'msgspec', 'lmdb'} & set(sys.modules)\n"
        "from chatledger.infra.entrypoints.cli import cli; cli.main(['--version'], 'chatledger', standalone_mode=False)"
    )
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)

    first, second = printed.stdout.splitlines()
    assert first == second


def test_the_version_is_printed_without_importing_a_ledger() -> None:
    program = (
        "import sys; from chatledger.infra.entrypoints.cli import cli; cli.main(['--version'], standalone_mode=False)\n"
        "assert not {'asyncio', 'eventsourcing', 'chatledger.domain.values', 'chatledger.infra.ledger.ledger'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)


IMPORT_EACH: Final = """
import importlib, os, sys

import eventsourcing.persistence, lmdb, msgspec, nats, numpy, regex  # at once for all children

for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        importlib.import_module(name)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
"""


@pytest.mark.soak
def test_each_module_may_be_imported_first() -> None:
    """As the package itself imports nothing, a circle of imports would show in any of them."""
    subprocess.run([sys.executable, "-W", "error", "-c", IMPORT_EACH, *MODULES], check=True, timeout=120)


def test_star_imports_every_name() -> None:
    names: dict[str, object] = {}
    exec("from chatledger import *", names)

    assert set(chatledger.__all__) == set(names) - {"__builtins__"}


def test_unknown_names() -> None:
    for name in ("nonsense", "repair", "_nonsense"):
        with pytest.raises(AttributeError, match=name):
            getattr(chatledger, name)


def test_both_ways_to_open_have_the_same_options() -> None:
    """They are written once; an unknown one is named."""
    opening: Any = chatledger.open
    opening_later: Any = chatledger.open_async
    ours, theirs = inspect.signature(opening), inspect.signature(opening_later)

    assert ours.parameters == theirs.parameters
    assert ours.parameters["location"].default == "./chatledger-data"
    assert (ours.return_annotation, theirs.return_annotation) == ("Ledger", "AsyncLedger")
    assert set(ours.parameters) == {line.split(":")[0].strip() for line in _arguments(opening)}
    for function in (opening, opening_later):
        with pytest.raises(TypeError, match="no option 'indx'; did you mean 'index'"):
            function("memory:", indx="./index")


def _arguments(function: object) -> list[str]:
    """The arguments that a docstring lists."""
    section = (inspect.getdoc(function) or "").split("Args:\n")[1].split("\n\n")[0]
    return [line for line in section.split("\n") if line.startswith("    ") and line[4] != " "]


def _public(cls: type) -> dict[str, object]:
    return {name: member for name, member in inspect.getmembers(cls) if not name.startswith("_")}


def test_async_ledger_has_every_method() -> None:
    """`AsyncLedger` offers what `Ledger` does, under the same names."""
    assert set() == set(_public(chatledger.Ledger)) - set(_public(chatledger.AsyncLedger))


def test_async_methods_have_the_same_arguments() -> None:
    """Each method takes the same arguments in both."""
    for name in set(_public(chatledger.Ledger)) & set(_public(chatledger.AsyncLedger)) - {"location", "position"}:
        ours = inspect.signature(getattr(chatledger.Ledger, name)).parameters
        theirs = inspect.signature(getattr(chatledger.AsyncLedger, name)).parameters

        assert list(ours) == list(theirs), name


def test_every_method_is_documented() -> None:
    """Each public method has a docstring."""
    assert [] == [name for name in _public(chatledger.Ledger) if not inspect.getdoc(getattr(chatledger.Ledger, name))]


@pytest.mark.guard
def test_nothing_that_every_installation_imports_needs_an_extra() -> None:
    """Each verb of the command line, and each public module but those that are about an extra, whatever else is installed here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    # Rich brings Markdown-it and Pygments along.
    there = {name_in(need) for need in project["dependencies"]} | {"chatledger", "markdown-it-py", "pygments"}
    extras = {name_in(need) for needs in project["optional-dependencies"].values() for need in needs} - there
    absent = {top for top, owners in packages_distributions().items() if extras & set(map(str.lower, owners))}
    assert {"langgraph", "joserfc", "starlette", "sqlalchemy"} <= absent
    program = (
        "import sys; from importlib import import_module\n"
        "sys.modules |= dict.fromkeys(sys.argv[1].split(','))  # what is None there cannot be imported\n"
        "from chatledger.infra.entrypoints.cli import app\n"
        "for module in {*app.VERBS.values()}: import_module('.' + module, app.__package__)\n"
        "for module in sys.argv[2:]: import_module(module)"
    )
    modules = [name for name in MODULES if name not in {"chatledger.langgraph", "chatledger.server"}]
    subprocess.run([sys.executable, "-c", program, ",".join(absent), *modules], check=True, timeout=120)


def name_in(requirement: str) -> str:
    """The name of what is required, as the index of packages spells it."""
    return re.split(r"[^\w.-]", requirement)[0].lower()

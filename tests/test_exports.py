"""Names that the facade exports."""

import builtins
import inspect
import subprocess
import sys
import types
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

import chatledger
from chatledger.domain import errors

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
    assert (ours.return_annotation, theirs.return_annotation) == (chatledger.Ledger, chatledger.AsyncLedger)
    assert set(ours.parameters) == {line.split(":")[0].strip() for line in _arguments(opening)}
    for function in (opening, opening_later):
        with pytest.raises(TypeError, match="unexpected keyword argument 'indx'"):
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

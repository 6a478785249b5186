"""What the facade offers."""

import inspect
import types

import chatledger
from chatledger.domain import errors


def test_all_is_what_the_facade_binds() -> None:
    """`__all__` is sorted and complete: modules and underscore names aside, nothing else is bound."""
    bound = {
        name
        for name, value in vars(chatledger).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }

    assert sorted(chatledger.__all__) == list(chatledger.__all__)
    assert bound == set(chatledger.__all__)


def test_every_error_is_exported() -> None:
    """Whatever chatledger raises can be caught by a name of the facade."""
    raised = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.ChatledgerError)
    }

    assert raised <= set(chatledger.__all__)


def _public(cls: type) -> dict[str, object]:
    return {name: member for name, member in inspect.getmembers(cls) if not name.startswith("_")}


def test_async_ledger_has_every_method() -> None:
    """`AsyncLedger` offers what `Ledger` does, under the same names."""
    missing = set(_public(chatledger.Ledger)) - set(_public(chatledger.AsyncLedger))

    # Properties cannot be awaited (`get_position`); `wait` is what the asynchronous feed is made of.
    assert {"location", "position", "last_position", "wait"} == missing


def test_async_methods_have_the_same_arguments() -> None:
    """Each method takes the same arguments in both."""
    for name in set(_public(chatledger.Ledger)) & set(_public(chatledger.AsyncLedger)):
        ours = inspect.signature(getattr(chatledger.Ledger, name)).parameters
        theirs = inspect.signature(getattr(chatledger.AsyncLedger, name)).parameters

        assert list(ours) == list(theirs), name


def test_every_method_is_documented() -> None:
    """Each public method has a docstring."""
    assert [] == [name for name in _public(chatledger.Ledger) if not inspect.getdoc(getattr(chatledger.Ledger, name))]

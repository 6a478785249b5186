"""Tests of others that cannot pass with what stands in for theirs, and why: `known.toml`, as marks of pytest."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

KNOWN: Final = Path(__file__).with_name("known.toml")


def add_options(parser: pytest.Parser) -> None:
    """Add the options: the place of the ledger, and the suite."""
    parser.addoption("--ledger", choices=["memory:", "directory", "defaults"], default="memory:")
    parser.addoption("--suite", required=True, help="the name of the suite in known.toml")


def expect_known(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """
    Expect of the tests that are known not to pass that they fail, and of each of them that it is there.

    Raises:
        UsageError: `known.toml` names a test that is not in its file.
    """
    ledger, known = config.getoption("--ledger"), dict[str, pytest.MarkDecorator]()
    groups = tomllib.loads(KNOWN.read_text())
    for is_strict, group in [(name == "cannot", group) for name, listed in groups.items() for group in listed]:
        if group["suite"] == config.getoption("--suite") and group.get("ledger", ledger) == ledger:
            known |= dict.fromkeys(group["tests"], pytest.mark.xfail(reason=group["reason"], strict=is_strict))
    seen: set[str] = set()
    for item in items:
        for name in (item.nodeid, item.nodeid.partition("[")[0]):
            if name in known:
                seen.add(name)
                item.add_marker(known[name])
                break
    files = {item.nodeid.partition("::")[0] for item in items}
    stale = [name for name in known.keys() - seen if name.partition("::")[0] in files]
    is_whole = not (config.option.keyword or any("::" in argument for argument in config.args))
    if is_whole and stale:
        msg = f"{KNOWN.name} names tests that there are not: {', '.join(sorted(stale))}"
        raise pytest.UsageError(msg)

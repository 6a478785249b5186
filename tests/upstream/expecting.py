"""The tests of others that cannot pass with a ledger, as `known.toml` lists them: they are expected to fail, and to be there."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

KNOWN: Final = Path(__file__).with_name("known.toml")


def expect_known(config: pytest.Config, items: Sequence[pytest.Item], *, ledger: str) -> None:
    """
    Mark the tests of the suite that are known not to pass.

    Raises:
        UsageError: `known.toml` names a test that there is not.
    """
    known: dict[str, pytest.MarkDecorator] = {}
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

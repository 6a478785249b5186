"""
The tests of others that `known.toml` lists, which must be there: those that cannot pass with a ledger are expected to fail,
and those that a busy machine disturbs are tried again.
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

KNOWN: Final = Path(__file__).with_name("known.toml")


def expect_known(config: pytest.Config, items: Sequence[pytest.Item], *, ledger: str) -> None:
    """
    Mark the tests of the suite that are known not to pass, or not always.

    Raises:
        UsageError: `known.toml` names a test that there is not.
    """
    known: dict[str, pytest.MarkDecorator] = {}
    groups = tomllib.loads(KNOWN.read_text())
    for kind, group in [(kind, group) for kind, listed in groups.items() for group in listed]:
        if group["suite"] == config.getoption("--suite") and group.get("ledger", ledger) == ledger:
            mark = (
                pytest.mark.flaky(reruns=4)
                if kind == "again"
                else pytest.mark.xfail(reason=group["reason"], strict=kind == "cannot")
            )
            known |= dict.fromkeys(group["tests"], mark)
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

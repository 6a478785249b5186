"""The contract of adapters: held against each of them, and between all of them that can be installed side by side."""

import importlib
import json
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
from tests.recorded.record_chains import CHAINS
from tests.support.adapters.plain import PlainDriver
from tests.support.asked_again import asking_again

from chatledger.testing import AdapterDriver, check_adapter, check_adapter_killed

ROOT: Final = Path(__file__).parents[4]
DRIVERS = {
    "adk": ("google.adk", "AdkDriver"),
    "agent_framework": ("agent_framework", "AgentFrameworkDriver"),
    "chatkit": ("chatkit", "ChatKitDriver"),
    "claude": ("claude_agent_sdk", "ClaudeDriver"),
    "llamaindex": ("llama_index.core", "DbStoreDriver"),
    "openai_agents": ("agents", "OpenAIAgentsDriver"),
    "pydantic_ai": ("pydantic_ai", "PydanticAIDriver"),
    "strands": ("strands", "StrandsDriver"),
}
"""By the module of the driver: that of the framework, and the name of the driver."""


def is_installed(name: str) -> bool:
    framework, _ = DRIVERS[name]
    try:
        return find_spec(framework) is not None
    except ModuleNotFoundError:  # not even the package that it would be in
        return False


def driver_of(name: str) -> AdapterDriver:
    made: AdapterDriver = getattr(importlib.import_module(f"tests.support.adapters.{name}"), DRIVERS[name][1])()
    return made


def test_the_ledger_itself_keeps_the_contract() -> None:
    check_adapter(PlainDriver(), others=[PlainDriver()])


def test_every_adapter_has_a_driver_an_extra_and_a_page() -> None:
    adapters = {path.stem for path in (ROOT / "src/chatledger/adapters").glob("[!_]*.py")}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    dashed = {name.replace("_", "-") for name in adapters}

    assert adapters - {"crewai"} == set(DRIVERS)  # CrewAI has checkpoints and states of flows, and no conversations
    assert adapters == {path.stem for path in CHAINS.glob("*.json")}
    assert dashed <= set(extras)
    assert dashed <= {path.stem for path in (ROOT / "docs/how-to").glob("*.md")}


@pytest.mark.parametrize("name", DRIVERS)
def test_an_adapter_keeps_the_contract(name: str) -> None:
    """
    Also with conversations that another adapter wrote, and others with those of this one: each pair once.

    Its decisions are the same however often they are asked, see `Store.execute`.
    """
    if not is_installed(name):
        pytest.skip(
            f"{DRIVERS[name][0]} is not installed; make adapters has the frameworks that want an environment of their own"
        )
    recorded = json.loads((CHAINS / f"{name}.json").read_text(encoding="utf-8"))
    later = [other for other in list(DRIVERS)[list(DRIVERS).index(name) + 1 :] if is_installed(other)]

    with asking_again():
        check_adapter(driver_of(name), others=[PlainDriver(), *map(driver_of, later)], recorded=[recorded])


@pytest.mark.guard
def test_the_ledger_itself_outlives_a_kill() -> None:
    check_adapter_killed("tests.support.adapters.plain:PlainDriver", rounds=2)

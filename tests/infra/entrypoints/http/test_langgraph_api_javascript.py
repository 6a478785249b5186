"""LangGraph's API by LangGraph's client for JavaScript."""

from pathlib import Path

import pytest
from tests.support import langgraph_client
from tests.support.http_world import serving
from tests.support.langgraph_client import echo
from tests.support.node_world import installed, needs_node, run_node

import chatledger
from chatledger.server import create_app

PROGRAM = Path(langgraph_client.__file__).with_suffix(".mjs")
PACKAGES = ("@langchain/langgraph-sdk@1.15.0", "@langchain/core@1")


@needs_node
@pytest.mark.soak
def test_the_javascript_client_finds_what_it_expects() -> None:
    with serving(create_app(chatledger.open_async("memory:"), graphs={"agent": echo()})) as url:
        told = run_node(installed(*PACKAGES), PROGRAM.read_text(), url)
    assert told == [
        ["agent"],
        ["two", "one"],
        "one",
        "1",
        ["__start__", "work", "__end__"],
        ["agent", {}],
        [[2, [], True], [1, [], True], [None, ["work"], False]],
        ["work"],
        {"status": "idle", "extracted": {"last": "hi"}},
        1,
        2,
        1,
        404,
        501,
    ]

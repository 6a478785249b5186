"""Assistants on the ledger: they have a history, and outlive the server."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cli_world import fails, finish, start
from tests.support.http_world import serving
from tests.support.langgraph_client import echo, sdk
from tests.support.soak import examples

import chatledger
from chatledger import Ledger
from chatledger.errors import AlreadyExistsError, ConfigurationError, NamespaceError, NotFoundError
from chatledger.graph_state import StateStore
from chatledger.infra.entrypoints.http.access import EVERYBODY, Principal
from chatledger.infra.entrypoints.http.langgraph_api.assistants import AssistantChange, Assistants
from chatledger.infra.entrypoints.http.langgraph_api.graphs import load_graphs
from chatledger.server import create_app


@pytest.fixture(scope="module")
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as ledger:
        yield ledger


@pytest.mark.guard
def test_an_assistant_outlives_the_server(tmp_path: Path) -> None:
    for is_first in (True, False):
        with serving(create_app(tmp_path, graphs={"agent": echo()})) as url, sdk(url) as client:
            if is_first:
                client.assistants.create("agent", assistant_id="mine", name="one")
                client.assistants.update("mine", name="two")
            assert [one["name"] for one in client.assistants.get_versions("mine")] == ["two", "one"]
            assert client.assistants.get("mine")["version"] == 2


@pytest.mark.guard
def test_an_assistant_whose_graph_is_gone_is_still_there(tmp_path: Path) -> None:
    with serving(create_app(tmp_path, graphs={"agent": echo()})) as url, sdk(url) as client:
        client.assistants.create("agent", assistant_id="mine")
        client.threads.create(thread_id="t", metadata={"assistant_id": "mine"})
        client.threads.update_state("t", {"n": 1}, as_node="work")
    with serving(create_app(tmp_path)) as url, sdk(url) as client:
        assert client.assistants.get("mine")["graph_id"] == "agent"
        assert client.threads.get_state("t")["values"] == {"n": 1}
        with pytest.raises(Exception, match="not registered"):
            client.threads.update_state("t", {"n": 2}, as_node="work")
        with pytest.raises(Exception, match="'agent' not found"):
            client.assistants.get_graph("mine")


def test_assistants_do_not_age(ledger: Ledger) -> None:
    assistants = Assistants(["agent"], ledger, EVERYBODY, 0)
    states = StateStore(ledger)
    assistants.create("lasting", AssistantChange(graph_id="agent"))
    states.put("chat:ann:old", {"a": 1})
    time.sleep(0.01)
    assert states.cleanup(max_age=0.001) == 1
    assert assistants.get("lasting").graph_id == "agent"
    assistants.delete("lasting")
    with pytest.raises(NotFoundError):
        assistants.get("lasting")


NAMES = st.sampled_from(["a", "b", "agent"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "update", "set_latest", "delete"]),
        NAMES,
        st.sampled_from(["ann", None]),
        st.integers(1, 4),
    ),
    max_size=12,
)


@settings(max_examples=examples(60))
@given(STEPS)
def test_versions_are_what_was_made(steps: list[tuple[str, str, str | None, int]]) -> None:
    """A model: of each user and assistant the descriptions of all versions, and which one is present."""
    with chatledger.open("memory:") as ledger:
        model: dict[tuple[str | None, str], tuple[list[str | None], int]] = {(None, "agent"): ([None], 1)}

        def of(user: str | None, name: str) -> tuple[str | None, str] | None:
            """The owner of the assistant that somebody means by a name."""
            return next((key for key in ((user, name), (None, name)) if key in model), None)

        for number, (what, name, user, version) in enumerate(steps):
            assistants = Assistants(["agent"], ledger, Principal(user_id=user), 0)
            key = of(user, name)
            change = AssistantChange(graph_id="agent", description=str(number))
            try:
                if what == "create":
                    assistants.create(name, change)
                    model[(user, name)] = ([str(number)], 1)
                    assert key is None
                elif what == "update":
                    made = assistants.update(name, change)
                    assert key is not None
                    model[key][0].append(str(number))
                    model[key] = (model[key][0], len(model[key][0]))
                    assert made.version == len(model[key][0])
                elif what == "set_latest":
                    assistants.set_latest(name, version)
                    assert key is not None
                    model[key] = (model[key][0], version)
                else:
                    assistants.delete(name)
                    assert key is not None
                    del model[key]
            except chatledger.ChatledgerError as error:
                _check_refusal(error, what, name, user, key, model, version)
        for user in ("ann", None):
            assistants = Assistants(["agent"], ledger, Principal(user_id=user), 0)
            for name in ("a", "b", "agent"):
                key = of(user, name)
                if key is None:
                    continue
                descriptions, present = model[key]
                assert assistants.get(name).version == present
                assert [one.description for one in reversed(assistants.versions(name))] == descriptions
            assert {one.assistant_id for one in assistants.list()} == {
                name for name in ("a", "b", "agent") if of(user, name) is not None
            }


def _check_refusal(
    error: Exception, what: str, name: str, user: str | None, key: Any, model: dict[Any, Any], version: int
) -> None:
    if isinstance(error, NotFoundError):
        assert key is None or version > len(model[key][0])
    elif isinstance(error, AlreadyExistsError):
        assert what == "create"
        assert key is not None
    else:
        assert key is not None
        assert key[0] != user or (what == "delete" and name == "agent")


def test_an_id_that_no_namespace_can_have_is_refused(ledger: Ledger) -> None:
    assistants = Assistants(["agent"], ledger, EVERYBODY, 0)
    for assistant_id in ("a|b", ""):
        with pytest.raises(NamespaceError):
            assistants.create(assistant_id, AssistantChange(graph_id="agent"))


def test_graphs_are_named_by_modules_and_files(tmp_path: Path) -> None:
    path = tmp_path / "some_agent.py"
    path.write_text(
        "from tests.support.langgraph_client import echo\ngraph = echo()\nclass Nested:\n    graph = graph\n"
    )
    loaded = load_graphs(["one=tests.support.langgraph_client:echo", f"two={path}:graph", f"three={path}:Nested.graph"])
    assert list(loaded) == ["one", "two", "three"]
    for wrong in ("one", "one=module", "=a:b", f"a={path}:absent", "a=absent.module:graph", "a=absent.py:graph"):
        with pytest.raises(ConfigurationError):
            load_graphs([wrong])
    with pytest.raises(ConfigurationError, match="two graphs"):
        load_graphs([f"one={path}:graph", f"one={path}:graph"])
    for name, source in (("a|b", echo()), ("a", 3)):
        with pytest.raises((ConfigurationError, NamespaceError)):
            create_app(chatledger.open_async("memory:"), graphs={name: source})


@pytest.mark.soak
def test_the_command_line_serves_graphs(tmp_path: Path) -> None:
    program = tmp_path / "my_agent.py"
    program.write_text("from langgraph.graph import START, StateGraph\n\ngraph = StateGraph(dict)\n")
    with program.open("a") as more:
        more.write("graph.add_node('only', lambda state: state)\ngraph.add_edge(START, 'only')\n")
    process = start("--location", tmp_path / "ledger", "serve", "--port", "0", "--graph", f"mine={program}:graph")
    try:
        assert process.stdout is not None
        url = process.stdout.readline().rpartition(" ")[2].strip()
        with sdk(url) as client:
            assert [one["assistant_id"] for one in client.assistants.search()] == ["mine"]
    finally:
        process.terminate()
        finish(process)
    assert "names no graph" in fails(1, "serve", "--graph", "mine", at=tmp_path / "ledger")

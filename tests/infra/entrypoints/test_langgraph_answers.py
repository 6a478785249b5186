"""A chat's messages and a thread's checkpoints together."""

import subprocess
import sys
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from tests.support.langgraph_programs import react

import chatledger
from chatledger import NewMessage, user
from chatledger.domain.errors import InvalidValueError, NotFoundError
from chatledger.langgraph import LedgerSaver, config_of_answer, record_answer

CONFIG: Any = {"configurable": {"thread_id": "c"}}


def test_an_answer_is_a_message_and_knows_its_checkpoint(ledger: chatledger.Ledger) -> None:
    ledger.create_chat("c", "ada")
    saver = LedgerSaver(ledger).for_assistant("helper")
    graph = react(saver)
    runs: list[Any] = []
    for turn in range(2):
        (question,) = ledger.append("c", [user(f"q{turn}")])
        if turn:
            ledger.record_run("c", "run1", thread_id="c", assistant_id="helper", trigger_message_id=question.id)
        said = graph.invoke({"messages": [HumanMessage(f"q{turn}", id=f"h{turn}")]}, CONFIG)["messages"][-1].text
        before = ledger.last_position()
        runs.append(record_answer(saver, "c", f"run{turn}", said, trigger_message_id=question.id))
        assert {event.event.rest for event in ledger.history() if event.position > before} in ({0}, {0, 1})
    shown = [message.text for message in ledger.get_messages("c")]
    assert shown == ["q0", "answer 3 to found q0", "q1", "answer 7 to found q1"]
    assert [run.status for run in runs] == ["completed", "completed"]

    config = config_of_answer(saver, "c", str(runs[0].message_id))
    assert config is not None
    assert len(graph.get_state(config).values["messages"]) == 4
    assert config_of_answer(saver, "c", str(runs[0].trigger_message_id)) is None
    forked = graph.invoke({"messages": [HumanMessage("other", id="o")]}, config)["messages"]
    assert [message.text for message in forked][-1] == "answer 7 to found other"


def test_what_can_not_be_an_answer(ledger: chatledger.Ledger) -> None:
    ledger.create_chat("c", "ada")
    saver = LedgerSaver(ledger)
    with pytest.raises(InvalidValueError, match="for_assistant"):
        record_answer(saver, "c", "r", "text")
    with pytest.raises(NotFoundError, match="'a'"):
        record_answer(saver.for_assistant("a"), "c", "r", NewMessage("assistant", "text"))
    assert ledger.get_messages("c") == []


@pytest.mark.soak
def test_without_langgraph_the_error_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['langgraph.checkpoint.base'] = None\nimport chatledger\nimport chatledger.langgraph"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ConfigurationError: chatledger.langgraph needs" in done.stderr
    assert "pip install 'chatledger[langgraph]'" in done.stderr

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedBaseClass=false
"""CrewAI: checkpoints with their lineage, states of flows, and crews and flows at work."""

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("crewai")

from crewai import CheckpointConfig, Crew
from crewai.flow import Flow, human_feedback, listen, start
from crewai.flow.async_feedback.types import HumanFeedbackPending, HumanFeedbackProvider, PendingFeedbackContext
from crewai.flow.persistence import persist
from pydantic import BaseModel
from tests.recorded.record_chains import CHAINS
from tests.support.adapters.crewai import ScriptedModel, crew
from tests.support.adapters.pages import run_page

import chatledger
from chatledger import Ledger
from chatledger.adapters.crewai import LedgerFlowPersistence, LedgerProvider
from chatledger.errors import ConfigurationError, InvalidValueError, OwnerMismatchError


def ids(ledger: Ledger, branch: str) -> list[str]:
    return [message.id.rpartition(":")[2] for message in ledger.get_messages("trip", branch=branch)]


def branches(ledger: Ledger) -> list[str]:
    return [branch.name for branch in ledger.list_branches("trip")]


def test_checkpoints_come_back_as_they_were(ledger: Ledger) -> None:
    provider = LedgerProvider(ledger)
    data = json.dumps({"entities": [], "event_record": {"é": [1.5, None]}}, indent=1)
    at = provider.checkpoint(data, "trip")
    assert at.startswith("trip#")
    assert provider.from_checkpoint(at) == data
    assert asyncio.run(provider.afrom_checkpoint(at)) == data
    assert provider.extract_id(at) == at.partition("#")[2]
    assert provider.from_checkpoint(provider.checkpoint("no JSON", "trip")) == "no JSON"
    large = json.dumps({"text": "x" * 3_000_000})
    assert provider.from_checkpoint(asyncio.run(provider.acheckpoint(large, "trip"))) == large
    for unknown in ("trip#none", "none#none", "trip", f"other#{provider.extract_id(at)}"):
        with pytest.raises(ValueError, match="Checkpoint not found"):
            provider.from_checkpoint(unknown)


def test_what_crewai_wrote_comes_back(ledger: Ledger) -> None:
    """Recorded checkpoints and states, and values that JSON cannot say."""
    provider, flows = LedgerProvider(ledger), LedgerFlowPersistence(ledger)
    recorded = json.loads((CHAINS / "crewai.json").read_text(encoding="utf-8"))
    odd = {"id": "f", "large": 1 << 70, "nan": float("nan"), "half": "\ud83d", "unknown": [1]}
    for value in [*recorded, {"checkpoint": json.dumps(odd)}, {"method": "odd", "state": odd}]:
        if "checkpoint" in value:
            assert provider.from_checkpoint(provider.checkpoint(value["checkpoint"], "trip")) == value["checkpoint"]
        else:
            flows.save_state("f", value["method"], value["state"])
            assert repr(flows.load_state("f")) == repr(value["state"])
    assert {message.form for chat_id in ("trip", "f") for message in ledger.get_messages(chat_id)} == {"crewai"}


def test_lineage_is_that_of_branches(ledger: Ledger) -> None:
    provider = LedgerProvider(ledger)

    def made(parent: str | None, branch: str = "main") -> str:
        return provider.extract_id(provider.checkpoint("{}", "trip", parent_id=parent, branch=branch))

    a = made(None)
    b = made(a)
    c = made(b)
    d = made(b, "fork/1")
    assert (ids(ledger, "main"), ids(ledger, "fork/1")) == ([a, b, c], [a, b, d])
    active = ledger.get_active_branch("trip")
    assert active is not None
    assert active.name == "fork/1"
    e = made(a)  # restored from the first one, on the same branch
    assert (ids(ledger, "main"), ids(ledger, "main-v2")) == ([a, e], [a, b, c])
    f = made(None)  # a new run in the same place
    assert (ids(ledger, "main"), ids(ledger, "main-v3")) == ([f], [a, e])
    g = made("of another place")
    assert ids(ledger, "main") == [g]
    assert len(ids(ledger, "main-v4")) == 1
    made(None, "other")
    assert "other" in branches(ledger)
    first = provider.checkpoint("{}", "elsewhere", branch="b")
    assert [branch.name for branch in ledger.list_branches("elsewhere")] == ["b", "main"]
    assert provider.from_checkpoint(first) == "{}"


def test_prune_keeps_the_newest_of_a_branch(ledger: Ledger) -> None:
    provider = LedgerProvider(ledger)
    made: list[str] = []
    for number in range(6):
        parent = provider.extract_id(made[-1]) if made else None
        made.append(provider.checkpoint(json.dumps({"trigger": f"step{number}"}), "trip", parent_id=parent))
    parent = provider.extract_id(made[2])
    fork = provider.checkpoint("{}", "trip", parent_id=parent, branch="fork")
    before = ledger.position
    assert provider.prune("trip", 2) == 4
    assert provider.prune("trip", 2) == 0
    assert provider.prune("trip", 1, branch="fork") == 0
    assert provider.from_checkpoint(made[-1]) == '{"trigger": "step5"}'
    assert provider.from_checkpoint(fork) == "{}"
    with pytest.raises(ValueError, match="not found"):
        provider.from_checkpoint(made[0])
    assert ledger.search("step0") == []
    with ledger.as_of(before) as then:
        assert not any(message.is_hidden for message in then.get_messages("trip", branch="main"))
    assert provider.prune("trip", 0) == 2
    assert (provider.prune("none", 1), provider.prune("trip", 1, branch="none")) == (0, 0)
    with pytest.raises(InvalidValueError):
        provider.prune("trip", -1)


def test_another_users_checkpoints_are_not_there(ledger: Ledger) -> None:
    at = LedgerProvider(ledger, user_id="ada").checkpoint("{}", "trip")
    bob = LedgerProvider(ledger.for_user("bob"))
    with pytest.raises(ValueError, match="not found"):
        bob.from_checkpoint(at)
    with pytest.raises(OwnerMismatchError):
        bob.checkpoint("{}", "trip")
    assert bob.prune("trip", 0) == 0
    with pytest.raises(ConfigurationError):
        LedgerProvider(7)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # CrewAI reads its own deprecated fields
def test_a_crew_at_work(ledger: Ledger, tmp_path: Any) -> None:
    provider = LedgerProvider(ledger)
    config = CheckpointConfig(location="trip", provider=provider)
    result = crew("In Alfama.", "After nine.", checkpoint=config).kickoff()
    assert result.raw == "After nine."
    checkpoints = ledger.get_messages("trip")
    assert len(checkpoints) == 2
    assert [hit.message.id for hit in ledger.search("Alfama")] == [checkpoints[0].id]

    file = provider.save_file(f"trip#{checkpoints[0].id.rpartition(':')[2]}", tmp_path / "restored")
    restored = Crew.from_checkpoint(CheckpointConfig(restore_from=file))
    assert [task.output.raw for task in restored.tasks if task.output] == ["In Alfama."]
    forked = Crew.fork(CheckpointConfig(restore_from=file), branch="later")
    forked.checkpoint = config
    for task in forked.tasks:
        task.agent.llm = ScriptedModel(model="none", answers=["At ten."])
    assert forked.kickoff().raw == "At ten."
    assert branches(ledger) == ["main", "later"]
    assert ledger.get_messages("trip", branch="later")[0] == checkpoints[0], "what they share is stored once"


def context(flow_id: str) -> PendingFeedbackContext:
    return PendingFeedbackContext(
        flow_id=flow_id, flow_class="x.Y", method_name="ask", method_output={"draft": 1}, message="Good?"
    )


class State(BaseModel):
    """A state with values that JSON does not know."""

    id: str = "f"
    words: set[str] = set()
    said: str = ""


def test_states_of_flows(ledger: Ledger) -> None:
    flows = LedgerFlowPersistence(ledger)
    flows.init_db()
    assert flows.load_state("f") is None
    flows.save_state("f", "begin", {"id": "f", "n": 1 << 100})
    flows.save_state("f", "go_on", State(words={"a"}, said="fado"))
    assert flows.load_state("f") == {"id": "f", "words": ["a"], "said": "fado"}
    assert [message.name for message in ledger.get_messages("f")] == ["state", "state"]
    assert len(ledger.search("fado")) == 1
    ledger.append("f", chatledger.user("a remark"))
    assert flows.load_state("f") == {"id": "f", "words": ["a"], "said": "fado"}
    ledger.fork("f", ledger.get_messages("f")[0].id)
    assert flows.load_state("f") == {"id": "f", "n": 1 << 100}, "a flow goes on from where its branch is"
    with pytest.raises(InvalidValueError):
        flows.save_state("f", "begin", ["no object"])  # type: ignore[arg-type]
    with pytest.raises(OwnerMismatchError):
        LedgerFlowPersistence(ledger.for_user("bob")).save_state("f", "begin", {})
    ledger.create_chat("notes", "ada")
    assert flows.load_state("notes") is None


def test_pending_feedback(ledger: Ledger) -> None:
    flows = LedgerFlowPersistence(ledger)
    assert flows.load_pending_feedback("f") is None
    flows.clear_pending_feedback("f")
    flows.save_pending_feedback("f", context("f"), {"n": 1})
    position = ledger.position
    flows.save_pending_feedback("f", context("f"), {"n": 2})
    assert (found := flows.load_pending_feedback("f")) is not None
    assert (found[0], found[1].message, found[1].method_output) == ({"n": 2}, "Good?", {"draft": 1})
    assert flows.load_state("f") == {"n": 2}
    flows.clear_pending_feedback("f")
    flows.clear_pending_feedback("f")
    assert flows.load_pending_feedback("f") is None
    with ledger.as_of(position) as then:
        assert then.get_chat("f") is not None


def test_a_location_outlives_a_dump(tmp_path: Any) -> None:
    flows = LedgerFlowPersistence(f"sqlite:///{tmp_path}/log.db", user_id="ada")
    flows.save_state("f", "begin", {"n": 1})
    flows.close()
    again = LedgerFlowPersistence.model_validate(flows.model_dump(mode="json"))
    assert again.load_state("f") == {"n": 1}
    again.close()
    with pytest.raises(ConfigurationError):
        LedgerFlowPersistence()


class Waiting(HumanFeedbackProvider):  # type: ignore[misc]  # CrewAI is not installed where types are checked
    """Somebody who answers later."""

    def request_feedback(self, context: PendingFeedbackContext, flow: Any) -> str:
        raise HumanFeedbackPending(context=context)


def test_a_flow_at_work(ledger: Ledger) -> None:
    flows = LedgerFlowPersistence(ledger)

    @persist(flows)
    class Review(Flow):  # type: ignore[misc]
        @start()  # type: ignore[untyped-decorator]
        @human_feedback(message="Good?", provider=Waiting())  # type: ignore[untyped-decorator]
        def draft(self) -> str:
            self.state["text"] = "A draft"
            return "A draft"

        @listen(draft)  # type: ignore[untyped-decorator]
        def publish(self, result: Any) -> str:
            self.state["text"] = "Published"
            return f"published after {result.feedback}"

    flow = Review(persistence=flows)
    assert isinstance(flow.kickoff(), HumanFeedbackPending)
    flow_id = flow.state["id"]
    assert flows.load_pending_feedback(flow_id) is not None
    resumed = Review.from_pending(flow_id, flows)
    assert resumed.resume("looks good") == "published after looks good"
    assert flows.load_pending_feedback(flow_id) is None
    assert (flows.load_state(flow_id) or {})["text"] == "Published"
    assert len(ledger.get_messages(flow_id)) >= 3


def test_page() -> None:
    run_page("crewai")

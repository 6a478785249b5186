"""Memory follows the branch: what an agent is given when a message sets it off, whatever was forked and edited before."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, StateGraph
from tests.support.run_graphs import State

import chatledger
from chatledger import NewMessage, user
from chatledger.domain.errors import InvalidValueError, MessageNotFoundError, NotFoundError
from chatledger.domain.versioned.record import BEGINNING
from chatledger.langgraph import LedgerSaver, config_of_message

AGENTS = ("A", "B")


class Panel:
    """A chat in which agents answer who addresses them, each with a memory on the thread of the chat."""

    def __init__(self) -> None:
        self.ledger = chatledger.open("memory:")
        self.ledger.create_chat("c", "ada")
        self.savers = {name: LedgerSaver(self.ledger).for_assistant(name) for name in AGENTS}
        self.given: list[str] = []
        self.count = 0
        builder: Any = StateGraph(State)
        builder.add_node("answer", self._answer)
        builder.add_edge(START, "answer")
        self.graphs = {name: builder.compile(checkpointer=saver) for name, saver in self.savers.items()}

    def _answer(self, state: State) -> State:
        self.given = [str(message.content) for message in state["messages"]]
        self.count += 1
        if "boom" in self.given[-1]:
            msg = "boom"
            raise ValueError(msg)
        return {"messages": [AIMessage(f"answer {self.count}")]}

    def said(self, text: str, *, parent: str | None = None, is_edit: bool = False) -> str:
        """A message of a human; an edit stands beside others, and no branch moves."""
        if is_edit:
            return self.ledger.add_messages("c", [NewMessage("user", text, parent_id=parent)])[0].id
        return self.ledger.append("c", [user(text)])[0].id

    def runs(self, agent: str, message_id: str, *references: str) -> str:
        """An agent answers a message; returns the id of the run."""
        run_id = f"{agent} of {message_id} {self.count}"
        self.ledger.record_run(
            "c", run_id, thread_id="c", assistant_id=agent, trigger_message_id=message_id, references=references
        )
        self.execute(agent, run_id, message_id)
        return run_id

    def execute(self, agent: str, run_id: str, message_id: str) -> None:
        """Execute a run from where the branch of its trigger stands, and check what its agent is given."""
        trigger = self.ledger.get_message(message_id)
        assert trigger is not None
        expected = [*self.remembered(agent, message_id), trigger.text]
        config = config_of_message(self.savers[agent], "c", message_id)
        try:
            state = self.graphs[agent].invoke({"messages": [HumanMessage(trigger.text)]}, config)
        except ValueError:
            self.ledger.fail_run("c", run_id, checkpoint_id=self.newest(agent))
            return
        assert expected == self.given
        answer = NewMessage("assistant", state["messages"][-1].content)
        self.ledger.complete_run("c", run_id, answer=answer, checkpoint_id=self.newest(agent))

    def newest(self, agent: str) -> str:
        found = self.savers[agent].get_thread_state("c")
        assert found is not None
        return found.checkpoint["checkpoint_id"]

    def checkpoint_ids(self) -> list[str]:
        """The checkpoints of all agents."""
        config: Any = {"configurable": {"thread_id": "c"}}
        return [found.checkpoint["id"] for saver in self.savers.values() for found in saver.list(config)]

    def remembered(self, agent: str, message_id: str) -> list[str]:
        """The model: what the agent heard and said on the chain before a message."""
        texts: list[str] = []
        for message in self.ledger.get_chain(message_id)[:-1]:
            if message.agent_id == agent and message.reply_to is not None:
                heard = self.ledger.get_message(message.reply_to)
                assert heard is not None
                texts += [heard.text, message.text]
        return texts

    def edits(self, message_id: str, text: str) -> str | None:
        """Edit a message and repeat all runs that became stale; returns the branch."""
        edited = self.ledger.get_message(message_id)
        assert edited is not None
        new = self.said(text, parent=edited.parent_id, is_edit=True)
        plan = self.ledger.plan_regeneration("c", message_id, max_cascade=1_000)
        begun = self.ledger.begin_regeneration(plan, new_message_id=new)
        while ready := self.ledger.get_regeneration("c", begun.id).ready:  # type: ignore[union-attr]
            for step in ready:
                run = self.ledger.repeat_run("c", begun.id, step.repeats.run_id)
                assert run.trigger_message_id is not None
                self.execute(run.assistant_id, run.run_id, run.trigger_message_id)
        done = self.ledger.get_regeneration("c", begun.id)
        assert done is not None
        assert done.is_done
        return done.branch


place = st.integers(0, 1_000)
turns = st.tuples(st.just("turn"), st.sampled_from(AGENTS), place)
steps = st.lists(
    st.one_of(
        turns,
        turns,
        st.tuples(st.just("fork"), st.booleans(), place),
        st.tuples(st.just("edit"), st.booleans(), place),
        st.tuples(st.just("again"), st.sampled_from(AGENTS), place),
    ),
    min_size=1,
    max_size=14,
)


@settings(deadline=None)
@example([("turn", "B", 0), ("edit", False, 1), ("edit", False, 0)])  # two answers of B, of which the first waits for A
@example(
    [("fork", False, 0), ("turn", "A", 1), ("turn", "A", 0), ("edit", False, 0)]
)  # A answers only on a branch without an answer
@given(steps)
def test_an_agent_is_given_the_texts_of_its_branch_and_no_others(steps: list[tuple[str, Any, int]]) -> None:
    """NS-42, NS-46, NS-49: turns with several agents and references, forks, edits with all that follows, questions asked again."""
    panel = Panel()
    with panel.ledger as ledger:
        panel.runs("A", panel.said("hello"))
        for number, (what, which, at) in enumerate(steps):
            chain = ledger.get_messages("c")
            message = chain[at % len(chain)]
            asked = [one for one in chain if one.name == "user"]
            if what == "turn":
                panel.runs(which, panel.said(f"text {number}"), *([message.id] if at % 3 == 0 else []))
            elif what == "fork":
                ledger.fork("c", message.id)
            elif what == "again":
                trigger = asked[at % len(asked)].id
                ledger.fork("c", trigger)
                panel.runs(which, trigger)
            else:
                branch = panel.edits(asked[at % len(asked)].id, f"edited {number}")
                if which and branch is not None:
                    ledger.set_active_branch("c", branch)


def test_a_run_that_remembers_a_stale_one_is_planned() -> None:
    """Its memory has the text before the edit; on the new branch the agent remembers what stands there."""
    panel = Panel()
    with panel.ledger as ledger:
        first = panel.said("my name is Ada")
        run_ids = [panel.runs("A", first), panel.runs("B", panel.said("what do you think, B?"))]
        run_ids.append(panel.runs("A", panel.said("nice weather")))
        run_ids.append(panel.runs("A", panel.said("who am I?"), str(ledger.runs("c")[0].message_id)))
        plan = ledger.plan_regeneration("c", first)

        assert [
            (run_ids[0], "trigger", None, 1),
            (run_ids[2], "memory", run_ids[0], 2),
            (run_ids[3], "reference", run_ids[2], 2),
        ] == [(run.run_id, run.cause, run.remembers, run.depth) for run in plan.runs]
        branch = panel.edits(first, "my name is Grace")
        assert branch is not None
        ledger.set_active_branch("c", branch)
        panel.runs("A", panel.said("and now?"))
        assert "my name is Ada" not in panel.given
        assert "nice weather" in panel.given


def test_memory_is_told_by_the_branch_where_checkpoints_were_pruned() -> None:
    panel = Panel()
    with panel.ledger as ledger:
        first = panel.said("my name is Ada")
        run_ids = [panel.runs("A", first), panel.runs("A", panel.said("nice weather"))]
        panel.savers["A"].prune(["c"])

        assert run_ids == [run.run_id for run in ledger.plan_regeneration("c", first).runs]
        panel.savers["A"].delete_thread("c")
        assert run_ids[:1] == [run.run_id for run in ledger.plan_regeneration("c", first).runs]


def test_a_failed_run_was_heard_by_its_agent_but_not_by_its_repetition() -> None:
    panel = Panel()
    with panel.ledger:
        panel.runs("A", panel.said("hello"))
        failing = panel.said("boom")
        panel.runs("A", failing)
        panel.runs("A", failing)
        assert ["hello", "answer 1", "boom"] == panel.given
        config = config_of_message(panel.savers["A"], "c", panel.said("go on"))
        panel.graphs["A"].invoke({"messages": [HumanMessage("go on")]}, config)
        assert ["hello", "answer 1", "boom", "go on"] == panel.given


def test_what_came_after_the_last_run_and_is_of_no_other_branch_counts() -> None:
    """An update of the state, and a run that no message set off; but not on a branch that was forked before them."""
    panel = Panel()
    with panel.ledger as ledger:
        thread: Any = {"configurable": {"thread_id": "c"}}
        panel.runs("A", panel.said("hello"))
        fork_at = ledger.get_messages("c")[-1].id
        panel.graphs["A"].update_state(thread, {"messages": [HumanMessage("a note")]}, as_node="answer")
        message_id = panel.said("well?")
        assert thread == config_of_message(panel.savers["A"], "c", message_id)
        panel.graphs["A"].invoke(
            {"messages": [HumanMessage("well?")]}, config_of_message(panel.savers["A"], "c", message_id)
        )
        assert ["hello", "answer 1", "a note", "well?"] == panel.given
        ledger.record_run(
            "c", "r", thread_id="c", assistant_id="A", trigger_message_id=message_id,
            answer=NewMessage("assistant", "answer 2"), checkpoint_id=panel.newest("A"),
        )  # fmt: skip
        panel.graphs["A"].update_state(thread, {"messages": [HumanMessage("another note")]}, as_node="answer")
        ledger.fork("c", fork_at)
        panel.runs("A", panel.said("elsewhere"))
        assert ["hello", "answer 1", "elsewhere"] == panel.given


def test_an_answer_that_came_after_the_next_message_counts() -> None:
    """Two messages are sent at once: the first answer stands behind the second message."""
    panel = Panel()
    with panel.ledger as ledger:
        first, second = panel.said("one"), panel.said("two")
        panel.runs("A", first)
        config = config_of_message(panel.savers["A"], "c", second)
        panel.graphs["A"].invoke({"messages": [HumanMessage("two")]}, config)
        assert ["one", "answer 1", "two"] == panel.given
        assert ["user", "user", "assistant"] == [message.name for message in ledger.get_messages("c")]


def test_whose_memory_is_meant_must_be_known() -> None:
    with chatledger.open("memory:") as ledger:
        ledger.create_chat("c", "ada")
        with pytest.raises(InvalidValueError, match="for_assistant"):
            config_of_message(LedgerSaver(ledger), "c", "m")
        with pytest.raises(MessageNotFoundError):
            config_of_message(LedgerSaver(ledger).for_assistant("A"), "c", "m")


def test_a_checkpoint_that_is_none_is_an_error_in_process() -> None:
    """NS-26: LangGraph begins with an empty state where a checkpoint is not found; that must not become the latest."""
    panel = Panel()
    with panel.ledger:
        panel.runs("A", panel.said("remember me"))
        panel.runs("B", panel.said("I am B"))
        for checkpoint_id in ("nope", panel.newest("B")):
            config: Any = {"configurable": {"thread_id": "c", "checkpoint_id": checkpoint_id}}
            before = panel.checkpoint_ids()
            with pytest.raises(NotFoundError, match="namespace 'assistant:A'"):
                panel.graphs["A"].invoke({"messages": [HumanMessage("x")]}, config, durability="sync")
            with pytest.raises(NotFoundError, match=checkpoint_id):
                panel.graphs["A"].update_state(config, {"messages": [HumanMessage("x")]}, as_node="answer")
            assert before == panel.checkpoint_ids()
        assert {} == panel.graphs["A"].get_state(config).values


def test_whoever_names_the_beginning_begins_with_nothing() -> None:
    panel = Panel()
    with panel.ledger:
        panel.runs("A", panel.said("hello"))
        config: Any = {"configurable": {"thread_id": "c", "checkpoint_id": BEGINNING}}
        panel.graphs["A"].invoke({"messages": [HumanMessage("anew")]}, config)
        assert ["anew"] == panel.given
        history = panel.savers["A"].get_thread_history("c", limit=None)
        assert [None, None] == [state.parent_checkpoint for state in history if state.metadata["step"] == -1]

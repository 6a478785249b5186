"""The newest threads: the order of the index, read as far as it is asked for."""

import random
import sys
import time
from types import FrameType
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from tests.support.run_graphs import State

import chatledger
from chatledger import Ledger
from chatledger.infra.entrypoints.http.access import Principal
from chatledger.infra.entrypoints.http.langgraph_api import known_threads
from chatledger.infra.entrypoints.http.langgraph_api.assistants import Assistants
from chatledger.infra.entrypoints.http.langgraph_api.known_threads import count_threads, list_newest, list_threads
from chatledger.langgraph import LedgerSaver

USERS = ("ada", "bob")


def one_more(state: State) -> State:
    return {"n": state.get("n", 0) + 1}


def graph() -> Any:
    builder: Any = StateGraph(State)
    builder.add_node("count", one_more)
    builder.add_edge(START, "count")
    return builder


def filled(ledger: Ledger, count: int, seed: int) -> None:
    """Chats with states, chats without, and states without a chat, of two users, changed again at random."""
    chance = random.Random(seed)
    for number in range(count):
        user, thread_id = chance.choice(USERS), f"t{number}"
        own = ledger.for_user(user)
        kind = chance.randrange(3)
        if kind < 2:
            own.create_chat(thread_id, user)
        if kind:
            run(own, thread_id)
        time.sleep(0.003)  # the id of a checkpoint is made before its event
        if number and chance.random() < 0.5:
            old = f"t{chance.randrange(number)}"
            for other in (ledger.for_user(one) for one in USERS):
                if other.get_chat(old) is not None:
                    other.update_chat(old, title=str(number))
            time.sleep(0.003)


def run(own: Ledger, thread_id: str) -> None:
    compiled = graph().compile(checkpointer=LedgerSaver(own).for_assistant("agent"))
    compiled.invoke({"n": 0}, {"configurable": {"thread_id": thread_id}})


def assistants(ledger: Ledger) -> Assistants:
    return Assistants([], ledger, Principal(), 0)


def ordered(ledger: Ledger, known: Assistants) -> list[str]:
    found = sorted(list_threads(ledger, known), key=lambda one: one.updated_at, reverse=True)
    return [one.thread_id for one in found]


@pytest.mark.guard
def test_the_newest_threads_come_first_for_each_user() -> None:
    """The same list as by reading all, in parts; of one's own."""
    with chatledger.open("memory:") as ledger:
        filled(ledger, 80, seed=1)
        for view in (ledger, *(ledger.for_user(user) for user in USERS)):
            found = [one.thread_id for one in list_newest(view, assistants(ledger))]
            assert found == ordered(view, assistants(ledger))
            assert count_threads(view) == len(found)


@pytest.mark.guard
def test_a_page_of_the_newest_reads_no_more_than_the_page() -> None:
    with chatledger.open("memory:") as ledger:
        filled(ledger, 60, seed=1)
        read = 0

        def count(frame: FrameType, event: str, _: Any) -> None:
            nonlocal read
            read += event == "call" and frame.f_code is known_threads.read_thread_record.__code__

        sys.setprofile(count)
        try:
            newest = list_newest(ledger, assistants(ledger))
            page = [next(newest).thread_id for _ in range(5)]
        finally:
            sys.setprofile(None)
        assert page == ordered(ledger, assistants(ledger))[:5]
        assert read == 5

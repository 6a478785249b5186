"""The scenario of the tutorial "two agents in one chat" over HTTP: two users, a question, an edit and a cascade, through kills."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.support.http_world import API
from tests.support.killed_server import KilledServer

from chatledger.server import Principal

if TYPE_CHECKING:
    from pathlib import Path

CHAT = f"{API}/chats/trip"
GRAPHS = ("guide=tests.support.run_graphs:recalling", "critic=tests.support.run_graphs:asking")


def who(headers: Mapping[str, str]) -> Principal | None:
    """Each user comes with a token of their own."""
    name = headers.get("authorization", "").removeprefix("Bearer ")
    return Principal(name, name=name) if name else None


class User:
    """A user of the server, whichever process it is."""

    def __init__(self, url: str, name: str) -> None:
        self._url, self._headers = url, {"Authorization": f"Bearer {name}"}

    def __call__(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        """Send a request, and return what is answered."""
        answer = httpx.request(
            method, self._url + path, json=body, params=params or None, headers=self._headers, timeout=30
        )
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def ask(self, agent: str, message_id: str, text: str, *references: str) -> str:
        """Say something in the chat, and let an agent answer; returns the run's id when it is over."""
        self("POST", f"{CHAT}/messages", {"messages": [{"id": message_id, "name": "user", "data": text}]})
        configurable = {"trigger_message_id": message_id, "reference_message_ids": references}
        return self._run(agent, config={"configurable": configurable})

    def reply(self, agent: str, answer: str) -> str:
        """Answer what an agent asked."""
        return self._run(agent, command={"resume": answer})

    def _run(self, agent: str, **body: Any) -> str:
        run = self("POST", "/threads/trip/runs", {"assistant_id": agent, **body})
        self("GET", f"/threads/trip/runs/{run['run_id']}/join")
        return str(run["run_id"])

    def record(self, run_id: str) -> Any:
        """Return the record of a run in the chat."""
        return self("GET", f"{CHAT}/runs/{run_id}")

    def texts(self, branch: str) -> list[str]:
        """Return what was said on a branch."""
        return [entry["message"]["text"] for entry in self("GET", f"{CHAT}/messages", branch=branch)["entries"]]

    def memory(self, agent: str) -> list[str]:
        """Return what an agent was told and said, as far as it remembers now."""
        state = self("GET", "/threads/trip/state", assistant_id=agent)
        return [message["content"] for message in state["values"]["messages"]]


def until(steps: Callable[[], list[str]], expected: list[str]) -> None:
    """Wait for the steps of a cascade."""
    ends_at = time.monotonic() + 60
    while (seen := steps()) != expected:
        assert time.monotonic() < ends_at, seen
        time.sleep(0.05)


@contextmanager
def served(tmp_path: Path) -> Iterator[tuple[KilledServer, User, User]]:
    with KilledServer(str(tmp_path / "ledger"), *GRAPHS, authenticate=who) as server:
        yield server, User(server.url, "ada"), User(server.url, "bob")


@pytest.mark.guard
def test_two_agents_in_one_chat(tmp_path: Path) -> None:
    """What was said, what each agent remembers, and who is asked are right on both branches, whenever the server dies."""
    with served(tmp_path) as (server, ada, bob):
        ada("POST", "/threads", {"thread_id": "trip", "metadata": {"members": ["bob"]}})
        first = ada.record(ada.ask("guide", "q1", "my name is Ada"))
        asking = bob.ask("critic", "q2", "ask about it", first["message_id"])
        server.kill()
        server.start()

        assert bob.record(asking)["status"] == "waiting"
        for user in (ada, bob):
            assert user("GET", "/threads/trip")["status"] == "interrupted"
        bob.reply("critic", "yes")
        assert ada("GET", "/threads/trip")["status"] == "idle"
        assert ada.record(asking)["status"] == "completed"
        ada.ask("guide", "q3", "who am I?")
        main = ["my name is Ada", "<my name is Ada>", "ask about it", "ask about it / yes", "who am I?"]
        assert bob.texts("main") == [*main, "<my name is Ada | <my name is Ada> | who am I?>"]

        edited = {"id": "e1", "name": "user", "data": "my name is Grace", "parent_id": None}
        bob("POST", f"{CHAT}/nodes", {"messages": [edited]})
        plan = bob("GET", f"{CHAT}/regeneration-plan", message_id="q1")
        assert [(one["assistant_id"], one["cause"]) for one in plan["runs"]] == [
            ("guide", "trigger"),
            ("critic", "reference"),
            ("guide", "memory"),
        ]
        cascade = bob("POST", f"{CHAT}/regenerations", {"plan": plan, "new_message_id": "e1"})
        path = f"{CHAT}/regenerations/{cascade['id']}"

        def steps() -> list[str]:
            return [step["status"] for step in ada("GET", path)["steps"]]

        bob("POST", f"/threads/trip/regenerations/{cascade['id']}/runs")
        until(steps, ["completed", "asking", "waiting"])
        server.kill()
        server.start()

        assert steps() == ["completed", "asking", "waiting"]
        assert ada("GET", "/threads/trip")["status"] == "interrupted"
        ada.reply("critic", "no")
        until(steps, ["completed", "completed", "completed"])
        grace = ["my name is Grace", "<my name is Grace>", "ask about it", "ask about it / no", "who am I?"]
        answer = "<my name is Grace | <my name is Grace> | who am I?>"
        assert bob.texts(cascade["branch"]) == [*grace, answer]
        assert bob.texts("main")[:5] == main
        assert bob.memory("guide") == ["my name is Grace", "<my name is Grace>", "who am I?", answer]
        stranger = httpx.get(f"{server.url}/threads/trip", headers={"Authorization": "Bearer eve"})
        assert stranger.status_code == 404

"""The native API: annotations, runs, contexts and regenerations, over a real socket."""

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
from tests.support.http_world import client_of

import chatledger
from chatledger import user
from chatledger.infra.log.memory import MemoryLog
from chatledger.server import Principal, create_app

TYPE = "urn:chatledger:error:"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with client_of(create_app(chatledger.open_async("memory:"))) as client:
        yield client


def say(client: httpx.Client, chat_id: str, *texts: str) -> list[str]:
    """The ids of messages that are appended."""
    client.post("/chats", json={"id": chat_id})
    messages = [{"name": "user", "data": text} for text in texts]
    return [one["id"] for one in client.post(f"/chats/{chat_id}/messages", json={"messages": messages}).json()]


def run(client: httpx.Client, chat_id: str, run_id: str, **values: Any) -> httpx.Response:
    given = {"run_id": run_id, "thread_id": f"thread-{run_id}", "assistant_id": "writer", **values}
    return client.post(f"/chats/{chat_id}/runs", json=given)


def test_messages_with_given_parents(client: httpx.Client) -> None:
    (root,) = say(client, "nodes", "root")
    nodes = [
        {"id": "n1", "name": "user", "data": "a", "parent_id": root},
        {"name": "user", "data": "b", "parent_id": "n1"},
    ]

    made = client.post("/chats/nodes/nodes", json={"messages": nodes})

    assert made.status_code == 201
    assert [one["parent_id"] for one in made.json()] == [root, "n1"]
    assert [one["message"]["id"] for one in client.get("/chats/nodes/messages").json()["entries"]] == [root]
    refused = client.post("/chats/nodes/nodes", json={"messages": [{"name": "user", "data": 1, "parent_id": "absent"}]})
    assert (refused.status_code, refused.json()["type"]) == (404, TYPE + "ParentNotFoundError")


def test_annotations_are_said_and_read(client: httpx.Client) -> None:
    first, second = say(client, "notes", "a", "b")
    before = client.get("/position").json()["position"]

    said = client.patch(f"/chats/notes/messages/{first}/annotation", json={"hidden": True, "metadata": {"stars": 5}})

    assert said.json()["hidden"] is True
    assert client.get("/chats/notes/annotations").json() == [{"message_id": first, "annotation": said.json()}]
    assert client.get("/chats/notes/annotations", params={"as_of": before}).json() == []
    path = f"/chats/notes/messages/{second}/annotation"
    client.patch(path, json={"metadata": {"a": 1}})
    assert client.patch(path, json={"metadata": {"b": 2}}).json()["metadata"] == {"a": 1, "b": 2}
    assert client.patch(path, json={"replace_metadata": {"c": 3}}).json()["metadata"] == {"c": 3}
    context = client.get("/chats/notes/context", params={"message_id": second}).json()
    assert [one["id"] for one in context] == [second]


def test_a_run_goes_from_pending_to_its_answer(client: httpx.Client) -> None:
    (question,) = say(client, "runs", "why?")
    assert run(client, "runs", "r1", trigger_message_id=question, status="pending").status_code == 201
    early = client.post("/chats/runs/runs/r1/suspend")
    assert (early.status_code, early.json()["type"]) == (409, TYPE + "RunStatusError")
    assert client.post("/chats/runs/runs/r1/start").json()["status"] == "running"
    asked = client.post("/chats/runs/runs/r1/suspend", json={"checkpoint_id": "cp"}).json()
    assert (asked["status"], asked["checkpoint_id"]) == ("waiting", "cp")
    assert [one["run_id"] for one in client.get("/chats/runs/runs", params={"status": "waiting"}).json()] == ["r1"]
    assert client.post("/chats/runs/runs/r1/start").json()["status"] == "running"

    answer = {"answer": {"name": "assistant", "data": "because", "id": "answer"}}
    ended = client.post("/chats/runs/runs/r1/complete", json=answer)

    assert (ended.json()["status"], ended.json()["message_id"]) == ("completed", "answer")
    assert client.post("/chats/runs/runs/r1/complete", json=answer).json() == ended.json()
    late = client.post("/chats/runs/runs/r1/fail")
    assert (late.status_code, late.json()["type"]) == (409, TYPE + "RunStatusError")
    assert client.get("/chats/runs/runs/r1").json() == ended.json()
    run(client, "runs", "r2")
    assert client.post("/chats/runs/runs/r2/fail", json={"checkpoint_id": "c"}).json()["status"] == "error"
    listed = client.get("/chats/runs/runs", params={"status": "error"}).json()
    assert [one["run_id"] for one in listed] == ["r2"]
    assert client.get("/chats/runs/runs/r3").status_code == 404


def test_an_edit_is_planned_approved_and_repeated(client: httpx.Client) -> None:
    """Two runs, the second of which needs an approval; both are repeated on a branch of their own."""
    (question,) = say(client, "edit", "in May?")
    run(client, "edit", "r1", trigger_message_id=question, answer={"name": "assistant", "data": "warm", "id": "a1"})
    run(client, "edit", "r2", trigger_message_id="a1", answer={"name": "assistant", "data": "so go", "id": "a2"})
    fork = {"messages": [{"name": "user", "data": "in July?", "id": "q2", "parent_id": None}]}
    client.post("/chats/edit/nodes", json=fork)

    query: dict[str, str | int] = {"message_id": question, "max_cascade": 1}
    plan = client.get("/chats/edit/regeneration-plan", params=query).json()
    assert (plan["automatic"], plan["awaiting_approval"]) == (["r1"], ["r2"])
    assert client.post("/chats/edit/stale", json=plan).json() == {"message_ids": ["a1", "a2"]}
    begun = client.post("/chats/edit/regenerations", json={"plan": plan, "new_message_id": "q2", "id": "g1"})
    assert begun.status_code == 201
    path = "/chats/edit/regenerations/g1"
    assert [step["status"] for step in client.get(path).json()["steps"]] == ["ready", "awaiting_approval"]
    assert client.post(f"{path}/approve", json={"run_ids": ["r2"]}).status_code == 200

    for repeats in ("r1", "r2"):
        new = client.post(f"{path}/repeat", json={"repeats": repeats, "run_id": f"{repeats}-new"}).json()
        answer = {"answer": {"name": "assistant", "data": f"again {repeats}"}}
        assert client.post(f"/chats/edit/runs/{new['run_id']}/complete", json=answer).status_code == 200

    done = client.get(path).json()
    assert [step["status"] for step in done["steps"]] == ["completed", "completed"]
    assert [one["id"] for one in client.get("/chats/edit/regenerations").json()] == ["g1"]
    shown = client.get("/chats/edit/messages", params={"branch": done["branch"]}).json()["entries"]
    assert [one["message"]["text"] for one in shown] == ["in July?", "again r1", "again r2"]
    other = client.post("/chats/runs/stale", json=plan)
    assert (other.status_code, other.json()["type"]) == (422, TYPE + "InvalidValueError")


def test_states_of_graphs_by_version(client: httpx.Client) -> None:
    path = "/states/chat%3Aada%3Atrip"
    assert client.get(path).status_code == 404
    assert client.put(path, json={"values": {"n": 1}, "expected_version": 0, "node": "plan"}).json() == {"version": 1}
    then = {"as_of": str(client.get("/position").json()["position"])}
    assert client.put(path, json={"values": {"n": 2}}).json() == {"version": 2}
    late = client.put(path, json={"values": {"n": 3}, "expected_version": 1})
    assert (late.status_code, late.json()["type"]) == (409, TYPE + "StateConflictError")

    assert client.get(path).json() == {"id": "chat:ada:trip", "version": 2, "values": {"n": 2}}
    assert client.get(path, params={"version": 1}).json()["values"] == {"n": 1}
    assert [one["version"] for one in client.get(f"{path}/versions").json()] == [2, 1]
    assert [one["id"] for one in client.get("/states", params={"user_id": "ada"}).json()] == ["chat:ada:trip"]
    assert client.get(path, params=then).json() == {"id": "chat:ada:trip", "version": 1, "values": {"n": 1}}
    assert client.get(path, params=then | {"version": "2"}).status_code == 404
    assert [one["version"] for one in client.get(f"{path}/versions", params=then).json()] == [1]
    assert [(one["version"], one["node"]) for one in client.get("/states", params=then).json()] == [(1, "plan")]
    assert client.get("/states", params={"as_of": "0"}).json() == []
    assert client.delete(path).json() == {"deleted": True}
    assert client.get(path).status_code == 404
    assert client.get("/states/nonsense").status_code == 422


def test_a_conversation_is_exported_and_imported(client: httpx.Client) -> None:
    say(client, "old", "a", "b")
    then = client.get("/position").json()["position"]
    say(client, "old", "c")
    lines = client.get("/chats/old/export")
    earlier = client.get("/chats/old/export", params={"as_of": then}).text
    assert lines.headers["content-type"].startswith("application/jsonl")
    assert (lines.text.count('{"message":'), earlier.count('{"message":')) == (3, 2)

    (copy,) = client.post("/import", params={"chat_id": "new"}, content=lines.content).json()

    assert (copy["chat_id"], copy["is_new"], copy["messages_added"]) == ("new", True, 3)
    (again,) = client.post("/import", content=lines.content).json()
    assert (again["is_new"], again["messages_added"]) == (False, 0)
    texts = [
        [one["message"]["text"] for one in client.get(f"/chats/{each}/messages").json()["entries"]]
        for each in ("old", "new")
    ]
    assert texts[0] == texts[1] == ["a", "b", "c"]
    for broken in (
        lines.content[:-40],
        b"{",
        b'{"chatledger": 99}\n',
        lines.content.replace(b"parent_id", b"parent_ib"),
    ):
        refused = client.post("/import", content=broken)
        assert (refused.status_code, "Traceback" in refused.text) == (422, False), refused.text


def test_upkeep(client: httpx.Client) -> None:
    client.post("/chats", json={"id": "brief", "expires_at": 1})
    assert client.get("/due").json() == {"chat_ids": ["brief"]}
    assert client.post("/sweep").json() == {"chats": ["brief"], "versioned": 0, "messages": 0, "versions": 0}
    *_, receipt = client.get("/erasures").json()["erasures"]
    assert (receipt["kind"], receipt["id"], receipt["event_count"]) == ("chat", "brief", 1)
    assert receipt["erased_at"] >= receipt["deleted_at"]
    assert client.get("/erasures", params={"pending": "true"}).json() == {"erasures": []}
    assert client.get("/erasures", params={"pending": "later"}).status_code == 422
    position = client.get("/position").json()
    assert position["position"] == position["last_position"] > 0


def test_a_user_is_erased(client: httpx.Client) -> None:
    """After a dry run the same; of nobody nothing."""
    client.post("/chats", json={"id": "hers", "user_id": "wilma"})
    client.post("/chats", json={"id": "his", "user_id": "fred", "members": {"wilma": "reader"}})
    told = client.delete("/users/wilma", params={"dry_run": "true"}).json()
    assert (told["counts"], told["is_dry_run"]) == ({"chat": 1}, True)
    done = client.delete("/users/wilma").json()
    assert (done["counts"], done["mentions"]) == ({"chat": 1}, [{"chat_id": "his", "kind": "member", "count": 1}])
    assert client.get("/chats/hers").status_code == 404
    assert client.delete("/users/wilma").json()["erased"] == []
    renamed = client.delete("/users/wilma", params={"pseudonym": "someone"}).json()
    assert renamed["pseudonymised"] == [{"chat_id": "his", "kind": "member", "count": 1}]
    assert client.get("/chats/his/members").json() == []
    assert client.delete("/users/wilma", params={"pseudonym": "wilma"}).status_code == 422
    assert client.delete("/users/wilma", params={"dry_run": "perhaps"}).status_code == 422


@pytest.mark.guard
def test_all_of_a_user_is_sent_as_it_is_read() -> None:
    """What is deleted while the client reads is not there: the server held none of it. Of nobody it is empty, and whole."""
    served = chatledger.open_async("memory:")
    with client_of(create_app(served)) as client:
        ledger = served.blocking()
        for number in range(24):
            ledger.create_chat(f"c{number}", "wilma")
            ledger.append(f"c{number}", [user(f"{number} " * 400_000)])
        with client.stream("GET", "/users/wilma/export") as answer:
            parts = answer.iter_bytes()
            first = next(parts)
            for number in range(24):
                ledger.delete_chat(f"c{number}")
            lines = (first + b"".join(parts)).splitlines()
        assert 0 < sum(b'"end"' in line for line in lines) < 24
        assert b"totals" in lines[-1]
        assert answer.headers["Cache-Control"] == "no-store"
        assert len(client.get("/users/nobody/export").text.splitlines()) == 2
        assert client.head("/users/nobody/export").status_code == 200


def test_an_answer_says_that_bytes_are_still_to_be_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it where they are gone already, or are another user's."""
    may_erase, erase = threading.Event(), MemoryLog.erase

    def held(self: MemoryLog, stream_id: str, **of_stream: int) -> None:
        assert may_erase.wait(30)
        erase(self, stream_id, **of_stream)

    monkeypatch.setattr(MemoryLog, "erase", held)

    def authenticate(headers: Mapping[str, str]) -> Principal:
        return Principal(user_id=headers["x-api-key"])

    ledger = chatledger.open_async("memory:", erase="soon")
    with client_of(create_app(ledger, authenticate=authenticate)) as client:
        ada, bob = {"X-Api-Key": "ada"}, {"X-Api-Key": "bob"}
        for number, who in enumerate((ada, ada, bob)):
            assert client.post("/chats", json={"id": f"c{number}"}, headers=who).status_code == 201
        told = [client.delete("/chats/c0", headers=ada), client.delete("/chats/none", headers=bob)]
        root = str(client.base_url).removesuffix("/api/v1/")
        pending = client.get(f"{root}/metrics", headers=ada).text
        may_erase.set()
        ledger.blocking().wait_erased()
        erased = client.get(f"{root}/metrics", headers=ada).text
        told.append(client.delete("/chats/none", headers=ada))

    assert [answer.headers.get("Chatledger-Erasure") for answer in told] == ["pending", None, None]
    assert "\nchatledger_pending_erasures 1\n" in pending
    assert "\nchatledger_pending_erasures 0\n" in erased
    assert "\nchatledger_oldest_pending_erasure_seconds 0\n" in erased

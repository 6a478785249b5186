"""Legal holds and retention rules through each door: the shell, HTTP and the explorer."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.infra.ledger.test_holds import put_thread
from tests.support.explorer_world import pages_of
from tests.support.http_world import client_of

import chatledger
from chatledger import user
from chatledger.graph_state import StateStore
from chatledger.infra.entrypoints.cli.app import cli
from chatledger.infra.ledger.items.item_store import ItemStore
from chatledger.server import create_app


@pytest.fixture
def place(tmp_path: Path) -> str:
    location = str(tmp_path / "ledger")
    with chatledger.open(location) as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [user("To Lyon")])
    return location


def run(place: str, *arguments: str, code: int = 0) -> str:
    ran = CliRunner().invoke(cli, [*arguments, "--location", place])
    assert ran.exit_code == code, ran.output
    return ran.output + ran.stderr


@pytest.mark.guard
def test_the_shell_holds_lists_shows_and_releases(place: str) -> None:
    assert "Held chat trip since" in run(place, "hold", "trip", "--reason", "case 12", "--actor", "mara")
    listed = run(place, "holds")
    assert "trip" in listed
    assert "case 12" in listed
    assert [{**hold, "held_at": 0} for hold in json.loads(run(place, "holds", "--json"))] == [
        {"kind": "chat", "id": "trip", "held_at": 0, "held_by": "mara", "reason": "case 12"}
    ]
    assert "legal hold on chat trip" in run(place, "show", "trip")
    assert "held" in run(place, "chats")
    assert json.loads(run(place, "chats", "--json"))[0]["hold"]["reason"] == "case 12"
    assert "under a legal hold" in run(place, "delete", "trip", "--yes", code=1)
    assert 'held with the chat ("case 12")' in run(place, "log")
    erased = run(place, "delete", "--user", "ada", "--yes")
    assert "Held, and not erased: 1 thing" in erased
    with chatledger.open(place) as ledger:
        ledger.create_chat("team", "bob", members={"ada": "reader"})
    erased = run(place, "delete", "--user", "ada", "--pseudonym", "someone", "--yes")
    assert "member in chat team: 1, now someone" in erased
    assert "go with --user" in run(place, "delete", "trip", "--pseudonym", "someone", "--yes", code=2)
    assert "Released chat trip." in run(place, "release", "trip")
    assert "There was no hold" in run(place, "release", "trip")
    assert "Deleted chat trip." in run(place, "delete", "trip", "--yes")


def test_lists_of_the_shell_say_what_is_held(place: str) -> None:
    with chatledger.open(place) as ledger:
        own = ledger.for_user("ada")
        put_thread(own, "alone")
        StateStore(own).put("chat:ada:trip", {})
        ItemStore(own).put(("memories",), "card", {})
    lists: list[tuple[str, ...]] = [("threads",), ("states",), ("items", "--user", "ada")]
    for verb in lists:
        assert "held" not in run(place, *verb)
    run(place, "hold", "--user", "ada", "--reason", "case 12")
    for verb in lists:
        assert "held" in run(place, *verb)
        assert json.loads(run(place, *verb, "--json"))[0]["hold"]["reason"] == "case 12"
    assert "legal hold on its owner" in run(place, "show", "--thread", "alone")


def test_the_shell_says_what_it_cannot_hold(place: str) -> None:
    assert "did you mean 'trip'" in run(place, "hold", "trp", code=1)
    assert "name a chat, or one thing" in run(place, "hold", code=2)
    assert "name a chat, or one thing" in run(place, "release", "trip", "--user", "ada", code=2)
    assert "leave out --as-user" in run(place, "--as-user", "ada", "holds", code=2)
    run(place, "hold", "--user", "nobody-yet")


def test_http_holds_and_answers_423_to_a_deletion(place: str) -> None:
    with client_of(create_app(place)) as client:
        held = client.post("/holds", json={"kind": "user", "id": "ada", "reason": "case 12"})
        assert held.status_code == 200
        assert client.get("/holds").json()["holds"] == [held.json()]
        assert client.get("/holds", params={"kind": "chat"}).json()["holds"] == []
        assert client.get("/chats/trip").json()["hold"] == held.json()
        refused = client.delete("/chats/trip")
        assert (refused.status_code, refused.json()["type"]) == (423, "urn:chatledger:error:HeldError")
        assert "ada" not in refused.text
        assert client.post("/holds", json={"kind": "chat", "id": "no"}).status_code == 404
        described = client.get(f"{client.base_url.copy_with(path='/openapi.json')}").json()
        assert "404" in described["paths"]["/api/v1/holds"]["post"]["responses"]
        assert client.post("/holds", json={"kind": "planet", "id": "x"}).status_code == 422
        assert client.delete("/holds", params={"kind": "user", "id": "ada"}).json() == {"released": True}
        assert client.delete("/chats/trip").status_code == 200


def test_the_explorer_shows_what_is_held(place: str) -> None:
    with chatledger.open(place) as ledger:
        ledger.hold("chat", "trip", reason="case <12>")
    shown = chatledger.open_async(place)
    with pages_of(shown) as client:
        for path in ("/", "/c/trip"):
            page = client.get(path).text
            assert ">held" in page
            assert "case &lt;12&gt;" in page
    shown.blocking().close()


@pytest.mark.guard
def test_the_shell_sets_lists_and_removes_rules(place: str) -> None:
    said = run(place, "retention", "set", "support", "--meta", "class=support", "--days", "0.5")
    assert "chats with class=support are kept for 0.5 days since their last change" in said
    run(place, "retention", "set", "default", "--days", "0.0000001", "--since", "created", "--actor", "mara")
    run(place, "retention", "set", "bob", "--user", "bob", "--for-ever")
    listed = json.loads(run(place, "retention", "list", "--json"))
    assert [(rule["name"], rule["keep_days"]) for rule in listed] == [
        ("bob", None),
        ("default", 1e-7),
        ("support", 0.5),
    ]
    assert "chats of bob are kept for ever" in run(place, "retention", "list")
    assert "say how long" in run(place, "retention", "set", "none", code=2)
    assert "--days must be" in run(place, "retention", "set", "none", "--days", "-1", code=1)
    assert json.loads(run(place, "sweep", "--dry-run", "--json")) == {
        "due": ["trip"],
        "versioned": 0,
        "messages": 0,
        "versions": 0,
    }
    assert "1 chat due." in run(place, "sweep", "--dry-run")
    assert "1 thing overdue" in run(place, "verify")
    assert json.loads(run(place, "verify", "--json"))["overdue_count"] == 1
    assert "Removed rule default." in run(place, "retention", "remove", "default")
    assert "There was no rule default." in run(place, "retention", "remove", "default")
    assert "0 chats due." in run(place, "sweep", "--dry-run")
    said = run(place, "retention", "set", "words", "--content", "--role", "user", "--days", "0.0000001")
    assert "the content of user messages in chats is kept for 1e-07 days" in said
    assert "0 chats, the content of 1 message due." in run(place, "sweep", "--dry-run")
    assert "Deleted 0 chats, the content of 1 message." in run(place, "sweep")


@pytest.mark.guard
def test_the_shell_sets_and_sweeps_rules_about_versions(place: str) -> None:
    with chatledger.open(place) as ledger:
        for number in range(3):
            StateStore(ledger).put("chat:ada:steps", {"number": number})
    options = ("retention", "set", "steps", "--kind", "state", "--versions", "--days", "0.0000001")
    said = run(place, *options, "--keep-last", "2")
    assert "earlier versions of states are kept for 1e-07 days after newer ones came; the newest 2 always" in said
    assert "0 chats, the content of 1 version due." in run(place, "sweep", "--dry-run")
    assert "Deleted 0 chats, the content of 1 version." in run(place, "sweep")
    shown = chatledger.open_async(place)
    with pages_of(shown) as client:
        page = client.get("/states/chat:ada:steps").text
        assert page.count(">pruned<") == 1
        assert "version=2" in page
        assert "version=1" not in page
        assert client.get("/states/chat:ada:steps?version=1").status_code == 404
    shown.blocking().close()
    assert "give one of the two" in run(place, *options, "--content", code=2)
    assert "a chat has no versions" in run(place, "retention", "set", "x", "--versions", "--days", "1", code=1)


def test_http_sets_lists_and_removes_rules(place: str) -> None:
    with client_of(create_app(place)) as client:
        made = client.put("/retention/default", json={"keep_days": 0.0000001}).json()
        assert (made["name"], made["kind"], made["since"]) == ("default", "chat", "updated")
        assert client.get("/retention").json() == {"rules": [made]}
        steps = {"keep_days": 0.0000001, "kind": "item", "erases": "versions", "keep_last": 3}
        assert client.put("/retention/steps", json=steps).json().items() >= steps.items()
        assert client.put("/retention/none", json={**steps, "kind": "chat"}).status_code == 422
        assert client.delete("/retention/steps").json() == {"removed": True}
        assert client.put("/retention/none", json={"keep_days": 0}).status_code == 422
        assert client.post("/sweep", json={"dry_run": True}).json() == {
            "chats": ["trip"],
            "versioned": 0,
            "messages": 0,
            "versions": 0,
        }
        assert client.get("/due").json() == {"chat_ids": ["trip"]}
        assert client.post("/sweep", json={}).json() == {
            "chats": ["trip"],
            "versioned": 0,
            "messages": 0,
            "versions": 0,
        }
        assert client.delete("/retention/default").json() == {"removed": True}

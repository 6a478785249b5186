"""Links to chats through the shell and over HTTP, whose pages are in the tests of the explorer; and members through the shell."""

import json
from pathlib import Path

import pytest
from tests.support.cli_world import ask, fails, run
from tests.support.http_world import client_of

import chatledger
from chatledger import user
from chatledger.server import create_app


def test_the_shell_makes_lists_and_revokes_links(tmp_path: Path) -> None:
    with chatledger.open(tmp_path) as ledger:
        ledger.create_chat("trip", "ada")
        ledger.append("trip", [user("To Lyon", id="m1")])

    path = run("links", "create", "trip", "--until", "m1", "--days", "2", "--actor", "mara", at=tmp_path).stdout
    assert path.startswith("/shared/trip/")
    made = ask("links", "create", "trip", at=tmp_path)
    assert made["path"].startswith("/shared/trip/")
    listed = run("links", "list", "trip", at=tmp_path).stdout
    assert "up to m1" in listed
    assert "when revoked" in listed
    assert "2 links." in listed
    assert [link["path"] for link in ask("links", "list", "trip", at=tmp_path)] == [None, None]
    assert run("links", "revoke", "trip", made["id"], at=tmp_path).stdout == f"Revoked link {made['id']}.\n"
    assert "There was no link" in run("links", "revoke", "trip", made["id"], at=tmp_path).stdout
    assert "no chat 'trap'" in fails(1, "links", "list", "trap", at=tmp_path)
    log = run("log", "trip", at=tmp_path).stdout
    assert "link_created" in log
    assert "mara" in log


@pytest.mark.guard
def test_the_shell_sets_lists_and_removes_members(tmp_path: Path) -> None:
    with chatledger.open(tmp_path) as ledger:
        ledger.create_chat("trip", "ada")

    told = run("members", "set", "trip", "bob", "reader", "--actor", "mara", at=tmp_path).stdout
    assert told == "bob is a reader of chat trip.\n"
    assert ask("members", "set", "trip", "eve", "writer", at=tmp_path)["role"] == "writer"
    run("members", "set", "trip", "bob", "writer", at=tmp_path)
    listed = run("members", "list", "trip", at=tmp_path).stdout
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [
        ["bob", "writer"],
        ["eve", "writer"],
        ["2", "members."],
    ]
    assert [member["user_id"] for member in ask("members", "list", "trip", at=tmp_path)] == ["bob", "eve"]
    assert run("members", "remove", "trip", "bob", at=tmp_path).stdout == "Removed member bob.\n"
    assert run("members", "remove", "trip", "bob", at=tmp_path).stdout == "There was no member bob.\n"
    assert ask("members", "remove", "trip", "eve", at=tmp_path) == {"removed": True}
    assert "0 members." in run("members", "list", "trip", at=tmp_path).stdout
    assert "no chat 'trap'" in fails(1, "members", "list", "trap", at=tmp_path)
    assert "no chat 'trap'" in fails(1, "members", "set", "trap", "bob", "reader", at=tmp_path)
    assert "members are others" in fails(1, "members", "set", "trip", "ada", "reader", at=tmp_path)
    assert "friend" in fails(2, "members", "set", "trip", "bob", "friend", at=tmp_path)
    log = run("log", "trip", at=tmp_path).stdout
    assert "member_set" in log
    assert "mara" in log


def test_http_makes_lists_and_revokes_links() -> None:
    with client_of(create_app("memory:")) as client:
        client.post("/chats", json={"id": "a/b"}).raise_for_status()
        made = client.post("/chats/a%2Fb/links", json={"ttl_seconds": 60})
        assert made.status_code == 201
        assert made.json()["path"].startswith("/shared/a%2Fb/")
        (listed,) = client.get("/chats/a%2Fb/links").json()
        assert {**made.json(), "path": None} == {"path": None, **listed}
        assert client.get("/chats/none/links").status_code == 404
        assert client.post("/chats/none/links", json={}).status_code == 404
        assert client.post("/chats/a%2Fb/links", json={"branch": "none"}).status_code == 404
        assert client.post("/chats/a%2Fb/links", json={"branch": "main", "until": "m"}).status_code == 422
        link = f"/chats/a%2Fb/links/{listed['id']}"
        assert [json.loads(client.delete(link).text) for _ in range(2)] == [{"deleted": True}, {"deleted": False}]

"""The native API: a chat as rows of a drawing, over a real socket."""

from collections.abc import Iterator

import httpx
import pytest
from tests.support.http_world import client_of

from chatledger.server import create_app


@pytest.fixture(scope="module")
def ids() -> list[str]:
    return [f"m{number}" for number in range(6)]


@pytest.fixture(scope="module")
def client(ids: list[str]) -> Iterator[httpx.Client]:
    """A client of a chat of six messages with a fork at the second one."""
    with client_of(create_app("memory:")) as client:
        client.post("/chats", json={"id": "tree"})
        messages = [{"name": "user", "data": f"text of {one}", "id": one} for one in ids]
        client.post("/chats/tree/messages", json={"messages": messages[:4]}).raise_for_status()
        client.post("/chats/tree/branches", json={"head_message_id": "m1", "activate": True}).raise_for_status()
        client.post("/chats/tree/messages", json={"messages": messages[4:]}).raise_for_status()
        yield client


def test_windows_of_rows(client: httpx.Client, ids: list[str]) -> None:
    """A window has rows with lanes and parents, and the edges that are seen in it."""
    window = client.get("/chats/tree/rows", params={"first": 1, "rows": 2}).json()

    assert (6, 2, 1, "main-v2") == (window["total"], window["lanes"], window["first"], window["active"])
    assert ids[1:3] == [row["id"] for row in window["rows"]]
    assert [{"row": 1, "lane": 0}] == window["rows"][1]["parents"]
    edges = [{name: edge[name] for name in ("row", "lane", "to_row", "to_lane", "cut")} for edge in window["edges"]]
    assert {"row": 1, "lane": 0, "to_row": 4, "to_lane": 0, "cut": None} in edges
    assert {"row": 2, "lane": 1, "to_row": 3, "to_lane": 1, "cut": None} in edges
    assert [False, True] == [row["on_path"] for row in client.get("/chats/tree/rows?first=3&rows=2").json()["rows"]]
    along = client.get("/chats/tree/rows", params={"along": "m3", "only": "path"}).json()
    assert ["m0", "m1", "m2", "m3"] == [row["id"] for row in along["rows"]]
    assert [] == client.get("/chats/tree/rows/bundles/2").json()
    assert ["m4"] == [row["id"] for row in client.get("/chats/tree/rows?around=m4&rows=1").json()["rows"]]


def test_what_a_drawing_needs_beside(client: httpx.Client) -> None:
    """Branch points, rows of hits, a strip, a line; and the past."""
    points = client.get("/chats/tree/branch-points").json()
    assert [(1, [["main"], ["main-v2"]])] == [
        (point["row"], [child["branches"] for child in point["children"]]) for point in points["points"]
    ]
    assert {"rows": {"m5": 5}} == client.get("/chats/tree/rows/numbers", params={"id": ["m5", "absent"]}).json()
    assert [[0], [0], [1], [1], [0], [0]] == client.get("/chats/tree/rows/strip?height=6").json()["pixels"]
    assert [[2, 3]] == client.get("/chats/tree/rows/lines/m3").json()["spans"]
    assert 0 == client.get("/chats/tree/rows", params={"as_of": 1}).json()["total"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("rows?first=-1", 422),
        ("rows?rows=0", 422),
        ("rows?around=absent", 404),
        ("rows?along=absent", 404),
        ("rows?only=branch", 422),
        ("rows/bundles/2?along=absent", 404),
        ("rows/bundles/-1", 422),
        ("rows/strip?height=0", 422),
        ("rows/strip?height=10001", 422),
        ("rows/numbers", 422),
        ("rows/lines/absent", 404),
        ("branch-points?above=x", 422),
    ],
)
def test_wrong_questions_are_refused(client: httpx.Client, path: str, status: int) -> None:
    assert status == client.get(f"/chats/tree/{path}").status_code

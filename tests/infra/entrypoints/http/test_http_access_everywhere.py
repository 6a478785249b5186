"""Access on every route: what belongs to another user is not there, on every route of the OpenAPI document, over a real socket."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

import httpx
import pytest
from tests.support.http_world import client_of

import chatledger
from chatledger.infra.entrypoints.http.app import describe
from chatledger.infra.entrypoints.http.openapi import without_references
from chatledger.server import Principal, create_app

Ids = Mapping[str, str]

THEIRS: Final[Ids] = {
    "chat_id": "bob-chat",
    "message_id": "bob-message",
    "new_message_id": "bob-answer",
    "branch": "bob-branch",
    "checkpoint": "bob-checkpoint",
    "run_id": "bob-run",
    "thread_id": "bob-thread",
    "regeneration_id": "bob-regeneration",
    "stream_id": "bob-stream",
    "state_id": "chat:bob:bob-here",
    "conversation_id": "bob-here",
    "feed": "bob-feed",
    "link_id": "bob-link",
    "user_id": "bob",
    "row": "0",
}
ABSENT: Final[Ids] = {name: value.replace("bob-", "non-") for name, value in THEIRS.items()} | {
    "state_id": "chat:bob:non-here",
    "user_id": "non",
}
OWN: Final = "ada-chat"
"""A chat of who asks: ids of others in it are no more there than in a chat of theirs."""

NAMES: Final = {"/branches/": "branch", "/checkpoints/": "checkpoint", "/feeds/": "feed", "/retention/": "feed"}
"""Return the id that stands for `name` in a path."""
QUERY: Final = {
    "chat_id": "chat_id",
    "message_id": "message_id",
    "before": "message_id",
    "around": "message_id",
    "along": "branch",
    "id": "message_id",
    "a": "message_id",
    "b": "message_id",
    "branch": "branch",
    "name": "feed",
    "user_id": "user_id",
    "thread_id": "thread_id",
    "conversation_id": "conversation_id",
    "trigger_message_id": "message_id",
    "after": "chat_id",
}
"""Return ids for the parameters of the query that name something. The others stay as they are by default."""
FIXED: Final = {"q": "hello", "follow": "false", "form": "ui", "kind": "chat"}
LEFT_OUT: Final = {"get_page": {"along"}, "search": {"thread_id"}}
"""Parameters that do not go with the others."""
EXPECTING: Final = {"append_messages", "update_branch", "commit_live"}
"""Operations that may expect a head."""
PLAN: Final = {
    "chat_id": "$chat_id",
    "edited_message_id": "$message_id",
    "runs": [],
    "stale_message_ids": ["$new_message_id"],
    "automatic": [],
    "awaiting_approval": [],
    "max_cascade": 5,
    "needs_approval": False,
}
MESSAGE: Final = {"name": "user", "data": "hello"}
BODIES: Final[dict[str, Any]] = {
    "create_chat": {"id": "new", "user_id": "$user_id"},
    "update_chat": {"title": "mine now"},
    "fork_chat": {"message_id": "$message_id"},
    "append_messages": {"messages": [MESSAGE], "branch": "$branch"},
    "add_messages": {"messages": [MESSAGE | {"id": "new", "parent_id": "$message_id"}]},
    "create_branch": {"head_message_id": "$message_id", "name": "new"},
    "update_branch": {"head_message_id": "$message_id"},
    "merge": {"source": "$branch", "summary": "what it came to"},
    "set_checkpoint": {"message_id": "$message_id"},
    "annotate": {"replaced_by": "$new_message_id"},
    "redact": {"message_ids": ["$message_id"]},
    "redact_words": {},
    "set_member": {"role": "reader"},
    "create_link": {"until": "$message_id"},
    "record_run": {
        "run_id": "new",
        "thread_id": "$thread_id",
        "assistant_id": "writer",
        "trigger_message_id": "$message_id",
    },
    "complete_run": {"message_id": "$message_id"},
    "fail_run": {},
    "suspend_run": {},
    "mark_stale": PLAN,
    "begin_regeneration": {"plan": PLAN, "new_message_id": "$new_message_id"},
    "approve_regeneration": {"run_ids": ["$run_id"]},
    "repeat_run": {"repeats": "$run_id"},
    "start_live": {"branch": "$branch"},
    "write_live": {"epoch": 1, "chunks": ["a"]},
    "commit_live": {"epoch": 1},
    "discard_live": {"epoch": 1},
    "take_over_live": {"epoch": 1},
    "acknowledge": {"position": 1},
    "put_state": {"values": {"a": 1}},
    "verify_anchor": {"anchor": {}},
    "make_excerpt": {"message_ids": ["$message_id"]},
    "check_standing": {"excerpt": "none"},
    "list_heads": {"chat_ids": ["$chat_id"]},
    "list_held": {"chat_ids": ["$chat_id"]},
    "list_standings": {"versions": {"$chat_id": 1}},
    "sum_heads": {"under": [""]},
    "redact_copies": {"message_ids": ["$message_id"]},
    "make_bundle": {"known": {"$chat_id": 0}},
    "export_tail": {"chat_id": "$chat_id", "version": 1},
    "settle_chat": {
        "settlement": {"chat_id": "$chat_id", "outcome": "deleted", "name": "x", "tip": "", "ended": 9_000_000_000_000}
    },
    "import_chats": b"",
    "take_bundle": b"",
    "sweep": {},
    "put_hold": {"kind": "chat", "id": "$chat_id"},
    "set_retention": {"keep_days": 90},
}
"""A body for each operation that takes one."""
NOTHING: Final = {
    *("stream_feed", "list_forks", "get_siblings", "list_runs", "list_thread_versions", "list_bundled_lines"),
    "export_user",  # which is the administrator's
}
"""Reads that would find nothing by all these ids together; checkpoints of threads are not made over this API."""


class Asked(NamedTuple):
    """A request."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    """Each operation of the document: its method, its path, and what the document says of it."""
    paths: dict[str, dict[str, Any]] = without_references(describe())["paths"]
    return [(method.upper(), path, told) for path, methods in paths.items() for method, told in methods.items()]


def ask(operation: tuple[str, str, dict[str, Any]], ids: Ids) -> Asked:
    """An operation with these ids in all places that take some."""
    method, path, told = operation
    for part, kind in NAMES.items():
        path = path.replace(part + "{name}", part + ids[kind])
    path = re.sub(r"\{(\w+)\}", lambda found: ids[found[1]], path).removeprefix("/api/v1")
    query: dict[str, str] = {}
    for parameter in told["parameters"]:
        name = parameter["name"]
        if parameter["in"] != "query" or name in LEFT_OUT.get(told["operationId"], ()):
            continue
        if name in FIXED:
            query[name] = FIXED[name]
        elif name in QUERY and (name != "after" or told["operationId"] == "list_chats"):
            query[name] = ids[QUERY[name]]
    body = filled(BODIES[told["operationId"]], ids) if "requestBody" in told else None
    headers = {"If-Match": f'"{ids["message_id"]}"'} if told["operationId"] in EXPECTING else {}
    return Asked(method, path, query, body, headers)


def filled(value: Any, ids: Ids) -> Any:
    """The same with ids in place of their names."""
    if isinstance(value, dict):
        return {filled(name, ids): filled(inner, ids) for name, inner in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [filled(inner, ids) for inner in cast("list[Any]", value)]
    return re.sub(r"\$(\w+)", lambda found: ids[found[1]], value) if isinstance(value, str) else value


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Clients of Ada and Bob, who has one of everything."""
    app = create_app(
        chatledger.open_async("memory:"), authenticate=lambda headers: Principal(user_id=headers["x-api-key"])
    )
    with client_of(app) as ada:
        ada.headers["X-Api-Key"] = "ada"
        with httpx.Client(base_url=ada.base_url, headers={"X-Api-Key": "bob"}, timeout=30) as bob:
            ada.post("/chats", json={"id": OWN}).raise_for_status()
            ada.post(f"/chats/{OWN}/messages", json={"messages": [MESSAGE]}).raise_for_status()
            furnish(bob)
            bob.put(f"/chats/{THEIRS['chat_id']}/members/cy", json={"role": "reader"}).raise_for_status()
            yield ada, bob


def furnish(bob: httpx.Client) -> None:
    """Make one of everything that has an id, under the ids of `THEIRS`."""
    ids, chat = THEIRS, f"/chats/{THEIRS['chat_id']}"
    question, answer = ids["message_id"], ids["new_message_id"]
    run = {"run_id": ids["run_id"], "thread_id": ids["thread_id"], "assistant_id": "writer"}
    run |= {"trigger_message_id": question, "message_id": answer}
    messages = [MESSAGE | {"id": question}, MESSAGE | {"id": answer}, MESSAGE | {"id": "bob-edited"}]
    for method, path, body in [
        ("POST", "/chats", {"id": ids["chat_id"]}),
        ("POST", f"{chat}/messages", {"messages": messages}),
        ("POST", f"{chat}/branches", {"name": ids["branch"], "head_message_id": question}),
        ("PUT", f"{chat}/checkpoints/{ids['checkpoint']}", {"message_id": question}),
        ("PATCH", f"{chat}/messages/{answer}/annotation", {"metadata": {"a": 1}}),
        ("POST", f"{chat}/runs", run),
        ("POST", f"{chat}/links", {}),
        ("POST", f"{chat}/live", {"id": ids["stream_id"]}),
        ("POST", f"{chat}/live/{ids['stream_id']}/chunks", {"epoch": 1, "chunks": ["a"]}),
        ("PUT", f"/states/{ids['state_id']}", {"values": {"a": 1}}),
        ("GET", f"/feed?name={ids['feed']}&follow=false", None),
    ]:
        bob.request(method, path, json=body).raise_for_status()
    plan = bob.get(f"{chat}/regeneration-plan", params={"message_id": question}).json()
    begun = {"plan": plan, "new_message_id": "bob-edited", "id": ids["regeneration_id"]}
    bob.post(f"{chat}/regenerations", json=begun).raise_for_status()


def answer(client: httpx.Client, asked: Asked, ids: Ids, accept: str) -> tuple[int, str, str]:
    """The status, the type and the text of an answer, in which ids are replaced by what they name."""
    body: dict[str, Any] = {"content": asked.body} if isinstance(asked.body, bytes) else {"json": asked.body}
    got = client.request(
        asked.method, asked.path, params=asked.query, headers={**asked.headers, "Accept": accept}, **body
    )
    text = re.sub(r'(?<=_at":)\d+', "<time>", got.text)
    for name, value in sorted(ids.items(), key=lambda item: -len(item[1])):
        text = text.replace(value, f"<{name}>")
    return got.status_code, got.headers.get("content-type", ""), text


def test_each_operation_that_takes_a_body_has_one_here() -> None:
    assert sorted(BODIES) == sorted(told["operationId"] for _, _, told in operations() if "requestBody" in told)


@pytest.mark.parametrize("operation", operations(), ids=lambda one: one[2]["operationId"])
def test_theirs_and_absent_are_the_same(
    world: tuple[httpx.Client, httpx.Client], operation: tuple[str, str, dict[str, Any]]
) -> None:
    """In a chat of theirs as in one's own; what it asked for is still there for its owner."""
    ada, bob = world
    accepts = ["application/json", "text/event-stream"] if operation[0] == "GET" else ["application/json"]
    elsewhere: list[Ids] = [{}, {"chat_id": OWN}]
    for more in elsewhere:
        theirs, absent = {**THEIRS, **more}, {**ABSENT, **more}
        asked, asked_absent = ask(operation, theirs), ask(operation, absent)
        if asked == asked_absent:
            continue  # it names nothing that could be another's
        for accept in accepts:
            assert answer(ada, asked, theirs, accept) == answer(ada, asked_absent, absent, accept)

    assert len(bob.get(f"/chats/{THEIRS['chat_id']}/messages").json()["entries"]) == 3


@pytest.mark.matrix
@pytest.mark.parametrize("operation", operations(), ids=lambda one: one[2]["operationId"])
def test_who_owns_it_is_answered_otherwise(
    world: tuple[httpx.Client, httpx.Client], operation: tuple[str, str, dict[str, Any]]
) -> None:
    """Reads that name something find it, so that the test above compares something."""
    if operation[0] != "GET":
        pytest.skip("it would change what is there")
    _, bob = world
    asked = ask(operation, THEIRS)
    if asked == ask(operation, ABSENT) or operation[2]["operationId"] in NOTHING:
        pytest.skip("it finds nothing of Bob's alone")
    asked.query.pop("before", None)
    asked.query.pop("after", None)

    theirs = answer(bob, asked, {}, "application/json")

    assert theirs[0] == 200, theirs
    assert theirs[2] not in {"[]", "{}"}

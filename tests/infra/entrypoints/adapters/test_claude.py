"""Transcripts of the Claude Agent SDK on a ledger, appended and read as the SDK does; its command line is not needed."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar, cast
from uuid import uuid4

import pytest

pytest.importorskip("claude_agent_sdk")

from claude_agent_sdk import (
    delete_session_via_store,
    fork_session_via_store,
    get_session_messages_from_store,
    list_sessions_from_store,
    rename_session_via_store,
    tag_session_via_store,
)
from claude_agent_sdk.testing import run_session_store_conformance
from claude_agent_sdk.types import SessionStore
from tests.support.adapters.claude import PROJECT, entry_of, text_of

import chatledger
from chatledger import Ledger, assistant, user
from chatledger.adapters.claude import LedgerSessionStore, chat_id
from chatledger.errors import InvalidValueError
from chatledger.testing import Turn, check_adapter_killed

T = TypeVar("T")
SESSION = "3f0e9b62-0000-4000-8000-000000000001"
KEY: Any = {"project_key": PROJECT, "session_id": SESSION}
CHAT = chat_id(PROJECT, SESSION)


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as opened:
        yield opened


def run(call: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(call)


def said(role: str, text: str, uuid: str, parent: str | None, **given: Any) -> dict[str, Any]:
    return entry_of(Turn(role, text), uuid, parent, SESSION, **given)


def append(ledger: Ledger, *entries: dict[str, Any], key: Any = KEY) -> None:
    run(LedgerSessionStore(ledger).append(key, cast("Any", list(entries))))


def load(ledger: Ledger, key: Any = KEY) -> list[dict[str, Any]] | None:
    return cast("list[dict[str, Any]] | None", run(LedgerSessionStore(ledger).load(key)))


def shown(ledger: Ledger, session: str = SESSION) -> list[str]:
    """The texts of the conversation that the SDK finds."""
    found = run(get_session_messages_from_store(LedgerSessionStore(ledger), session))
    return [text_of(cast("dict[str, Any]", one.message)) for one in found]


def texts(ledger: Ledger, branch: str | None = None) -> list[str]:
    return [message.text for message in ledger.get_messages(CHAT, branch=branch)]


def test_it_keeps_the_contract_of_the_sdk() -> None:
    """All of its contracts: none of the optional methods is skipped."""
    with contextlib.ExitStack() as ledgers:

        def make() -> SessionStore:
            return LedgerSessionStore(ledgers.enter_context(chatledger.open("memory:")))

        run(run_session_store_conformance(make, skip_optional=frozenset()))


@pytest.mark.soak
def test_it_outlives_a_kill() -> None:
    check_adapter_killed("tests.support.adapters.claude:ClaudeDriver", rounds=2)


@pytest.mark.guard
def test_it_imports_its_framework_only() -> None:
    code = (
        "import sys, chatledger.adapters.claude as a; assert a.LedgerSessionStore; "
        "print([name for name in ('agents', 'langgraph', 'pydantic_ai') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_the_sdk_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['claude_agent_sdk'] = None\n"
        "try:\n    import chatledger.adapters.claude\n"
        "except Exception as error:\n    print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "ConfigurationError" in done.stdout
    assert "chatledger[claude]" in done.stdout


BOOKKEEPING: list[dict[str, Any]] = [
    {"type": "summary", "summary": "A fado evening", "leafUuid": "u1"},
    {"type": "file-history-snapshot", "messageId": "u1", "snapshot": {"trackedFileBackups": {"fado.md": None}}},
    {"type": "custom-title", "customTitle": "Lisbon", "sessionId": SESSION, "uuid": "t1"},
]


def test_bookkeeping_is_kept_in_order_and_is_no_turn(ledger: Ledger) -> None:
    entries = [
        BOOKKEEPING[0],
        said("user", "Where is fado sung?", "u1", None),
        {"type": "system", "subtype": "info", "uuid": "s1", "parentUuid": "u1", "content": "hook"},
        BOOKKEEPING[1],
        said("user", "Caveat: ...", "m1", "s1", isMeta=True),
        said("assistant", "In Alfama.", "a1", "m1"),
        BOOKKEEPING[2],
        BOOKKEEPING[0],
        said("user", "And jazz?", "u2", "a1"),
    ]
    append(ledger, *entries[:4])
    append(ledger, *entries[4:])

    assert load(ledger) == entries
    assert texts(ledger) == ["Where is fado sung?", "", "In Alfama.", "And jazz?"], (
        "what ends a batch is of no turn yet"
    )
    assert [branch.name for branch in ledger.list_branches(CHAT)] == ["main"]
    assert [len(message.data) for message in ledger.get_messages(CHAT)[:3]] == [2, 2, 2], (
        "it travels with the next turn"
    )
    assert {hit.message.name for hit in ledger.search("fado OR caveat OR hook")} == {"user"}
    chat = ledger.get_chat(CHAT)
    assert chat is not None
    assert chat.title == "Lisbon"
    append(ledger, *entries)
    assert len(load(ledger) or []) == len(entries) + 3, "entries without uuid are not told from others"


def test_an_edit_is_a_branch(ledger: Ledger) -> None:
    """What rewinding to an earlier prompt writes: an entry with a parent that has another child already."""
    append(ledger, said("user", "Fado?", "u1", None), said("assistant", "Alfama.", "a1", "u1"))
    append(ledger, said("user", "And jazz?", "u2", "a1"), said("assistant", "Baixa.", "a2", "u2"))
    append(ledger, said("user", "And opera?", "u3", "a1"), said("assistant", "Chiado.", "a3", "u3"))
    assert texts(ledger) == ["Fado?", "Alfama.", "And opera?", "Chiado."]
    assert texts(ledger, "main") == ["Fado?", "Alfama.", "And jazz?", "Baixa."]
    assert [entry["uuid"] for entry in load(ledger) or []] == ["u1", "a1", "u2", "a2", "u3", "a3"]

    append(ledger, said("user", "Which one?", "u4", "a2"))
    assert texts(ledger)[2:] == ["And jazz?", "Baixa.", "Which one?"], "it goes on with the branch that ends there"
    assert shown(ledger) == texts(ledger)
    append(ledger, said("user", "From the start", "u5", None))
    assert texts(ledger) == ["From the start"]
    assert len(ledger.list_branches(CHAT)) == 3
    ledger.verify()


def test_a_branch_that_is_activated_is_what_claude_resumes(ledger: Ledger) -> None:
    append(ledger, BOOKKEEPING[0], said("user", "Fado?", "u1", None), said("assistant", "Alfama.", "a1", "u1"))
    append(ledger, said("user", "And jazz?", "u2", "a1"), BOOKKEEPING[2], said("assistant", "Baixa.", "a2", "u2"))
    append(ledger, said("user", "And opera?", "u3", "a1"))
    ledger.set_active_branch(CHAT, "main")

    assert shown(ledger) == ["Fado?", "Alfama.", "And jazz?", "Baixa."]
    ledger.fork(CHAT, f"{CHAT}:a1")
    assert shown(ledger) == ["Fado?", "Alfama."]
    assert [entry.get("uuid") for entry in load(ledger) or []] == [None, "u1", "a1"]
    append(ledger, said("user", "And theatre?", "u4", "a1"))
    assert shown(ledger) == ["Fado?", "Alfama.", "And theatre?"]
    assert len(load(ledger) or []) == 8, "everything, as it was appended"


def test_calls_that_ran_in_parallel_are_no_branches(ledger: Ledger) -> None:
    def call(number: int, parent: str) -> dict[str, Any]:
        block = {"type": "tool_use", "id": f"t{number}", "name": "look", "input": {"at": number}}
        entry = said("assistant", "", f"a{number}", parent, content=[block])
        entry["message"]["id"] = "msg_same"
        return entry

    def result(number: int) -> dict[str, Any]:
        block = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"seen {number}"}
        return said("user", "", f"r{number}", f"a{number}", content=[block])

    entries = [
        said("user", "Look!", "u1", None),
        call(1, "u1"),
        call(2, "a1"),
        result(2),
        result(1),
        said("assistant", "Done.", "a3", "r2"),
    ]
    for entry in entries:
        append(ledger, entry)

    assert [branch.name for branch in ledger.list_branches(CHAT)] == ["main"]
    assert [message.name for message in ledger.get_messages(CHAT)] == [
        *("user", "assistant", "assistant", "tool", "tool", "assistant")
    ]
    assert load(ledger) == entries


def test_conversations_of_subagents_stay_beside(ledger: Ledger) -> None:
    append(ledger, said("user", "Fado?", "u1", None))
    append(ledger, said("user", "Search!", "x1", None, isSidechain=True))
    append(ledger, said("assistant", "Found.", "x2", "x1", isSidechain=True), said("assistant", "Alfama.", "a1", "u1"))
    assert texts(ledger) == ["Fado?", "Alfama."]
    assert texts(ledger, "main-v2") == ["Search!", "Found."]
    assert len(load(ledger) or []) == 4

    sub = {**KEY, "subpath": "subagents/agent-1"}
    append(ledger, said("user", "Look!", "y1", None, isSidechain=True), key=sub)
    append(ledger, said("assistant", "Seen.", "y2", "y1", isSidechain=True), key=sub)
    found = chat_id(PROJECT, SESSION, "subagents/agent-1")
    assert [message.text for message in ledger.get_messages(found)] == ["Look!", "Seen."]
    assert ledger.get_messages(found, branch="main")


def test_a_compacted_conversation_stays_one(ledger: Ledger) -> None:
    append(ledger, said("user", "Fado?", "u1", None), said("assistant", "Alfama.", "a1", "u1"))
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": "c1",
        "parentUuid": None,
        "logicalParentUuid": "a1",
    }
    summary = said("user", "They spoke of fado.", "u2", "c1", isCompactSummary=True)
    append(ledger, boundary, summary, said("assistant", "Go on.", "a2", "u2"))

    assert shown(ledger) == ["They spoke of fado.", "Go on."]
    assert texts(ledger) == ["Fado?", "Alfama.", *shown(ledger)], "what was said before is where a reader looks for it"


def nested(levels: int) -> list[Any]:
    return [nested(levels - 1)] if levels else []


def test_entries_of_unusual_content_are_kept(ledger: Ledger) -> None:
    entries: list[dict[str, Any]] = [
        {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "half of a \ud83d"}},
        {"type": "x", "uuid": "u2", "big": 2**70, "deep": [[1.5, None, True]]},
        {"type": "user", "uuid": "u3", "message": "no message"},
        {
            "type": "assistant",
            "uuid": "u4",
            "parentUuid": "unknown",
            "message": {"role": "assistant", "content": "Yes"},
        },
        {"type": "custom-title", "uuid": "u5", "customTitle": "half of a \ud83d"},
        {"type": "user", "uuid": "u6", "message": {"role": "user", "content": "deep"}, "toolUseResult": nested(250)},
    ]
    append(ledger, *entries)

    assert load(ledger) == entries
    assert texts(ledger) == ["half of a \ud83d", "Yes", "deep"]
    stored = ledger.get_messages(CHAT)
    assert {message.form for message in stored} == {"claude-code"}
    assert stored[0].data == entries[0], "as it came"
    assert [type(line) for line in stored[-1].data] == [dict, str], "what data of messages cannot have is kept as text"
    assert ledger.search("deep"), "which is read all the same"


def test_summaries_are_kept_in_the_same_commit(ledger: Ledger) -> None:
    store = LedgerSessionStore(ledger)
    append(ledger, said("user", "Where is fado sung?", "u1", None))
    commits = {recorded.event.command_id for recorded in ledger.history()}
    assert len(commits) == 1
    run(tag_session_via_store(store, SESSION, "travel"))
    (found,) = run(list_sessions_from_store(store))
    assert (found.session_id, found.summary, found.tag) == (SESSION, "Where is fado sung?", "travel")
    run(rename_session_via_store(store, SESSION, "Lisbon"))
    assert run(list_sessions_from_store(store))[0].custom_title == "Lisbon"

    ledger.append(CHAT, user("Said elsewhere"))
    (summary,) = run(store.list_session_summaries(PROJECT))
    assert summary["mtime"] == 0, "somebody else wrote since, so the SDK makes it anew"
    append(ledger, {"type": "last-prompt", "lastPrompt": "x" * 300_000})
    assert run(list_sessions_from_store(store))[0].custom_title == "Lisbon"


def test_sessions_are_forked_and_deleted_as_the_sdk_does(ledger: Ledger) -> None:
    store = LedgerSessionStore(ledger)
    append(ledger, said("user", "Fado?", "11111111-1111-4111-8111-111111111111", None))
    fork = run(fork_session_via_store(store, SESSION))
    assert shown(ledger, fork.session_id) == ["Fado?"]
    run(delete_session_via_store(store, SESSION))
    assert [one.session_id for one in run(list_sessions_from_store(store))] == [fork.session_id]
    assert load(ledger) is None


def test_a_chat_with_the_id_of_the_session_is_resumed(ledger: Ledger) -> None:
    """Entries that Claude goes on from are made of what something else wrote, calls of tools included."""
    ledger.create_chat(SESSION, "ada")
    tool = {"type": "dynamic-tool", "toolName": "look", "toolCallId": "t1", "input": {"at": 1}}
    parts = [{"type": "text", "text": "Let me see."}, {**tool, "state": "output-available", "output": "Alfama"}]
    answer = assistant(
        {"id": str(uuid4()), "role": "assistant", "parts": [*parts, {"type": "text", "text": "Alfama."}]}
    )
    ledger.append(SESSION, [user("Fado?"), answer])
    entries = load(ledger)

    assert entries is not None
    assert [entry["type"] for entry in entries] == ["user", "assistant", "user", "assistant"]
    assert [entry["parentUuid"] for entry in entries] == [None, *(entry["uuid"] for entry in entries[:-1])]
    assert {entry["sessionId"] for entry in entries} == {SESSION}
    assert entries[1]["message"]["content"][1]["name"] == "look"
    assert entries[2]["message"]["content"][0]["tool_use_id"] == "t1"
    assert shown(ledger) == ["Fado?", "Let me see.", "", "Alfama."]
    assert load(ledger) == entries, "the same each time"

    append(ledger, said("user", "And jazz?", "u1", entries[-1]["uuid"]))
    assert [branch.name for branch in ledger.list_branches(SESSION)] == ["main"]
    assert shown(ledger)[-2:] == ["Alfama.", "And jazz?"]
    assert ledger.get_chat(CHAT) is None
    append(ledger, said("user", "And opera?", "u2", entries[0]["uuid"]))
    assert shown(ledger) == ["Fado?", "And opera?"]
    assert [one["session_id"] for one in run(LedgerSessionStore(ledger).list_sessions(PROJECT))] == [SESSION]
    other: Any = {"project_key": "another", "session_id": SESSION}
    assert load(ledger, other) is None, "a transcript of one project is none of another"


def test_what_something_else_adds_to_a_transcript_is_resumed(ledger: Ledger) -> None:
    """It comes as entries that follow those that Claude wrote, which come as they were; the result of a call of Claude's with it."""
    call = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    entries = [
        said("user", "Fado?", "u1", None, gitBranch="main"),
        BOOKKEEPING[1],
        said("assistant", "", "a1", "u1", content=[call], requestId="r1"),
    ]
    append(ledger, *entries)
    answer = {"role": "tool", "tool_call_id": "t1", "content": "Alfama"}
    ledger.append(CHAT, [answer, {"role": "assistant", "content": "In Alfama."}], form="openai")
    loaded = load(ledger)

    assert loaded is not None
    assert loaded[:2] == entries[:2]
    assert loaded[2]["message"]["content"] == [call]
    assert loaded[3]["message"]["content"][0] == {"type": "tool_result", "tool_use_id": "t1", "content": "Alfama"}
    assert shown(ledger) == ["Fado?", "", "", "In Alfama."]
    assert len({entry["uuid"] for entry in loaded if "uuid" in entry}) == 4
    append(ledger, said("user", "And jazz?", "u2", loaded[-1]["uuid"]))
    assert shown(ledger)[-2:] == ["In Alfama.", "And jazz?"]
    assert [branch.name for branch in ledger.list_branches(CHAT)] == ["main"]


def test_hidden_messages_are_not_loaded(ledger: Ledger) -> None:
    append(ledger, said("user", "Fado?", "u1", None), said("assistant", "Bad words.", "a1", "u1"))
    append(ledger, said("user", "Jazz?", "u2", "a1"))
    ledger.annotate(CHAT, f"{CHAT}:a1", hidden=True)

    assert shown(ledger) == ["Fado?", "Jazz?"]


def test_earlier_states_are_loaded(ledger: Ledger) -> None:
    append(ledger, said("user", "Fado?", "u1", None))
    before = ledger.position
    append(ledger, said("assistant", "Alfama.", "a1", "u1"))
    store = LedgerSessionStore(ledger)

    assert [entry["uuid"] for entry in cast("Any", run(store.load_as_of(KEY, before)))] == ["u1"]
    assert run(store.load_as_of(KEY, 0)) is None


def test_users_see_their_own_transcripts(ledger: Ledger) -> None:
    run(LedgerSessionStore(ledger, user_id="ada").append(KEY, cast("Any", [said("user", "Fado?", "u1", None)])))
    bob = LedgerSessionStore(ledger, user_id="bob")

    assert run(bob.load(KEY)) is None
    assert run(bob.list_sessions(PROJECT)) == run(bob.list_session_summaries(PROJECT)) == []
    assert not run(bob.search("fado"))
    assert len(run(LedgerSessionStore(ledger, user_id="ada").search("fado", key=KEY))) == 1


def test_a_key_consists_of_texts(ledger: Ledger) -> None:
    with pytest.raises(InvalidValueError, match="key of a transcript"):
        run(LedgerSessionStore(ledger).load(cast("Any", {"project_key": 5, "session_id": "x"})))

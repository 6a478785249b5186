"""Sessions of OpenAI's Agents SDK on a ledger, driven by its own runner with a model that answers from a script."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

pytest.importorskip("agents")

from agents import Agent, Runner, function_tool
from agents.extensions.memory import EncryptedSession
from agents.memory import OpenAIResponsesCompactionSession, Session, SessionSettings
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.usage import Usage
from tests.support.adapters.openai_agents import item_of

import chatledger
from chatledger import ConflictError, Ledger, assistant, user
from chatledger.adapters.openai_agents import LedgerSession
from chatledger.errors import BranchNotFoundError, ConfigurationError, InvalidValueError
from chatledger.testing import Turn, check_adapter_killed

T = TypeVar("T")


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as opened:
        yield opened


def run(call: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(call)


def add(session: LedgerSession, *texts: str) -> None:
    """Questions and answers in turn."""
    items: list[Any] = [
        {"role": "user" if place % 2 == 0 else "assistant", "content": text} for place, text in enumerate(texts)
    ]
    run(session.add_items(items))


def texts(session: LedgerSession, **given: Any) -> list[Any]:
    return [item.get("content") for item in run(session.get_items(**given))]


@pytest.mark.soak
def test_it_outlives_a_kill() -> None:
    check_adapter_killed("tests.support.adapters.openai_agents:OpenAIAgentsDriver", rounds=2)


def test_it_is_a_session(ledger: Ledger) -> None:
    assert isinstance(LedgerSession("trip", ledger), Session)


@pytest.mark.guard
def test_it_imports_its_framework_only() -> None:
    code = (
        "import sys, chatledger.adapters.openai_agents as a; assert a.LedgerSession; "
        "print([name for name in ('claude_agent_sdk', 'langgraph', 'pydantic_ai') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_the_sdk_the_extra_is_named(tmp_path: Any) -> None:
    code = (
        "import sys; sys.modules['agents'] = None\n"
        "try:\n    import chatledger.adapters.openai_agents\n"
        "except Exception as error:\n    print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "ConfigurationError" in done.stdout
    assert "chatledger[openai-agents]" in done.stdout


def test_a_source_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="LedgerSession needs"):
        LedgerSession("trip", cast("Any", 5))


def test_the_runner_goes_on_with_what_was_said(ledger: Ledger) -> None:
    @function_tool
    def weather(city: str) -> str:
        return f"rain in {city}"

    model = ScriptedModel(
        [
            [function_call("weather", '{"city": "Riga"}', call_id="call_1")],
            [assistant_message("Take an umbrella.")],
            [assistant_message("Yes, tomorrow too.")],
        ]
    )
    agent = Agent(name="guide", model=model, tools=[weather])

    async def talk() -> str:
        session = LedgerSession("trip", ledger)
        await Runner.run(agent, "Do I need a coat in Riga?", session=session)
        result = await Runner.run(agent, "And tomorrow?", session=LedgerSession("trip", ledger))
        return str(result.final_output)

    assert run(talk()) == "Yes, tomorrow too."
    seen = cast("list[dict[str, Any]]", model.calls[-1].input)
    kinds = [item.get("type", "message") for item in seen]
    assert kinds == ["message", "function_call", "function_call_output", "message", "message"]
    assert [hit.message.text for hit in ledger.search("umbrella")] == ["Take an umbrella."]
    assert [message.name for message in ledger.get_messages("trip")] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]


ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "Hello"},
    {
        "role": "user",
        "content": [{"type": "input_text", "text": "Look"}, {"type": "input_image", "image_url": "data:x"}],
    },
    {
        "type": "function_call",
        "call_id": "c",
        "name": "f",
        "arguments": '{"a": 1}',
        "id": "fc_1",
        "status": "completed",
    },
    {"type": "function_call_output", "call_id": "c", "output": "fine"},
    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "riga"}},
    {"type": "mcp_call", "id": "m_1", "server_label": "s", "name": "n", "arguments": "{}", "output": None},
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "zzz"},
    {"type": "item_reference", "id": "msg_7"},
    {"neither": "type", "nor": ["role"]},
    item_of(Turn("assistant", "ünïcode 🎭"), "msg_1"),
]


def test_items_are_given_back_as_they_were(ledger: Ledger) -> None:
    session = LedgerSession("trip", ledger)
    run(session.add_items(cast("Any", ITEMS)))

    assert run(session.get_items()) == ITEMS
    popped = [run(session.pop_item()) for _ in ITEMS]
    assert popped == ITEMS[::-1]
    assert run(session.pop_item()) is None


def test_items_are_stored_as_they_came(ledger: Ledger) -> None:
    """Once, whatever JSON says of them: unknown fields, what Python alone reads as JSON, and what is no item."""
    odd = {"type": "function_call_output", "call_id": "c", "output": "cut \ud83d", "acme": [2**70, float("inf")]}
    session = LedgerSession("trip", ledger)
    run(session.add_items(cast("Any", [*ITEMS, odd])))
    stored = ledger.get_messages("trip")

    assert {message.form for message in stored} == {"responses"}
    assert [message.data for message in stored] == run(session.get_items()) == [*ITEMS, odd]
    assert [message.name for message in stored[2:5]] == ["assistant", "tool", "tool"]
    assert stored[0].text == "Hello"
    assert stored[2].parts[0]["toolName"] == "f"


@pytest.mark.parametrize(
    ("settings", "limit", "expected"),
    [
        (None, None, ["a", "b", "c"]),
        ({"limit": 2}, None, ["b", "c"]),
        (SessionSettings(limit=2), 1, ["c"]),
        ({"limit": 2}, 0, []),
        ({"limit": 0}, None, []),
        ({"limit": 2}, -1, ["a", "b", "c"]),
        (None, 2_147_483_647, ["a", "b", "c"]),
    ],
)
def test_an_explicit_limit_beats_the_settings(
    ledger: Ledger, settings: Any, limit: int | None, expected: list[str]
) -> None:
    session = LedgerSession("trip", ledger, session_settings=settings)
    add(session, "a", "b", "c")

    assert texts(session, limit=limit) == expected


def test_the_newest_items_cost_what_they_are(ledger: Ledger) -> None:
    """Of messages that stand for several items, and for none, as many are read as are needed."""
    ledger.create_chat("trip", "ada")
    tool: dict[str, Any] = {"type": "dynamic-tool", "toolName": "f", "toolCallId": "c1", "input": {}, "output": "out"}
    parts: list[dict[str, Any]] = [{"type": "text", "text": "Let me see."}, {**tool, "state": "output-available"}]
    ledger.append(
        "trip", [user("Riga?", id="u"), assistant({"id": "a", "role": "assistant", "parts": parts}), user("Ok")]
    )
    session = LedgerSession("trip", ledger)

    kinds = [item.get("type", "message") for item in run(session.get_items(3))]
    assert kinds == ["function_call", "function_call_output", "message"]
    assert len(run(session.get_items())) == 5


def test_popping_one_of_several_items_keeps_the_others(ledger: Ledger) -> None:
    ledger.create_chat("trip", "ada")
    tool: dict[str, Any] = {"type": "dynamic-tool", "toolName": "f", "toolCallId": "c1", "input": {}, "output": "out"}
    parts: list[dict[str, Any]] = [{"type": "text", "text": "Let me see."}, {**tool, "state": "output-available"}]
    ledger.append("trip", [user("Riga?", id="u"), assistant({"id": "a", "role": "assistant", "parts": parts})])
    session = LedgerSession("trip", ledger)
    before = run(session.get_items())
    stored = ledger.get_messages("trip")

    assert run(session.pop_item()) == before[-1]
    assert run(session.get_items()) == before[:-1]
    assert ledger.get_message("a") == stored[-1], "what was there stays in the history"


def late_result(ledger: Ledger) -> list[Any]:
    """A chat of Chat Completions in which the user goes on before the tool has answered; returns its items."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said: list[Any] = [
        {"role": "user", "content": "Riga?"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [call]},
        {"role": "user", "content": "Well?"},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    ]
    ledger.create_chat("trip", "ada")
    ledger.append("trip", said, form="openai")
    items = run(LedgerSession("trip", ledger).get_items())
    assert [item.get("type") or item.get("role") for item in items] == [
        "user",
        "assistant",
        "function_call",
        "function_call_output",
        "user",
    ]
    return items


def test_items_that_stand_elsewhere_than_their_messages_are_popped_one_by_one(ledger: Ledger) -> None:
    """The result that came last is told before what the user said meanwhile."""
    items = late_result(ledger)
    session = LedgerSession("trip", ledger)
    for left in range(len(items), 0, -1):
        assert run(session.pop_item()) == items[left - 1]
        assert run(session.get_items()) == items[: left - 1]
    assert run(session.pop_item()) is None


@pytest.mark.parametrize("start", range(5))
def test_the_end_of_what_others_wrote_is_replaced(ledger: Ledger, start: int) -> None:
    items = late_result(ledger)
    session = LedgerSession("trip", ledger)

    async def replace() -> bool:
        snapshot = await session._get_compaction_snapshot(5)  # pyright: ignore[reportPrivateUsage]
        assert snapshot is not None
        assert (snapshot.items, snapshot.complete) == (items, True)
        return await snapshot.replace_suffix(start, [{"role": "assistant", "content": "and so on"}])

    assert run(replace())
    kinds = [item.get("type") for item in items[:start]]
    if kinds[-1:] != ["function_call"]:  # which is answered when the talk goes on without its result
        assert run(session.get_items()) == [*items[:start], {"role": "assistant", "content": "and so on"}]
    assert run(session.get_items())[-1] == {"role": "assistant", "content": "and so on"}
    assert run(session.get_items(branch_id="main")) == items


def test_concurrent_pops_get_each_item_once(ledger: Ledger) -> None:
    session = LedgerSession("trip", ledger)
    add(session, *map(str, range(8)))

    async def pop() -> list[Any]:
        return await asyncio.gather(*(LedgerSession("trip", ledger).pop_item() for _ in range(10)))

    found = [item["content"] for item in run(pop()) if item is not None]
    assert sorted(found) == sorted(map(str, range(8)))


def test_a_repeated_call_is_one_write(ledger: Ledger) -> None:
    session = LedgerSession("trip", ledger)
    items: list[Any] = [item_of(Turn("user", "Hi"), "msg_u"), item_of(Turn("assistant", "Hello"), "msg_a")]
    run(session.add_items(items))
    position = ledger.position
    run(session.add_items(items))

    assert ledger.position == position
    assert [message.id for message in ledger.get_messages("trip")] == ["trip:msg_u", "trip:msg_a"]


@pytest.mark.parametrize("item_id", ["1", "__fake_id__"])
def test_models_without_ids_of_their_own_lose_nothing(ledger: Ledger, item_id: str) -> None:
    session = LedgerSession("trip", ledger)
    for question in ("One?", "Two?"):
        run(session.add_items([{"role": "user", "content": question}]))
        run(session.add_items(cast("Any", [item_of(Turn("assistant", "Yes."), item_id)])))

    assert [item.get("id") for item in run(session.get_items())] == [None, item_id, None, item_id]


def test_clearing_goes_on_with_an_empty_branch(ledger: Ledger) -> None:
    session = LedgerSession("trip", ledger)
    add(session, "a", "b")
    run(session.clear_session())
    assert texts(session) == []
    add(session, "c")
    run(session.clear_session())
    run(session.clear_session())

    assert [branch.name for branch in ledger.list_branches("trip")] == ["main", "main-v2", "main-v2-v2"]
    assert texts(session, branch_id="main") == ["a", "b"]
    run(session.switch_to_branch("main"))
    assert texts(LedgerSession("trip", ledger)) == ["a", "b"]


def test_deleting_erases(ledger: Ledger) -> None:
    session = LedgerSession("trip", ledger)
    add(session, "fado", "b")

    assert run(session.delete())
    assert not run(session.delete())
    assert texts(session) == []
    assert not any("fado" in repr(event.to_dict()) for event in ledger.history())


def test_a_session_may_be_bound_to_a_branch(ledger: Ledger) -> None:
    session = LedgerSession("trip", ledger)
    add(session, "a", "b")
    ledger.create_branch("trip", "draft", ledger.get_messages("trip")[0].id)
    draft = LedgerSession("trip", ledger, branch="draft")
    add(draft, "c")

    assert texts(draft) == ["a", "c"]
    assert texts(session) == ["a", "b"]
    run(draft.clear_session())
    assert (draft.branch, texts(draft), texts(session)) == ("draft-v2", [], ["a", "b"])
    with pytest.raises(BranchNotFoundError):
        add(LedgerSession("trip", ledger, branch="nowhere"), "c")
    with pytest.raises(BranchNotFoundError):
        add(LedgerSession("new", ledger, branch="nowhere"), "c")


def test_what_models_do_not_get_is_left_out(ledger: Ledger) -> None:
    session = LedgerSession("trip", ledger)
    add(session, "a", "b", "c")
    ledger.annotate("trip", ledger.get_messages("trip")[1].id, hidden=True)

    assert texts(session) == ["a", "c"]
    assert texts(session, limit=2) == ["a", "c"]


def test_earlier_states_are_read(ledger: Ledger) -> None:
    session = LedgerSession("trip", ledger)
    add(session, "a", "b")
    before = ledger.position
    add(session, "c")
    run(session.pop_item())
    run(session.pop_item())

    assert [item.get("content") for item in run(session.as_of(before))] == ["a", "b"]
    assert [item.get("content") for item in run(session.as_of(before, limit=1))] == ["b"]
    assert run(session.as_of(0)) == []


def test_sessions_are_listed_and_searched(ledger: Ledger) -> None:
    for name, owner in (("trip", "ada"), ("work", "ada"), ("other", "bob")):
        add(LedgerSession(name, ledger, user_id=owner), f"fado {name}")
    session = LedgerSession("trip", ledger, user_id="ada")

    assert {chat.id for chat in run(session.list_sessions())} == {"trip", "work"}
    assert [hit.message.text for hit in run(session.search("fado"))] == ["fado trip"]
    assert run(LedgerSession("other", ledger, user_id="ada").get_items()) == []


def test_a_location_is_opened_and_closed(tmp_path: Any) -> None:
    location = f"sqlite:///{tmp_path}/log.db"
    session = LedgerSession("trip", location)
    add(session, "a")
    session.close()
    again = LedgerSession("trip", location)
    assert texts(again) == ["a"]
    run(again.aclose())


def test_a_branch_begins_before_a_turn(ledger: Ledger) -> None:
    session = LedgerSession("trip", ledger)
    add(session, "One?", "1", "Two?", "2")
    name = run(session.create_branch_from_turn(2, "other"))
    add(session, "Three?", "3")

    assert (name, texts(session), texts(session, branch_id="main")) == (
        "other",
        ["One?", "1", "Three?", "3"],
        ["One?", "1", "Two?", "2"],
    )
    assert ledger.get_messages("trip")[0] == ledger.get_messages("trip", branch="main")[0], "messages are shared"
    listed = run(session.list_branches())
    assert [(one["branch_id"], one["message_count"], one["user_turns"], one["is_current"]) for one in listed] == [
        ("main", 4, 2, False),
        ("other", 4, 2, True),
    ]
    first = run(session.create_branch_from_turn(1))
    assert first.startswith("branch_from_turn_1_")
    assert texts(session) == []


def test_branches_are_found_by_what_was_said(ledger: Ledger) -> None:
    session = LedgerSession("trip", ledger)
    add(session, "Where is FADO sung?", "Alfama", "And jazz?", "Baixa")

    turns = run(session.get_conversation_turns())
    assert [(turn["turn"], turn["content"]) for turn in turns] == [(1, "Where is FADO sung?"), (2, "And jazz?")]
    assert [turn["turn"] for turn in run(session.find_turns_by_content("JAZZ"))] == [2]
    run(session.create_branch_from_content("jazz"))
    assert texts(session) == ["Where is FADO sung?", "Alfama"]


def test_what_there_is_not_is_a_value_error(ledger: Ledger) -> None:
    """As with `AdvancedSQLiteSession`."""
    session = LedgerSession("trip", ledger)
    add(session, "a", "b")
    run(session.create_branch_from_turn(1, "other"))
    calls = [
        session.create_branch_from_turn(9),
        session.create_branch_from_turn(1, "  "),
        session.create_branch_from_content("nothing"),
        session.switch_to_branch("nowhere"),
        session.delete_branch("nowhere"),
        session.delete_branch(" "),
        session.delete_branch("main"),
        session.delete_branch("other"),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"\w") as raised:
            run(call)
        assert isinstance(raised.value, InvalidValueError)
    run(session.switch_to_branch("main"))
    with pytest.raises(ValueError, match="already been used"):
        run(session.create_branch_from_turn(1, "other"))
    run(session.switch_to_branch("other"))
    run(session.delete_branch("other", force=True))
    assert texts(session) == ["a", "b"]


def test_tools_and_turns_are_counted(ledger: Ledger) -> None:
    session = LedgerSession("trip", ledger)
    call = {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"}
    items: list[Any] = [
        {"role": "user", "content": "One?"},
        call,
        {**call, "namespace": "eu"},
        {"type": "mcp_call", "id": "m", "server_label": "maps", "name": "route", "arguments": "{}"},
        {"type": "web_search_call", "id": "w", "status": "completed"},
        {"role": "assistant", "content": "1"},
    ]
    run(session.add_items(items))

    assert run(session.get_tool_usage()) == [
        ("eu.weather", 1, 1),
        ("maps.route", 1, 1),
        ("weather", 1, 1),
        ("web_search_call", 1, 1),
    ]
    kinds = run(session.get_conversation_by_turns())
    assert kinds[1][0] == {"type": "user", "tool_name": None}
    assert kinds[1][1] == {"type": "function_call", "tool_name": "weather"}


def test_usage_belongs_to_the_turn(ledger: Ledger) -> None:
    session = LedgerSession("trip", ledger)

    def result(tokens: int) -> Any:
        usage = Usage(requests=1, input_tokens=tokens, output_tokens=2, total_tokens=tokens + 2)
        return SimpleNamespace(context_wrapper=SimpleNamespace(usage=usage))

    run(session.store_run_usage(result(1)))
    assert run(session.get_session_usage()) is None
    add(session, "One?", "1")
    run(session.store_run_usage(result(10)))
    add(session, "Two?", "2")
    run(session.store_run_usage(result(20)))
    run(session.create_branch_from_turn(2, "other"))
    add(session, "Three?", "3")
    run(session.store_run_usage(result(40)))

    turn = cast("dict[str, Any]", run(session.get_turn_usage(2)))
    assert (turn["input_tokens"], turn["output_tokens"]) == (40, 2)
    assert turn["input_tokens_details"]["cached_tokens"] == 0
    assert [one["user_turn_number"] for one in cast("list[Any]", run(session.get_turn_usage()))] == [1, 2]
    assert run(session.get_turn_usage(7)) == {}
    of_branch, of_all = run(session.get_session_usage("main")), run(session.get_session_usage())
    assert of_branch is not None
    assert of_all is not None
    assert (of_branch["input_tokens"], of_branch["total_turns"]) == (30, 2)
    assert (of_all["input_tokens"], of_all["total_turns"]) == (70, 3), "a shared turn counts once"


class Compacting:
    """The API that compacts whatever it is given to one item; while it does so, `meanwhile` is awaited."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        self.inputs: list[Any] = []

    async def compact(self, **given: Any) -> Any:
        self.inputs.append(given.get("input"))
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return SimpleNamespace(output=[{"type": "compaction", "id": "cmp_1", "encrypted_content": "short"}], usage=None)

    def wrapped(self, inner: Session) -> OpenAIResponsesCompactionSession:
        client = cast("Any", SimpleNamespace(responses=self))
        return OpenAIResponsesCompactionSession(
            "trip", inner, client=client, compaction_mode="input", should_trigger_compaction=lambda _: True
        )


def compacting(ledger: Ledger) -> tuple[OpenAIResponsesCompactionSession, LedgerSession]:
    """A session that is compacted to one item by an API that is not asked."""
    inner = LedgerSession("trip", ledger)
    return Compacting().wrapped(inner), inner


def test_compaction_of_a_run_is_one_commit_on_a_new_branch(ledger: Ledger) -> None:
    wrapped, inner = compacting(ledger)
    agent = Agent(name="guide", model=ScriptedModel([[assistant_message("1")]]))
    run(Runner.run(agent, "One?", session=wrapped))

    assert [item.get("type") for item in run(inner.get_items())] == ["compaction"]
    assert [branch.name for branch in ledger.list_branches("trip")] == ["main", "main-v2"]
    assert len(run(inner.get_items(branch_id="main"))) == 2, "the uncompacted history stays"


def test_compaction_by_hand_keeps_the_history_too(ledger: Ledger) -> None:
    wrapped, inner = compacting(ledger)
    add(inner, "One?", "1")
    position = ledger.position
    run(wrapped.run_compaction({"force": True}))

    assert [item.get("type") for item in run(inner.get_items())] == ["compaction"]
    assert texts(inner, branch_id="main") == ["One?", "1"]
    assert len({event.event.command_id for event in ledger.history("trip", after=position)}) == 1, "one commit"


WITH_ID: Any = {"role": "user", "content": "One?", "id": "1"}


async def add_one(session: LedgerSession) -> None:
    await session.add_items([{"role": "user", "content": "Two?"}])


async def begin_anew(session: LedgerSession) -> None:
    """Erase it, and begin it again with the same items, whose own ids make the ids of the messages."""
    await session.delete()
    await session.add_items([WITH_ID])


MEANWHILE: dict[str, tuple[Callable[[LedgerSession], Awaitable[object]], list[Any]]] = {
    "added": (add_one, ["One?", "Two?"]),
    "popped": (LedgerSession.pop_item, []),
    "cleared": (LedgerSession.clear_session, []),
    "erased": (LedgerSession.delete, []),
    "begun anew": (begin_anew, ["One?"]),
}


@pytest.mark.parametrize("branch", [None, "main"])
@pytest.mark.parametrize("is_other", [True, False], ids=["another session", "the session itself"])
@pytest.mark.parametrize("name", MEANWHILE)
def test_compaction_by_hand_overrules_nobody(ledger: Ledger, name: str, branch: str | None, *, is_other: bool) -> None:
    """What was written while the API compacted stays, and nothing of what was taken away then comes back."""
    inner = LedgerSession("trip", ledger, branch=branch)
    run(inner.add_items([WITH_ID]))
    api = Compacting()
    wrapped = api.wrapped(inner)
    change, left = MEANWHILE[name]
    other = LedgerSession("trip", ledger) if is_other else inner
    positions: list[int] = []

    async def meanwhile() -> None:
        await change(other)
        positions.append(ledger.position)

    api.meanwhile = meanwhile
    is_elsewhere = is_other and branch is not None and name == "cleared"  # the active branch is another one then
    if is_elsewhere:
        run(wrapped.run_compaction({"force": True}))
    else:
        with pytest.raises(ConflictError, match="'trip'"):
            run(wrapped.run_compaction({"force": True}))
        assert [ledger.position] == positions
    assert texts(other) == left


def test_compaction_by_hand_is_of_what_the_session_has(ledger: Ledger) -> None:
    """Not of what the wrapper has read or written itself; and what is empty stays so, whatever the API remembers."""
    inner, other, api = LedgerSession("trip", ledger), LedgerSession("trip", ledger), Compacting()
    wrapped = api.wrapped(inner)
    add(inner, "One?")
    run(wrapped.run_compaction({"force": True}))
    add(other, "Two?")
    run(wrapped.run_compaction({"force": True}))
    assert [item.get("content") for item in api.inputs[1]] == [None, "Two?"]

    for take_away in (other.clear_session, other.delete):
        run(take_away())
        run(wrapped.run_compaction({"force": True, "response_id": "resp_1", "compaction_mode": "previous_response_id"}))
        assert run(inner.get_items()) == []


def test_of_two_compactions_at_once_the_first_counts(ledger: Ledger) -> None:
    """Also where both are of one session: each compares what it has read itself."""
    inner, api = LedgerSession("trip", ledger), Compacting()
    add(inner, "One?")
    first, second = api.wrapped(inner), api.wrapped(inner)

    async def both() -> None:
        async def meanwhile() -> None:
            await inner.add_items([{"role": "user", "content": "Two?"}])
            await asyncio.create_task(second.run_compaction({"force": True}))

        api.meanwhile = meanwhile
        with pytest.raises(ConflictError):
            await first.run_compaction({"force": True})

    run(both())
    assert [item.get("content") for item in api.inputs[1]] == ["One?", "Two?"]
    assert [branch.name for branch in ledger.list_branches("trip")] == ["main", "main-v2"]


def test_a_wrapper_that_reads_for_itself_does_not_compact_by_hand(ledger: Ledger) -> None:
    """What it read, and when, is not known; so it is refused before anything is written."""
    inner = LedgerSession("trip", ledger)
    encrypted = EncryptedSession("trip", Compacting().wrapped(inner), encryption_key="k" * 32)
    run(encrypted.add_items([{"role": "user", "content": "One?"}]))
    position = ledger.position
    with pytest.raises(ConfigurationError, match="OpenAIResponsesCompactionSession"):
        run(encrypted.run_compaction({"force": True}))
    assert ledger.position == position
    assert [item.get("content") for item in run(encrypted.get_items())] == ["One?"]


def test_the_end_of_a_branch_is_replaced_unless_others_wrote(ledger: Ledger) -> None:
    session = LedgerSession("trip", ledger)
    add(session, "a", "b", "c", "d")

    async def replace(*, is_disturbed: bool) -> bool:
        snapshot = await session._get_compaction_snapshot(3)  # pyright: ignore[reportPrivateUsage]
        assert snapshot is not None
        assert not snapshot.complete
        if is_disturbed:
            await session.add_items([{"role": "user", "content": "e"}])
        return await snapshot.replace_suffix(1, [{"role": "assistant", "content": "c and d"}])

    assert not run(replace(is_disturbed=True))
    assert texts(session) == ["a", "b", "c", "d", "e"]
    run(session.pop_item())
    position = ledger.position
    assert run(replace(is_disturbed=False))
    assert texts(session) == ["a", "b", "c and d"]
    assert len({event.event.command_id for event in ledger.history() if event.position > position}) == 1
    assert texts(session, branch_id="main") == ["a", "b", "c", "d"]

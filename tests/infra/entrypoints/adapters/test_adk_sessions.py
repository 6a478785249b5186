# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false, reportUntypedFunctionDecorator=false
"""ADK's contract of session services, as its own service in memory keeps it: the same cases for both."""

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

pytest.importorskip("google.adk")

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.sessions import BaseSessionService, InMemorySessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

import chatledger
from chatledger.adapters.adk import LedgerSessionService

Case = Callable[[BaseSessionService], Coroutine[Any, Any, None]]
TRIP: dict[str, Any] = {"app_name": "guide", "user_id": "ada", "session_id": "trip"}


@pytest.fixture(params=["adk", "ledger"])
def service(request: pytest.FixtureRequest) -> Iterator[BaseSessionService]:
    if request.param == "adk":
        yield InMemorySessionService()
        return
    with chatledger.open("memory:") as ledger:
        yield LedgerSessionService(ledger)
        ledger.verify()


def for_both(case: Case) -> Callable[[BaseSessionService], None]:
    """A test of a case."""

    @functools.wraps(case)
    def test(service: BaseSessionService) -> None:
        asyncio.run(case(service))

    return test


def said(text: str, **fields: Any) -> Event:
    author = fields.pop("author", "user")
    role = "user" if author == "user" else "model"
    content = types.Content(role=role, parts=[types.Part(text=text)])
    return Event(author=author, invocation_id="i1", content=content, **fields)


def setting(state: dict[str, Any], **fields: Any) -> Event:
    return Event(author="guide", invocation_id="i1", actions=EventActions(state_delta=state), **fields)


def texts(session: Any) -> list[str]:
    return [event.content.parts[0].text for event in session.events]


@for_both
async def test_no_session(service: BaseSessionService) -> None:
    assert await service.get_session(**TRIP) is None
    assert (await service.list_sessions(app_name="guide")).sessions == []
    assert await service.get_user_state(app_name="guide", user_id="ada") == {}
    await service.delete_session(**TRIP)


@for_both
async def test_a_session_is_read_as_it_was_made(service: BaseSessionService) -> None:
    made = await service.create_session(**TRIP, state={"city": "Lisbon", "nested": {"days": [1, None, "x"]}})
    read = await service.get_session(**TRIP)

    assert made.id == "trip"
    assert made.app_name == "guide"
    assert made.user_id == "ada"
    assert made.events == []
    assert made.state == {"city": "Lisbon", "nested": {"days": [1, None, "x"]}}
    assert made.last_update_time > 1_700_000_000
    assert read == made
    assert await service.get_session(app_name="other", user_id="ada", session_id="trip") is None
    assert await service.get_session(app_name="guide", user_id="bob", session_id="trip") is None


@for_both
async def test_ids(service: BaseSessionService) -> None:
    first = await service.create_session(app_name="guide", user_id="ada")
    second = await service.create_session(app_name="guide", user_id="ada", session_id="  ")
    named = await service.create_session(app_name="guide", user_id="ada", session_id=" with blanks ")

    assert len({first.id, second.id}) == 2
    assert named.id == "with blanks"
    assert (await service.get_session(app_name="guide", user_id="ada", session_id=" with blanks ")).id == "with blanks"
    with pytest.raises(AlreadyExistsError):
        await service.create_session(app_name="guide", user_id="ada", session_id="with blanks")
    for user_id, name in (("ada/b", "c"), ("ada", "b/c"), ("ada%2Fb", "c"), ("ada", "ünïcode 🦀")):
        await service.create_session(app_name="guide", user_id=user_id, session_id=name)


@for_both
async def test_lists(service: BaseSessionService) -> None:
    for user_id, name in (("ada", "s1"), ("bob", "s2"), ("ada", "s3")):
        await service.create_session(app_name="guide", user_id=user_id, session_id=name, state={"name": name})
        await asyncio.sleep(0.003)  # times are in milliseconds
    await service.create_session(app_name="other", user_id="ada", session_id="s4")
    first = await service.get_session(app_name="guide", user_id="ada", session_id="s1")
    await service.append_event(first, said("And now?"))

    every = (await service.list_sessions(app_name="guide")).sessions
    hers = (await service.list_sessions(app_name="guide", user_id="ada")).sessions
    assert [session.id for session in every] == ["s2", "s3", "s1"]
    assert [session.id for session in hers] == ["s3", "s1"]
    assert [session.events for session in every] == [[], [], []]
    assert [session.state for session in hers] == [{"name": "s3"}, {"name": "s1"}]
    assert [session.user_id for session in every] == ["bob", "ada", "ada"]


@for_both
async def test_three_scopes_of_state(service: BaseSessionService) -> None:
    given = {"app:model": "small", "user:name": "Ada", "city": "Lisbon", "temp:draft": "x"}
    made = await service.create_session(**TRIP, state=given)
    other = await service.create_session(app_name="guide", user_id="ada", session_id="other")
    bobs = await service.create_session(app_name="guide", user_id="bob", session_id="his")
    elsewhere = await service.create_session(app_name="other", user_id="ada", session_id="trip")

    assert made.state == {"app:model": "small", "user:name": "Ada", "city": "Lisbon"}
    assert other.state == {"app:model": "small", "user:name": "Ada"}
    assert bobs.state == {"app:model": "small"}
    assert elsewhere.state == {}
    assert await service.get_user_state(app_name="guide", user_id="ada") == {"name": "Ada"}


@for_both
async def test_events_set_state(service: BaseSessionService) -> None:
    await service.create_session(**TRIP, state={"kept": 1, "city": "Lisbon"})
    session = await service.get_session(**TRIP)
    changes = {"app:model": "large", "user:name": "Ada", "city": "Riga", "none": None, "temp:draft": "x"}
    event = await service.append_event(session, setting(changes))
    read = await service.get_session(**TRIP)

    stored = {"app:model": "large", "user:name": "Ada", "kept": 1, "city": "Riga", "none": None}
    assert session.state == stored | {"temp:draft": "x"}, "temporary state is there in this invocation"
    assert read.state == stored
    assert "temp:draft" not in event.actions.state_delta
    assert read.events == session.events
    assert "temp:draft" not in read.events[0].actions.state_delta
    later = await service.create_session(app_name="guide", user_id="ada", session_id="later")
    assert later.state == {"app:model": "large", "user:name": "Ada"}


@for_both
async def test_shared_state_is_merged(service: BaseSessionService) -> None:
    first = await service.create_session(app_name="guide", user_id="ada", session_id="s1", state={"user:a": 1})
    second = await service.create_session(app_name="guide", user_id="ada", session_id="s2", state={"user:b": 2})
    await service.append_event(first, setting({"user:b": 3, "app:x": 1}))
    await service.append_event(second, setting({"user:c": 4, "app:y": 2}))

    assert await service.get_user_state(app_name="guide", user_id="ada") == {"a": 1, "b": 3, "c": 4}
    read = await service.get_session(app_name="guide", user_id="ada", session_id="s1")
    assert read.state == {"user:a": 1, "user:b": 3, "user:c": 4, "app:x": 1, "app:y": 2}


@for_both
async def test_an_event_comes_back_whole(service: BaseSessionService) -> None:
    event = Event(
        id="e1",
        invocation_id="i1",
        author="guide",
        branch="root.guide",
        timestamp=1_763_900_000.123456,
        long_running_tool_ids={"t2", "t1"},
        turn_complete=True,
        error_code="E1",
        error_message="too long",
        interrupted=False,
        custom_metadata={"trace": {"id": "x", "none": None}},
        grounding_metadata=types.GroundingMetadata(web_search_queries=["fado"]),
        usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=3, total_token_count=5),
        content=types.Content(
            role="model",
            parts=[
                types.Part(text="Let me look.", thought=True, thought_signature=b"\x00\xff"),
                types.Part(function_call=types.FunctionCall(id="c1", name="search", args={"q": "fado", "n": 2})),
                types.Part(function_response=types.FunctionResponse(id="c1", name="search", response={"hits": []})),
                types.Part(inline_data=types.Blob(data=bytes(range(256)), mime_type="image/png")),
                types.Part(file_data=types.FileData(file_uri="gs://b/o", mime_type="text/plain")),
                types.Part(executable_code=types.ExecutableCode(code="1 + 1", language=types.Language.PYTHON)),
            ],
        ),
        actions=EventActions(
            state_delta={"city": "Riga", "nothing": None},
            artifact_delta={"map.png": 2},
            transfer_to_agent="other",
            escalate=True,
            skip_summarization=True,
        ),
    )
    session = await service.create_session(**TRIP)
    await service.append_event(session, event)
    read = await service.get_session(**TRIP)

    assert read.events == [event]
    assert read.events[0].content.parts[3].inline_data.data == bytes(range(256))
    assert read.last_update_time == session.last_update_time == 1_763_900_000.123456


@for_both
async def test_a_partial_event_is_not_stored(service: BaseSessionService) -> None:
    session = await service.create_session(**TRIP)
    partial = said("In Al", author="guide", partial=True)

    assert await service.append_event(session, partial) is partial
    assert session.events == []
    assert (await service.get_session(**TRIP)).events == []


@for_both
async def test_events_are_read_by_number_and_time(service: BaseSessionService) -> None:
    session = await service.create_session(**TRIP)
    for number in range(150):
        await service.append_event(session, said(f"q{number}", timestamp=float(number)))

    async def read(**config: Any) -> list[str]:
        return texts(await service.get_session(**TRIP, config=GetSessionConfig(**config)))

    assert texts(await service.get_session(**TRIP)) == [f"q{number}" for number in range(150)]
    assert await read() == [f"q{number}" for number in range(150)]
    assert await read(num_recent_events=0) == []
    assert await read(num_recent_events=3) == ["q147", "q148", "q149"]
    assert len(await read(num_recent_events=1000)) == 150
    assert await read(after_timestamp=148.0) == ["q148", "q149"]
    assert await read(after_timestamp=147.5) == ["q148", "q149"]
    assert await read(after_timestamp=9.0) == [f"q{number}" for number in range(9, 150)]
    assert await read(after_timestamp=1000.0) == []
    assert await read(after_timestamp=100.0, num_recent_events=2) == ["q148", "q149"]
    assert await read(after_timestamp=149.0, num_recent_events=2) == ["q149"]


@for_both
async def test_a_deleted_session_is_gone(service: BaseSessionService) -> None:
    session = await service.create_session(**TRIP, state={"user:name": "Ada", "city": "Riga"})
    await service.append_event(session, said("Hello"))
    await service.delete_session(**TRIP)
    await service.delete_session(**TRIP)

    assert await service.get_session(**TRIP) is None
    assert (await service.list_sessions(app_name="guide")).sessions == []
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, said("Are you there?"))
    again = await service.create_session(**TRIP)
    assert again.state == {"user:name": "Ada"}, "the user is still there"
    assert again.events == []


@for_both
async def test_an_equal_event_is_stored_once(service: BaseSessionService) -> None:
    session = await service.create_session(**TRIP)
    event = said("Where?", id="e1", timestamp=5.0)
    await service.append_event(session, event)
    await service.append_event(session, event)
    await service.append_event(session, event.model_copy(deep=True))
    await service.append_event(session, said("When?", id="e2", timestamp=6.0))

    assert texts(session) == ["Where?", "When?"]
    assert (await service.get_session(**TRIP)).events == session.events


@for_both
async def test_other_events_of_the_same_id_are_kept(service: BaseSessionService) -> None:
    session = await service.create_session(**TRIP)
    for text in ("Where?", "When?", "When?"):
        await service.append_event(session, said(text, id="fixed", timestamp=5.0))

    assert texts(await service.get_session(**TRIP)) == ["Where?", "When?"]


@for_both
async def test_what_is_returned_is_a_copy(service: BaseSessionService) -> None:
    await service.create_session(**TRIP, state={"list": [1]})
    read = await service.get_session(**TRIP)
    read.state["list"].append(2)
    read.state["more"] = True
    mine = await service.get_user_state(app_name="guide", user_id="ada")
    mine["more"] = True

    assert (await service.get_session(**TRIP)).state == {"list": [1]}
    assert await service.get_user_state(app_name="guide", user_id="ada") == {}


@for_both
async def test_events_at_the_same_time_are_all_there(service: BaseSessionService) -> None:
    """Parallel agents of one invocation share the session object."""
    session = await service.create_session(**TRIP)
    await asyncio.gather(*(service.append_event(session, said(f"q{number}")) for number in range(20)))

    read = await service.get_session(**TRIP)
    assert sorted(texts(read)) == sorted(f"q{number}" for number in range(20))
    assert texts(session) == texts(read)
    await service.flush()

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false, reportPrivateUsage=false
"""Sessions of Google's ADK on a ledger: what they have beyond ADK's contract."""

import asyncio
import random
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

pytest.importorskip("google.adk")

from google.adk.agents import LlmAgent
from google.adk.cli.service_registry import get_service_registry, load_services_module
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events import Event, EventActions
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types
from tests.support.adapters.pages import run_page
from tests.support.operation_counting import counting

import chatledger
from chatledger import Ledger, assistant, user
from chatledger.adapters.adk import LedgerSessionService, chat_id
from chatledger.errors import AccessDeniedError, ConfigurationError
from chatledger.infra.entrypoints.adapters.adk.service import EventsToAppend
from chatledger.testing import check_adapter_killed

T = TypeVar("T")
TRIP: dict[str, Any] = {"app_name": "guide", "user_id": "ada", "session_id": "trip"}


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as opened:
        yield opened
        opened.verify()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def trip_of(service: LedgerSessionService) -> Any:
    """The session of the tests, which is there."""
    session = run(service.get_session(**TRIP))
    assert session is not None
    return session


def said(text: str, *, author: str = "user", state: dict[str, Any] | None = None, **fields: Any) -> Event:
    role = "user" if author == "user" else "model"
    content = types.Content(role=role, parts=[types.Part(text=text)])
    actions = EventActions(state_delta=state or {})
    return Event(author=author, invocation_id="i1", content=content, actions=actions, **fields)


def texts(session: Session | None) -> list[str | None]:
    assert session is not None
    return [part.text for event in session.events for part in event.content.parts]


@pytest.mark.soak
def test_it_outlives_a_kill() -> None:
    check_adapter_killed("tests.support.adapters.adk:AdkDriver", rounds=2)


def test_the_page() -> None:
    run_page("adk")


def test_an_event_and_its_state_are_one_commit(ledger: Ledger) -> None:
    service = LedgerSessionService(ledger)
    session = run(service.create_session(**TRIP, state={"city": "Lisbon"}))
    before = ledger.position
    run(service.append_event(session, said("Riga!", state={"city": "Riga"})))

    assert ledger.position == before + 1
    with ledger.as_of(before) as then:
        assert then.get_messages(chat_id("guide", "ada", "trip")) == []


def test_others_read_what_was_said(ledger: Ledger) -> None:
    service = LedgerSessionService(ledger)
    session = run(service.create_session(**TRIP))
    call = types.Part(function_call=types.FunctionCall(id="c1", name="weather", args={"city": "Riga"}))
    answer = types.Part(function_response=types.FunctionResponse(id="c1", name="weather", response={"sky": "grey"}))
    run(
        service.append_events(
            session,
            [
                said("Do I need a coat?", timestamp=10.5),
                Event(author="guide", content=types.Content(role="model", parts=[call])),
                Event(author="guide", content=types.Content(role="user", parts=[answer])),
                said("You do.", author="guide"),
            ],
        )
    )
    messages = ledger.get_messages(chat_id("guide", "ada", "trip"))

    assert [message.name for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert [message.text for message in messages] == ["Do I need a coat?", "", "", "You do."]
    assert [message.agent_id for message in messages] == [None, "guide", "guide", "guide"]
    assert messages[0].created_at == 10_500
    assert messages[1].parts[0]["input"] == {"city": "Riga"}
    assert {message.form for message in messages} == {"adk"}
    assert [message.data["id"] for message in messages] == [event.id for event in session.events]
    assert [hit.message.id for hit in ledger.search("coat", user_id="ada")] == [messages[0].id]


def test_a_stale_writer_is_refused(ledger: Ledger) -> None:
    service = LedgerSessionService(ledger)
    run(service.create_session(**TRIP))
    one, other = trip_of(service), trip_of(service)
    run(service.append_event(one, said("first")))
    before = ledger.position
    with pytest.raises(StaleSessionError, match="trip"):
        run(service.append_event(other, said("second", state={"app:x": 1, "user:y": 2, "z": 3})))

    assert ledger.position == before, "nothing of it was stored"
    assert texts(other) == []
    run(service.append_event(trip_of(service), said("second")))
    assert texts(trip_of(service)) == ["first", "second"]


def test_a_stale_writer_goes_on_at_the_end(ledger: Ledger) -> None:
    service = LedgerSessionService(ledger, on_stale="rebase")
    run(service.create_session(**TRIP))
    one, other = trip_of(service), trip_of(service)
    run(service.append_event(one, said("first", state={"a": 1})))
    run(service.append_event(other, said("second", state={"b": 2})))
    run(service.append_event(one, said("third")))
    read = trip_of(service)

    assert texts(read) == ["first", "second", "third"]
    assert read.state == {"a": 1, "b": 2}
    assert len(ledger.list_branches(chat_id("guide", "ada", "trip"))) == 1


def test_a_stale_writer_has_a_branch_of_its_own(ledger: Ledger) -> None:
    """Each goes on with the history that it has seen, and the state that it had there."""
    service = LedgerSessionService(ledger, on_stale="branch")
    session = run(service.create_session(**TRIP, state={"city": "Lisbon"}))
    run(service.append_event(session, said("Where?")))
    one, other = trip_of(service), trip_of(service)
    run(service.append_event(one, said("In Riga.", author="guide", state={"city": "Riga"})))
    run(service.append_event(other, said("In Oslo.", author="guide")))
    run(service.append_event(one, said("When?")))
    run(service.append_event(other, said("And then?", state={"days": 2})))
    chat = chat_id("guide", "ada", "trip")

    assert [branch.name for branch in ledger.list_branches(chat)] == ["main", "main-v2"]
    assert [message.text for message in ledger.get_messages(chat, branch="main")] == ["Where?", "In Riga.", "When?"]
    read = trip_of(service)
    assert texts(read) == texts(other) == ["Where?", "In Oslo.", "And then?"]
    assert read.state == {"city": "Lisbon", "days": 2}
    ledger.set_active_branch(chat, "main")
    read = trip_of(service)
    assert texts(read) == texts(one)
    assert read.state == {"city": "Riga"}


@pytest.mark.parametrize("on_stale", ["raise", "rebase", "branch"])
def test_many_writers_at_once(ledger: Ledger, on_stale: Any) -> None:
    """Each has read the same session. Nothing is lost, mixed into what another one has seen, or stored though it was refused."""
    chat = chat_id("guide", "ada", "trip")

    async def write() -> tuple[list[Any], list[str]]:
        services = [LedgerSessionService(ledger, on_stale=on_stale) for _ in range(8)]
        begun = await services[0].create_session(**TRIP)
        await services[0].append_event(begun, said("start"))
        sessions = [await service.get_session(**TRIP) for service in services]
        told: list[str] = []

        async def talk(number: int) -> None:
            for word in ("a", "b", "c"):
                try:
                    await services[number].append_event(sessions[number], said(f"{number}{word}", state={word: number}))
                except StaleSessionError:
                    return
                told.append(f"{number}{word}")

        await asyncio.gather(*map(talk, range(8)))
        return sessions, told

    sessions, told = run(write())
    chains = {
        branch.name: [one.text for one in ledger.get_messages(chat, branch=branch.name)]
        for branch in ledger.list_branches(chat)
    }
    stored = sorted(text for text in {text for chain in chains.values() for text in chain} - {"start"})

    assert stored == sorted(told)
    if on_stale == "rebase":
        assert len(told) == 24
        assert len(chains) == 1
    elif on_stale == "branch":
        assert len(told) == 24
        assert sorted(chains.values()) == sorted(texts(session) for session in sessions)
    else:
        assert list(chains.values()) == [["start", *told]]
        assert len({text[0] for text in told}) == 1, "one has won"


def test_a_session_that_came_by_way_of_json(ledger: Ledger) -> None:
    """It has no marker of its revision: its time and its last event say what it has seen."""
    service = LedgerSessionService(ledger)
    session = run(service.create_session(**TRIP))
    run(service.append_event(session, said("first", timestamp=1_900_000_000.0)))
    fresh, stale = (Session.model_validate_json(session.model_dump_json()) for _ in range(2))
    run(service.append_event(fresh, said("second", timestamp=1_900_000_001.0)))

    with pytest.raises(StaleSessionError):
        run(service.append_event(stale, said("third", timestamp=1_900_000_002.0)))
    stale.events = fresh.events
    run(service.append_event(stale, said("third", timestamp=1_900_000_002.0)))
    assert texts(trip_of(service)) == ["first", "second", "third"]


def test_an_answer_that_was_lost(ledger: Ledger) -> None:
    """The event was stored, and its writer does not know: the same call again is the same write."""
    service = LedgerSessionService(ledger)
    session = run(service.create_session(**TRIP))
    lost = session.model_copy(deep=True)
    event = said("Where?", state={"city": "Riga", "user:name": "Ada"})
    run(service.append_event(lost, event.model_copy(deep=True)))
    run(service.append_event(session, event))
    run(service.append_event(session, said("When?")))

    assert texts(session) == ["Where?", "When?"]
    assert trip_of(service).events == session.events


def test_state_is_that_of_the_branch(ledger: Ledger) -> None:
    """Whatever was set in whatever order, after each message the state is the fold of what was set before it."""
    source = random.Random(7)
    service, chat = LedgerSessionService(ledger), chat_id("guide", "ada", "trip")
    session = run(service.create_session(**TRIP, state={"start": True}))
    expected: dict[str, dict[str, Any]] = {}
    for number in range(150):
        changes = {source.choice("abcdef"): number} if source.random() < 0.7 else {}
        if source.random() < 0.05:
            ledger.append(chat, [user("from elsewhere")])
            session = trip_of(service)
        if expected and source.random() < 0.08:
            ledger.fork(chat, source.choice(list(expected)))
            session = trip_of(service)
        run(service.append_event(session, said(f"q{number}", state=changes)))
        expected[ledger.get_messages(chat, limit=1)[0].id] = dict(session.state)

    for message_id, state in expected.items():
        ledger.fork(chat, message_id)
        read = trip_of(service)
        assert read.state == state
    exported = ledger.export_chat(chat)
    last = trip_of(service)
    ledger.import_chat(exported, chat_id=chat_id("guide", "ada", "copy"))
    ledger.delete_chat(chat)
    copied = run(service.get_session(app_name="guide", user_id="ada", session_id="copy"))
    assert copied is not None
    assert copied.state == last.state, "also of a copy, whose messages have other ids"


def test_a_chat_that_something_else_wrote(ledger: Ledger) -> None:
    ledger.create_chat("trip", "ada")
    ledger.append("trip", [user("Where is the fado?"), assistant("In Alfama.")])
    service = LedgerSessionService(ledger, agent_name="guide")
    session = trip_of(service)

    assert texts(session) == ["Where is the fado?", "In Alfama."]
    assert [event.author for event in session.events] == ["user", "guide"]
    assert (session.id, session.state) == ("trip", {})
    assert run(service.get_session(app_name="guide", user_id="bob", session_id="trip")) is None
    with pytest.raises(AlreadyExistsError):
        run(service.create_session(**TRIP))
    run(service.append_event(session, said("And on Sundays?", state={"day": "Sunday"})))
    assert [message.text for message in ledger.get_messages("trip")][-1] == "And on Sundays?"
    listed = run(service.list_sessions(app_name="guide")).sessions
    assert [(one.id, one.state) for one in listed] == [("trip", {"day": "Sunday"})]
    ledger.annotate("trip", ledger.get_messages("trip")[1].id, hidden=True)
    assert texts(trip_of(service)) == ["Where is the fado?", "And on Sundays?"]
    run(service.delete_session(**TRIP))
    assert ledger.get_chat("trip") is None


def test_costs_do_not_grow(ledger: Ledger) -> None:
    """EventsToAppend, and the last events, cost as much in a session of 600 events as in one of 150."""
    service, chat = LedgerSessionService(ledger), chat_id("guide", "ada", "trip")
    counted: list[tuple[int, int]] = []
    run(service.create_session(**TRIP))
    for size in (150, 600):
        session = trip_of(service)
        while len(session.events) < size:
            new = [said(f"q{len(session.events) + place}", state={"n": place}) for place in range(50)]
            run(service.append_events(session, new))
        few = GetSessionConfig(num_recent_events=5)
        with counting() as reading:  # in this thread, as it counts
            session = service._read(ledger, "guide", "ada", "trip", few)
        assert len(texts(session)) == 5
        with counting() as appending:
            EventsToAppend(session, [said("one more", state={"n": -1})], on_stale="raise").carry_out(ledger, chat)
        counted.append((reading.total(), appending.total()))

    (few_read, few_append), (many_read, many_append) = counted
    assert many_read <= few_read * 1.2 + 10
    assert many_append <= few_append * 1.2 + 10


def test_one_user_only(ledger: Ledger) -> None:
    whole = LedgerSessionService(ledger)
    run(whole.create_session(**TRIP, state={"app:model": "small", "user:name": "Ada"}))
    run(whole.create_session(app_name="guide", user_id="bob", session_id="his"))
    hers = LedgerSessionService(ledger.for_user("ada"))
    session = trip_of(hers)

    assert session.state == {"user:name": "Ada"}
    assert [one.id for one in run(hers.list_sessions(app_name="guide")).sessions] == ["trip"]
    assert run(hers.get_session(app_name="guide", user_id="bob", session_id="his")) is None
    with pytest.raises(AccessDeniedError, match="app:model"):
        run(hers.append_event(session, said("Hello", state={"app:model": "large"})))
    assert trip_of(hers).events == []
    with pytest.raises(AccessDeniedError):
        run(hers.create_session(app_name="guide", user_id="bob", session_id="forged"))


def test_options() -> None:
    both = {"uri": "chatledger://x", "source": "memory:"}
    cases: list[dict[str, Any]] = [{}, both, {"uri": "sqlite:///x"}, {"source": 1}]
    for wrong in cases:
        with pytest.raises(ConfigurationError):
            LedgerSessionService(**wrong)
    with pytest.raises(ConfigurationError, match="on_stael"):
        LedgerSessionService("memory:", on_stael="branch")
    with pytest.raises(chatledger.InvalidValueError, match="on_stale"):
        LedgerSessionService(uri="chatledger://memory:?on_stale=never")


def test_it_is_registered_without_code(tmp_path: Path) -> None:
    """As `adk web --session_service_uri chatledger://...` does it."""
    services = "services:\n  - scheme: chatledger\n    type: session\n    class: chatledger.adapters.adk.LedgerSessionService\n"
    (tmp_path / "services.yaml").write_text(services)
    load_services_module(str(tmp_path))

    async def use(uri: str) -> list[str | None]:
        service = get_service_registry().create_session_service(uri, agents_dir=str(tmp_path))
        assert isinstance(service, LedgerSessionService)
        async with service:
            session = await service.get_session(**TRIP) or await service.create_session(**TRIP)
            await service.append_event(session, said("Hello"))
            return texts(await service.get_session(**TRIP))

    uri = f"chatledger://sqlite:///{tmp_path}/log.db?on_stale=rebase"
    assert run(use(uri)) == ["Hello"]
    assert run(use(uri)) == ["Hello", "Hello"]


class Parrot(BaseLlm):  # type: ignore[misc]  # ADK is not installed where types are checked
    """A model that says how much it was given."""

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:  # noqa: FBT001, FBT002 - ADK's
        text = f"{len(llm_request.contents)} contents"
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))


def test_a_runner_goes_on_with_any_chat(ledger: Ledger) -> None:
    ledger.create_chat("trip", "ada")
    ledger.append("trip", [user("Where is the fado?"), assistant("In Alfama.")])

    async def ask(question: str) -> list[str | None]:
        agent = LlmAgent(name="guide", model=Parrot(model="parrot"), output_key="last")
        service = LedgerSessionService(ledger, agent_name="guide")
        runner = Runner(app_name="guide", agent=agent, session_service=service)
        content = types.Content(role="user", parts=[types.Part(text=question)])
        answers = runner.run_async(user_id="ada", session_id="trip", new_message=content)
        return [part.text async for event in answers for part in event.content.parts]

    assert run(ask("And on Sundays?")) == ["3 contents"]
    assert run(ask("And in Porto?")) == ["5 contents"]
    assert [message.name for message in ledger.get_messages("trip")] == ["user", "assistant"] * 3
    assert trip_of(LedgerSessionService(ledger)).state == {"last": "5 contents"}


def test_what_json_cannot_say_comes_back(ledger: Ledger) -> None:
    """Half of an emoji and an integer beyond 64 bits, in what is said and in state, which notes cannot say; NaN is null to ADK itself."""
    odd = {"half": "\ud83d", "large": 2**70}
    service = LedgerSessionService(ledger)
    session = run(service.create_session(**TRIP))
    events = [said("\ud83d", state={f"n{place}": place, **odd}, custom_metadata=odd) for place in range(70)]
    run(service.append_events(session, events))
    read = trip_of(service)

    assert repr(read.state) == repr({"n0": 0, **odd} | {f"n{place}": place for place in range(1, 70)})
    assert repr([event.model_dump() for event in read.events]) == repr([event.model_dump() for event in session.events])

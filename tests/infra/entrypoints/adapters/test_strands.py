# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false
"""Sessions of Strands Agents on a ledger."""

from collections.abc import AsyncIterable, Iterator
from typing import Any

import pytest

pytest.importorskip("strands")

from strands import Agent
from strands.agent.conversation_manager import SlidingWindowConversationManager
from strands.session.repository_session_manager import RepositorySessionManager
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType
from tests.support.adapters.pages import run_page
from tests.support.adapters.strands import SilentModel
from tests.support.operation_counting import counting

import chatledger
from chatledger import Ledger, assistant, user
from chatledger.adapters.strands import LedgerSessionManager, LedgerSessionRepository, chat_id
from chatledger.testing import check_adapter_killed


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with chatledger.open("memory:") as opened:
        yield opened
        opened.verify()


@pytest.fixture
def repository(ledger: Ledger) -> LedgerSessionRepository:
    """A repository with a session `trip` and its agent `guide`."""
    made = LedgerSessionRepository(ledger)
    made.create_session(Session("trip", SessionType.AGENT))
    made.create_agent("trip", agent_of("guide"))
    return made


def agent_of(name: str, **state: Any) -> SessionAgent:
    return SessionAgent(agent_id=name, state=state, conversation_manager_state={})


def test_a_command_that_is_repeated_has_its_agent(ledger: Ledger) -> None:
    """The claim was carried out before: nobody decides on it again."""
    repository = LedgerSessionRepository(ledger)
    repository.create_session(Session("trip", SessionType.AGENT))
    for _ in range(2):
        with ledger.context(command_id="once"):
            repository.create_agent("trip", agent_of("guide"))

    assert [chat.id for chat in ledger.list_chats()] == ["trip"]
    assert read_agent(repository, "trip", "guide").agent_id == "guide"


def message_of(text: str, index: int, role: Any = "user") -> SessionMessage:
    return SessionMessage.from_message({"role": role, "content": [{"text": text}]}, index)


def read(repository: LedgerSessionRepository, session_id: str, agent_id: str, index: int) -> SessionMessage:
    found = repository.read_message(session_id, agent_id, index)
    assert found is not None
    return found


def read_agent(repository: LedgerSessionRepository, session_id: str, agent_id: str) -> SessionAgent:
    found = repository.read_agent(session_id, agent_id)
    assert found is not None
    return found


def owner_of(ledger: Ledger) -> str:
    chat = ledger.get_chat("trip")
    assert chat is not None
    return chat.user_id


def talk(ledger: Ledger, *questions: str, session_id: str = "trip", **options: Any) -> tuple[Agent, SilentModel]:
    """Ask an agent that was just restored."""
    model = SilentModel("In Alfama.")
    manager = LedgerSessionManager(session_id, ledger)
    agent = Agent(model=model, session_manager=manager, callback_handler=None, **options)
    for question in questions:
        agent(question)
    return agent, model


@pytest.mark.soak
def test_it_outlives_a_kill() -> None:
    check_adapter_killed("tests.support.adapters.strands:StrandsDriver", rounds=2)


def test_the_page() -> None:
    run_page("strands")


def test_an_agent_goes_on(ledger: Ledger) -> None:
    agent, _ = talk(ledger, "Where is the fado?")
    agent.state.set("city", "Lisbon")
    agent("And on Sundays?")
    again, model = talk(ledger, "And in Porto?")

    assert [told["role"] for told in model.given[0]] == ["user", "assistant"] * 2 + ["user"]
    assert again.messages[:4] == agent.messages, "as they were, with their tracking ids"
    assert again.state.get("city") == "Lisbon"
    stored = ledger.get_messages("trip")
    assert [message.text for message in stored][::2] == ["Where is the fado?", "And on Sundays?", "And in Porto?"]
    assert owner_of(ledger) == ""
    assert {hit.message.chat_id for hit in ledger.search("Porto")} == {"trip"}


def test_each_message_is_a_commit(repository: LedgerSessionRepository, ledger: Ledger) -> None:
    before = ledger.position
    repository.create_message("trip", "guide", message_of("one", 0))
    assert ledger.position == before + 1
    repository.create_messages("trip", "guide", [message_of("two", 1), message_of("three", 2)])
    assert ledger.position == before + 2


def test_messages_come_back_whole(repository: LedgerSessionRepository, ledger: Ledger) -> None:
    content: list[Any] = [
        {"text": "Look"},
        {"reasoningContent": {"reasoningText": {"text": "A photo.", "signature": "sig"}}},
        {"reasoningContent": {"redactedContent": b"\x00\x01"}},
        {"image": {"format": "png", "source": {"bytes": bytes(range(256))}}},
        {"document": {"format": "pdf", "name": "map", "source": {"bytes": b"%PDF"}}},
        {"toolUse": {"toolUseId": "t1", "name": "weather", "input": {"city": "Riga"}}},
        {"toolResult": {"toolUseId": "t0", "status": "error", "content": [{"text": "no"}, {"json": {"a": [1]}}]}},
        {"guardContent": {"text": {"text": "guarded", "qualifiers": ["query"]}}},
        {"cachePoint": {"type": "default"}},
        {"citationsContent": {"content": [{"text": "cited"}], "citations": []}},
    ]
    one = SessionMessage.from_message(
        {"role": "assistant", "content": content, "tracking_id": "x1", "metadata": {"custom": {"n": 1}}}, 0
    )
    repository.create_message("trip", "guide", one)

    assert repository.read_message("trip", "guide", 0) == one
    assert repository.list_messages("trip", "guide") == [one]
    (stored,) = ledger.get_messages("trip")
    assert (stored.form, stored.data) == ("strands", one.to_dict())
    assert stored.text == "Look\nguarded\ncited"
    kinds = [part["type"] for part in stored.parts]
    assert kinds.count("file") == 2
    assert "dynamic-tool" in kinds
    assert stored.created_at > 1_700_000_000_000


def test_what_json_cannot_say_comes_back(repository: LedgerSessionRepository) -> None:
    """Half of an emoji, an integer beyond 64 bits, no number, and keys that nobody knows."""
    odd = {"half": "\ud83d", "large": 2**70, "none": float("nan")}
    content: list[Any] = [{"text": "\ud83d", "x": odd}, {"newKind": {"a": [1]}}]
    one = SessionMessage.from_message({"role": "user", "content": content, "tracking_id": "x1"}, 0)
    repository.create_message("trip", "guide", one)

    assert repr(repository.list_messages("trip", "guide")) == repr([one])
    repository.create_message("trip", "guide", one)
    assert len(repository.list_messages("trip", "guide")) == 1


def test_pages(repository: LedgerSessionRepository) -> None:
    repository.create_messages("trip", "guide", [message_of(f"m{number}", number) for number in range(150)])

    def page(limit: int | None, offset: int = 0) -> list[int]:
        return [one.message_id for one in repository.list_messages("trip", "guide", limit, offset)]

    assert page(None) == list(range(150))
    assert page(3) == [0, 1, 2]
    assert page(3, 100) == [100, 101, 102]
    assert page(None, 148) == [148, 149]
    assert page(10, 148) == [148, 149]
    assert page(10, 150) == page(None, 1000) == page(0) == []
    assert read(repository, "trip", "guide", 77).message["content"] == [{"text": "m77"}]
    assert repository.read_message("trip", "guide", 150) is None


def test_costs_do_not_grow(repository: LedgerSessionRepository) -> None:
    """Adding a message, and a page, cost as much in a history of 800 messages as in one of 150."""
    counted: list[list[int]] = []
    size = 0
    for wanted in (150, 800):
        repository.create_messages("trip", "guide", [message_of(f"m{at}", at) for at in range(size, wanted)])
        with counting() as adding:
            repository.create_message("trip", "guide", message_of("one more", wanted))
        with counting() as first:
            assert len(repository.list_messages("trip", "guide", 5, 20)) == 5
        with counting() as last:
            assert len(repository.list_messages("trip", "guide", None, wanted - 5)) == 6
        counted.append([adding.total(), first.total(), last.total()])
        size = wanted + 1

    few, many = counted
    assert [] == [(one, other) for one, other in zip(few, many, strict=True) if other > one * 1.2 + 10]


def test_a_restart_is_cheap(ledger: Ledger) -> None:
    """It asks the index a few times, no server, and writes nothing."""
    talk(ledger, *(f"q{number}" for number in range(20)))
    before = ledger.position
    with counting() as counts:
        again, _ = talk(ledger)

    assert len(again.messages) == 40
    assert ledger.position == before
    assert counts["transaction"] <= 5


def test_a_repeated_message_is_one(repository: LedgerSessionRepository, ledger: Ledger) -> None:
    one = message_of("Where?", 0)
    repository.create_message("trip", "guide", one)
    before = ledger.position
    repository.create_message("trip", "guide", one)
    repository.create_message("trip", "guide", message_of("Where?", 0))

    assert ledger.position == before
    with pytest.raises(SessionException, match="Message 0 of agent guide in session trip"):
        repository.create_message("trip", "guide", message_of("When?", 0))
    repository.create_message("trip", "guide", message_of("Where?", 1))
    assert len(repository.list_messages("trip", "guide")) == 2


def test_two_writers(ledger: Ledger) -> None:
    """The second one is told, and its message is not stored."""
    talk(ledger, "Where?")
    one, _ = talk(ledger)
    other, _ = talk(ledger)
    one("When?")
    with pytest.raises(SessionException, match="Restore the agent"):
        other("How?")

    assert [message.text for message in ledger.get_messages("trip")] == ["Where?", "In Alfama.", "When?", "In Alfama."]


def test_redaction(ledger: Ledger) -> None:
    """The new text takes the place of the old one everywhere; the old one is there until the chat is deleted."""
    manager = LedgerSessionManager("trip", ledger)
    agent = Agent(model=SilentModel("Noted."), session_manager=manager, callback_handler=None)
    agent("My card is 4111.")
    manager._latest_agent_message["default"] = manager.read_message("trip", "default", 0)
    manager.redact_latest_message({"role": "user", "content": [{"text": "[removed]"}]}, agent)
    again, model = talk(ledger, "And now?")

    assert model.given[0][0]["content"] == [{"text": "[removed]"}]
    assert "4111" not in repr(again.messages)
    redacted = read(manager, "trip", "default", 0)
    assert redacted.message["content"] == [{"text": "My card is 4111."}]
    assert redacted.redact_message == {"role": "user", "content": [{"text": "[removed]"}]}
    assert ledger.search("4111") == []
    assert [hit.message.text for hit in ledger.search("removed")] == ["[removed]"]
    original = ledger.get_messages("trip")[0]
    assert original.text == "My card is 4111."
    assert original.annotation is not None
    stored = [repr(recorded.to_dict()) for recorded in ledger.history()]
    assert sum("4111" in text for text in stored) == 1
    manager.delete_session("trip")
    assert not any("4111" in repr(recorded.to_dict()) for recorded in ledger.history())


class Guarded(SilentModel):
    """A model whose guardrail redacts what it is asked."""

    async def stream(self, messages: Any, *arguments: Any, **options: Any) -> AsyncIterable[Any]:
        async for event in super().stream(messages, *arguments, **options):
            yield event
        yield {"redactContent": {"redactUserContentMessage": "[removed]"}}


def test_a_guardrail(ledger: Ledger) -> None:
    manager = LedgerSessionManager("trip", ledger)
    agent = Agent(model=Guarded("No."), session_manager=manager, callback_handler=None)
    agent("My card is 4111.")
    again, _ = talk(ledger)

    assert [told["content"] for told in again.messages] == [[{"text": "[removed]"}], [{"text": "No."}]]
    assert ledger.get_messages("trip")[0].text == "My card is 4111."


def test_a_message_is_updated_again(repository: LedgerSessionRepository) -> None:
    one = message_of("first", 0)
    repository.create_message("trip", "guide", one)
    for text in ("second", "third", "second"):
        changed = message_of(text, 0)
        repository.update_message("trip", "guide", changed)
        assert read(repository, "trip", "guide", 0).message == changed.message
        assert changed.created_at == one.created_at
    with pytest.raises(SessionException):
        repository.update_message("trip", "guide", message_of("x", 9))


def test_branches(ledger: Ledger) -> None:
    talk(ledger, "Where?", "When?")
    first = ledger.get_messages("trip")[1]
    ledger.fork("trip", first.id)
    agent, _ = talk(ledger, "How?")

    assert [told["content"][0]["text"] for told in agent.messages] == ["Where?", "In Alfama.", "How?", "In Alfama."]
    assert [message.text for message in ledger.get_messages("trip", branch="main")][2] == "When?"


def test_the_same_words_on_another_branch(repository: LedgerSessionRepository, ledger: Ledger) -> None:
    repository.create_messages("trip", "guide", [message_of("Where?", 0), message_of("There.", 1, "assistant")])
    ledger.fork("trip", ledger.get_messages("trip")[0].id)
    repository.create_message("trip", "guide", message_of("There.", 1, "assistant"))

    assert len(repository.list_messages("trip", "guide")) == 2
    assert (
        len({message.id for branch in ("main", "main-v2") for message in ledger.get_messages("trip", branch=branch)})
        == 3
    )


def test_a_window_of_the_history(ledger: Ledger) -> None:
    """An offset of the conversation manager leaves out what it has removed."""
    window = SlidingWindowConversationManager(window_size=4)
    talk(ledger, *(f"q{number}" for number in range(5)), conversation_manager=window)
    again, _ = talk(ledger, conversation_manager=SlidingWindowConversationManager(window_size=4))

    assert [told["content"][0]["text"] for told in again.messages] == ["q3", "In Alfama.", "q4", "In Alfama."]
    assert len(ledger.get_messages("trip")) == 10


def test_a_chat_that_something_else_wrote(ledger: Ledger) -> None:
    ledger.create_chat("trip", "ada")
    call = {"type": "dynamic-tool", "toolName": "find", "toolCallId": "t1", "state": "output-available"}
    answer: dict[str, Any] = {
        "id": "a",
        "role": "assistant",
        "parts": [call | {"input": {"q": "fado"}, "output": "Alfama"}],
    }
    answer["parts"].append({"type": "text", "text": "In Alfama."})
    ledger.append("trip", [user("Where is the fado?"), assistant(answer)])
    agent, model = talk(ledger, "And on Sundays?")

    assert [list(told["content"][0]) for told in model.given[0]] == [
        ["text"],
        ["toolUse"],
        ["toolResult"],
        ["text"],
        ["text"],
    ]
    assert [told["role"] for told in agent.messages] == ["user", "assistant"] * 3
    again, _ = talk(ledger, "And in Porto?")
    assert again.messages[:6] == agent.messages
    assert [message.name for message in ledger.get_messages("trip")] == ["user", "assistant"] * 3
    assert owner_of(ledger) == "ada"


def test_several_agents(repository: LedgerSessionRepository, ledger: Ledger) -> None:
    repository.create_agent("trip", agent_of("critic/2", mood="grim"))
    repository.create_message("trip", "guide", message_of("Where?", 0))
    repository.create_message("trip", "critic/2", message_of("Why?", 0))
    repository.update_agent("trip", agent_of("critic/2", mood="mild"))

    assert read_agent(repository, "trip", "critic/2").state == {"mood": "mild"}
    assert repository.read_agent("trip", "nobody") is None
    assert [one.message["content"][0]["text"] for one in repository.list_messages("trip", "critic/2")] == ["Why?"]
    assert chat_id("trip", "critic/2") == "strands/trip/critic%2F2"
    assert [message.text for message in ledger.get_messages(chat_id("trip"))] == ["Where?"]
    with pytest.raises(SessionException):
        repository.update_agent("trip", agent_of("nobody"))
    with pytest.raises(SessionException):
        repository.list_messages("trip", "nobody")
    repository.delete_session("trip")
    assert ledger.list_chats() == []
    with pytest.raises(SessionException, match="does not exist"):
        repository.delete_session("trip")


class Swarm:
    """A multi-agent system, as far as a session keeps it."""

    id = "swarm"

    def __init__(self, **state: Any) -> None:
        self.state = state

    def serialize_state(self) -> dict[str, Any]:
        return {"type": "swarm", **self.state}


def test_multi_agents(repository: LedgerSessionRepository, ledger: Ledger) -> None:
    assert repository.read_multi_agent("trip", "swarm") is None
    with pytest.raises(SessionException):
        repository.update_multi_agent("trip", Swarm())
    repository.create_multi_agent("trip", Swarm(step=1))
    before = ledger.position
    repository.update_multi_agent("trip", Swarm(step=2, results={"long": "x" * 1_000_000}))

    assert (repository.read_multi_agent("trip", "swarm") or {})["step"] == 2
    with ledger.as_of(before) as then:
        (state,) = then.get_messages("strands-multi-agent/trip/swarm")
    assert state.data["state"] == {"type": "swarm", "step": 1}


def test_one_user_only(ledger: Ledger) -> None:
    talk(ledger.for_user("ada"), "Where?")
    bobs = LedgerSessionRepository(ledger.for_user("bob"))

    assert owner_of(ledger) == "ada"
    assert bobs.read_session("trip") is None
    with pytest.raises(SessionException, match="already exists"):
        bobs.create_session(Session("trip", SessionType.AGENT))
    with pytest.raises(SessionException):
        bobs.delete_session("trip")


def test_a_repository_is_one_of_strands(repository: LedgerSessionRepository) -> None:
    manager = RepositorySessionManager("other", repository)
    agent = Agent(model=SilentModel("Yes."), session_manager=manager, callback_handler=None, agent_id="guide")
    agent("Well?")

    assert [one.message["role"] for one in repository.list_messages("other", "guide")] == ["user", "assistant"]

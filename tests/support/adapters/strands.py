# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false, reportCallIssue=false
# A type checker takes `strands` for this module, as Strands is not installed where types are checked.
"""The session manager of Strands Agents, as the checks of adapters drive it."""

import contextlib
from collections.abc import AsyncIterable, Mapping, Sequence
from typing import Any

from strands import Agent
from strands.models.model import Model
from strands.types.exceptions import SessionException
from strands.types.session import SessionAgent, SessionMessage

from chatledger import AsyncLedger, Ledger
from chatledger.adapters.strands import LedgerSessionManager, chat_id
from chatledger.testing import Turn


class SilentModel(Model):  # type: ignore[misc]  # Strands is not installed where types are checked
    """A model that gives the same answer to everything, and notes what it is given."""

    def __init__(self, answer: str = "") -> None:
        self.answer = answer
        self.given: list[Any] = []

    def update_config(self, **model_config: Any) -> None:
        pass

    def get_config(self) -> dict[str, Any]:
        return {}

    async def structured_output(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError
        yield {}

    async def stream(self, messages: Any, *arguments: Any, **options: Any) -> AsyncIterable[Any]:
        self.given.append(list(messages))
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": self.answer}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


class StrandsDriver:
    """One agent in each session. Its history is restored as Strands does it, and added to by what the manager calls."""

    name = "strands"
    form = "strands"
    losses: Mapping[str, str] = {"unknown fields": "its dataclass has none"}
    notes_saves = False
    conflicts: tuple[type[Exception], ...] = (SessionException,)

    def chat_id(self, conversation_id: str) -> str:
        return chat_id(conversation_id)

    async def write(
        self, ledger: Ledger | AsyncLedger, conversation_id: str, turns: Sequence[Turn], *, key: str
    ) -> None:
        manager = LedgerSessionManager(conversation_id, ledger)
        agent = Agent(model=SilentModel(), session_manager=manager, callback_handler=None)
        known = {told.get("tracking_id"): place for place, told in enumerate(agent.messages)}
        begin = known.get(f"{key}-0", len(agent.messages))  # a call that is repeated has the same arguments
        new = [
            SessionMessage.from_message(
                {"role": turn.role, "content": [{"text": turn.text}], "tracking_id": f"{key}-{place}"}, begin + place
            )
            for place, turn in enumerate(turns)
        ]
        manager.create_messages(conversation_id, agent.agent_id, new)

    async def read(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Turn]:
        opened = ledger if isinstance(ledger, Ledger) else ledger.blocking()
        if opened.get_chat(conversation_id) is None:  # a manager would make the session
            return []
        manager = LedgerSessionManager(conversation_id, ledger)
        agent = Agent(model=SilentModel(), session_manager=manager, callback_handler=None)
        return [
            Turn(told["role"], "".join(part.get("text", "") for part in told["content"])) for told in agent.messages
        ]

    def message_with(self, value: Any) -> dict[str, Any]:
        call = {"toolUse": {"toolUseId": "t1", "name": "about", "input": {"value": value}}}
        message = {"role": "assistant", "content": [call], "tracking_id": "a"}
        return dict(SessionMessage.from_message(message, 0).to_dict())

    async def save_values(self, ledger: Ledger | AsyncLedger, conversation_id: str, values: Sequence[Any]) -> None:
        manager = LedgerSessionManager(conversation_id, ledger)
        agent = SessionAgent(agent_id="guide", state={}, conversation_manager_state={})
        if manager.read_agent(conversation_id, "guide") is None:
            manager.create_agent(conversation_id, agent)
        manager.create_messages(conversation_id, "guide", [SessionMessage.from_dict(value) for value in values])

    async def load_values(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Any]:
        told = LedgerSessionManager(conversation_id, ledger).list_messages(conversation_id, "guide")
        return [one.to_dict() for one in told]

    async def delete(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> None:
        opened = ledger if isinstance(ledger, Ledger) else ledger.blocking()
        if opened.get_chat(conversation_id) is None:
            return
        with contextlib.suppress(SessionException):
            LedgerSessionManager(conversation_id, ledger).delete_session(conversation_id)

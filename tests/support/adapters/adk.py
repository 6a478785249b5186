# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false
"""The session service of Google's ADK, as the checks of adapters drive it."""

from collections.abc import Mapping, Sequence
from typing import Any

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events import Event
from google.genai.types import Content, FunctionCall, Part

from chatledger import AsyncLedger, Ledger
from chatledger.adapters.adk import LedgerSessionService, chat_id
from chatledger.testing import Turn

APP = "guide"


class AdkDriver:
    """Sessions of one app, whose user is that of the ledger, or nobody."""

    name = "adk"
    form = "adk"
    losses: Mapping[str, str] = {"unknown fields": "its models ignore them", "NaN": "it writes null"}
    notes_saves = False
    conflicts: tuple[type[Exception], ...] = (StaleSessionError, AlreadyExistsError)

    def __init__(self) -> None:
        self._user_id = ""

    def chat_id(self, conversation_id: str) -> str:
        return chat_id(APP, self._user_id, conversation_id)

    async def write(
        self, ledger: Ledger | AsyncLedger, conversation_id: str, turns: Sequence[Turn], *, key: str
    ) -> None:
        service, self._user_id = LedgerSessionService(ledger), _user_of(ledger)
        names: dict[str, Any] = {"app_name": APP, "user_id": self._user_id, "session_id": conversation_id}
        session = await service.get_session(**names) or await service.create_session(**names)
        await service.append_events(session, [_event(turn, key, place) for place, turn in enumerate(turns)])

    async def read(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Turn]:
        service = LedgerSessionService(ledger)
        session = await service.get_session(app_name=APP, user_id=_user_of(ledger), session_id=conversation_id)
        return [] if session is None else [_turn(event) for event in session.events]

    def message_with(self, value: Any) -> dict[str, Any]:
        call = Part(function_call=FunctionCall(id="call_1", name="about", args={"value": value}))
        content = Content(role="model", parts=[call])
        return _value_of(Event(id="e1", invocation_id="i1", author=APP, content=content, timestamp=1_800_000_000.25))

    async def save_values(self, ledger: Ledger | AsyncLedger, conversation_id: str, values: Sequence[Any]) -> None:
        service, self._user_id = LedgerSessionService(ledger), _user_of(ledger)
        names: dict[str, Any] = {"app_name": APP, "user_id": self._user_id, "session_id": conversation_id}
        session = await service.get_session(**names) or await service.create_session(**names)
        await service.append_events(session, [Event.model_validate(value) for value in values])

    async def load_values(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> list[Any]:
        service = LedgerSessionService(ledger)
        session = await service.get_session(app_name=APP, user_id=_user_of(ledger), session_id=conversation_id)
        return [] if session is None else [_value_of(event) for event in session.events]

    async def delete(self, ledger: Ledger | AsyncLedger, conversation_id: str) -> None:
        service = LedgerSessionService(ledger)
        await service.delete_session(app_name=APP, user_id=_user_of(ledger), session_id=conversation_id)


def _value_of(event: Event) -> dict[str, Any]:
    return dict(event.model_dump(mode="json", by_alias=True, exclude_none=True))


def _user_of(ledger: Ledger | AsyncLedger) -> str:
    return getattr(ledger, "user_id", None) or ""


def _event(turn: Turn, key: str, place: int) -> Event:
    is_user = turn.role == "user"
    return Event(
        id=f"{key}-{place}",
        invocation_id=key,
        author="user" if is_user else APP,
        content=Content(role="user" if is_user else "model", parts=[Part(text=turn.text)]),
        timestamp=1_800_000_000.25,
    )


def _turn(event: Event) -> Turn:
    assert event.content is not None
    text = "".join(part.text or "" for part in event.content.parts or [])
    return Turn("user" if event.author == "user" else "assistant", text)

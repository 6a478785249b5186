"""Items of ChatKit, which are messages as they came; and items of what something else wrote."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from chatkit.types import (
    AssistantMessageContent,
    AssistantMessageItem,
    CustomTask,
    InferenceOptions,
    SDKHiddenContextItem,
    ThoughtTask,
    ThreadItem,
    UserMessageItem,
    UserMessageTextContent,
    Workflow,
    WorkflowItem,
)
from pydantic import TypeAdapter

from chatledger.domain.forms.chatkit import NAME
from chatledger.domain.forms.items import ASSISTANT, SYSTEM, TOOL, Call, Reasoning, Refusal, Result, Text
from chatledger.domain.forms.reading import items_of as read
from chatledger.domain.forms.reading import role_of
from chatledger.domain.forms.writing import result_text
from chatledger.domain.values import Message, NewMessage

from ....ledger.drafts import new_id
from ....ledger.history import Standing
from ..access import NO_ID, utc, with_floats

_items: Final[TypeAdapter[list[ThreadItem]]] = TypeAdapter(list[ThreadItem])


def ms_of(time: datetime) -> int:
    """Return a time in ms since the epoch; one without a zone is local."""
    return round(time.timestamp() * 1000)


def item_id(thread_id: str, message_id: str) -> str:
    """Return the id of the item that a message is."""
    return message_id.removeprefix(f"{thread_id}:") or message_id


def message_ids(thread_id: str, sought: str) -> tuple[str, str]:
    """Return the ids that the message of an item may have: of an item that ChatKit made, and of one made by something else."""
    return f"{thread_id}:{sought}", sought


def draft_of(thread_id: str, item: ThreadItem) -> NewMessage:
    """Return the message to store in a thread. Raises `InvalidValueError` for what JSON does not know."""
    own = item.id if item.id not in {"", NO_ID} else new_id()
    value = with_floats(item.model_dump(mode="json"), item.model_dump())
    role = role_of(NAME, value, ASSISTANT)
    return NewMessage(role, value, NAME, id=f"{thread_id}:{own}", created_at=ms_of(item.created_at))


def items_of(thread_id: str, standings: Sequence[Standing]) -> list[ThreadItem]:
    """Return the items for messages of a thread: for those that stand in the place of others, whose ids they have."""
    return _items.validate_python([_value_of(thread_id, standing) for standing in standings])


def _value_of(thread_id: str, standing: Standing) -> Any:
    base, stands = standing
    names = {"id": item_id(thread_id, base.id), "thread_id": thread_id}
    if stands.form != NAME:
        return _made_of(stands, {**names, "created_at": utc(base.created_at)})
    value: dict[str, Any] = stands.data
    # Items of models without ids share one, and what stands in the place of another is known by that one's id.
    return value if base.id == f"{thread_id}:{value.get('id')}" else {**value, **names}


def _made_of(message: Message, names: dict[str, Any]) -> ThreadItem:
    """The item for a message that something else than ChatKit wrote: its text or, where an assistant said none, what it did."""
    role = role_of(message.form, message.data, message.name)
    whats = [item.what for item in read(message.form, message.data, message.name)]
    texts = [what.text for what in whats if isinstance(what, Text | Refusal)]
    results = [what for what in whats if isinstance(what, Result)]
    if role == ASSISTANT:
        outcomes = {result.call_id: result_text(result) for result in results}
        tasks = [
            ThoughtTask(content=what.text)
            if isinstance(what, Reasoning)
            else CustomTask(title=what.name, content=outcomes.get(what.id))
            for what in whats
            if isinstance(what, Call) or (isinstance(what, Reasoning) and what.text)
        ]
        if tasks and not texts:
            return WorkflowItem(workflow=Workflow(type="custom", tasks=list(tasks)), **names)
        return AssistantMessageItem(content=[AssistantMessageContent(text=text) for text in texts], **names)
    if role in {SYSTEM, TOOL, "developer"}:
        return SDKHiddenContextItem(content="\n".join(texts or map(result_text, results)), **names)
    content = [UserMessageTextContent(text=text) for text in texts]
    return UserMessageItem(content=list(content), inference_options=InferenceOptions(), **names)

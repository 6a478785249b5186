"""Items of ChatKit: each kept as it was given, beside the UIMessage that all others read; and made of UIMessages."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast

from chatkit.types import (
    AssistantMessageContent,
    AssistantMessageItem,
    ClientToolCallItem,
    CustomTask,
    GeneratedImageItem,
    HiddenContextItem,
    InferenceOptions,
    SDKHiddenContextItem,
    StructuredInputItem,
    Task,
    TaskItem,
    ThoughtTask,
    ThreadItem,
    UserMessageItem,
    UserMessageTextContent,
    WidgetItem,
    Workflow,
    WorkflowItem,
)
from pydantic import TypeAdapter

from chatledger.domain.context.formats.parts import call_part, is_tool_part, outcome_of, tool_name
from chatledger.domain.context.formats.plain import SYSTEM, compact, text_at
from chatledger.domain.context.formats.stored import as_ui_message
from chatledger.domain.context.messages import ASSISTANT, USER, UIMessage
from chatledger.domain.context.native import native_message, native_of
from chatledger.domain.values import Message, NewMessage

from ....ledger.drafts import new_id
from ..histories import Draft

FORM: Final = "chatkit"
NO_ID: Final = "__fake_id__"
"""The id that OpenAI's Agents SDK gives to items of models whose API has no ids; all of them have the same."""
_item: Final[TypeAdapter[ThreadItem]] = TypeAdapter(ThreadItem)


def time_of(at_ms: int) -> datetime:
    """Return a time in ms since the epoch as ChatKit has it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def ms_of(time: datetime) -> int:
    """Return a time in ms since the epoch; one without a zone is local."""
    return round(time.timestamp() * 1000)


def item_id(thread_id: str, message_id: str) -> str:
    """Return the id of the item that a message is."""
    return message_id.removeprefix(f"{thread_id}:") or message_id


def message_ids(thread_id: str, sought: str) -> tuple[str, str]:
    """Return the ids that the message of an item may have: of an item that ChatKit made, and of one made by something else."""
    return f"{thread_id}:{sought}", sought


def draft_of(thread_id: str, item: ThreadItem) -> Draft:
    """
    Return the message to store in a thread.

    Raises:
        InvalidValueError: There is something in it that JSON does not know.
    """
    own = item.id if item.id not in {"", NO_ID} else new_id()
    return Draft(message_of(item, f"{thread_id}:{own}"), has_own_id=own == item.id)


def message_of(item: ThreadItem, message_id: str) -> NewMessage:
    """Return the message to store for an item under an id."""
    role, parts = _said_by(item)
    value = _item.dump_python(item, mode="json")
    return native_message(FORM, value, id=message_id, role=role, parts=parts, created_at=ms_of(item.created_at))


def item_of(thread_id: str, base: Message, stands: Message) -> ThreadItem:
    """Return the item for a message of a thread: for the one that stands in the place of `base`, whose id it has."""
    names = {"id": item_id(thread_id, base.id), "thread_id": thread_id}
    value = native_of(stands, FORM)
    if value is not None:
        is_its_own = base.id == f"{thread_id}:{value.get('id')}"
        return _item.validate_python(value if is_its_own else {**value, **names})
    made = {**names, "created_at": time_of(base.created_at)}
    return _made_of(as_ui_message(stands.name, stands.data, stands.form), made)


def _said_by(item: ThreadItem) -> tuple[str, list[dict[str, Any]]]:
    """The role of the speaker, and what is said as parts of a UIMessage."""
    match item:
        case UserMessageItem():
            quoted = [] if item.quoted_text is None else [_text("> " + item.quoted_text.replace("\n", "\n> "))]
            files = [
                {"type": "data-chatkit-attachment", "data": file.model_dump(mode="json")} for file in item.attachments
            ]
            return USER, [*quoted, *(_text(content.text) for content in item.content), *files]
        case AssistantMessageItem():
            return ASSISTANT, [_text(content.text) for content in item.content]
        case ClientToolCallItem():
            part = call_part(item.name, item.call_id, item.arguments)
            done = {"state": "output-available", "output": item.output} if item.status == "completed" else {}
            return ASSISTANT, [{**part, **done}]
        case WidgetItem():
            return ASSISTANT, [_text(item.copy_text)] if item.copy_text else []
        case GeneratedImageItem():
            image = item.image
            return ASSISTANT, [] if image is None else [{"type": "file", "mediaType": "image/*", "url": image.url}]
        case StructuredInputItem():
            asked = [[one.question, *([] if one.answer is None else one.answer.values)] for one in item.inputs]
            return ASSISTANT, [_text("\n".join(lines)) for lines in asked]
        case WorkflowItem():
            return ASSISTANT, _thoughts(item.workflow.tasks)
        case TaskItem():
            return ASSISTANT, _thoughts([item.task])
        case HiddenContextItem() | SDKHiddenContextItem():
            told: Any = item.content
            return SYSTEM, [_text(told if isinstance(told, str) else compact(told))]
        case _:  # a mark at the end of a turn
            return ASSISTANT, []


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _thoughts(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """Reasoning parts with the texts of tasks."""
    said = ["\n".join(filter(None, (task.title, getattr(task, "content", None)))) for task in tasks]
    return [{"type": "reasoning", "text": text} for text in said if text]


def _made_of(stored: UIMessage, names: Mapping[str, Any]) -> ThreadItem:
    """The item for a message that something else than ChatKit wrote: its text or, where an assistant said none, what it did."""
    role = stored["role"]
    parts = [cast("Mapping[str, Any]", part) for part in stored["parts"] if isinstance(part, Mapping)]
    texts = [text for part in parts if part.get("type") == "text" and (text := text_at(part, "text")) is not None]
    if role == ASSISTANT:
        tasks = [task for part in parts if (task := _task_of(part)) is not None]
        if tasks and not texts:
            return WorkflowItem(workflow=Workflow(type="custom", tasks=tasks), **names)
        return AssistantMessageItem(content=[AssistantMessageContent(text=text) for text in texts], **names)
    if role in {SYSTEM, "developer", "tool"}:
        told = texts or [outcome.text for part in parts if is_tool_part(part) and (outcome := outcome_of(part))]
        return SDKHiddenContextItem(content="\n".join(told), **names)
    content = [UserMessageTextContent(text=text) for text in texts]
    return UserMessageItem(content=list(content), inference_options=InferenceOptions(), **names)


def _task_of(part: Mapping[str, Any]) -> Task | None:
    """The task for something that an assistant did; None for what it said."""
    text = text_at(part, "text")
    if part.get("type") == "reasoning" and text:
        return ThoughtTask(content=text)
    if not is_tool_part(part):
        return None
    outcome = outcome_of(part)
    return CustomTask(title=tool_name(part), content=None if outcome is None else outcome.text)

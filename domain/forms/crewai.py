r"""
States of CrewAI's flows, and checkpoints of its crews: what a search finds of them.

    {"method": "draft", "state": {"id": "...", "text": "A draft"}, "pending": null}
    {"checkpoint": "{\"trigger\": ...}", "branch": "main", "parent_id": null}

A checkpoint is the JSON text that CrewAI gives and wants back.
"""

from typing import Any, Final

from .items import FormItem, Text
from .model import Form, any_json
from .plain import list_at, object_at, parsed, text_at

NAME: Final = "crewai"
CHECKPOINT: Final = "checkpoint"
STATE: Final = "state"


def read(data: Any, name: str, source: Any) -> list[FormItem]:
    fields = object_at(data)
    if (state := text_at(fields, CHECKPOINT)) is not None:
        checkpoint = object_at(parsed(state)[0])
        tasks = [task for entity in list_at(checkpoint, "entities") for task in list_at(object_at(entity), "tasks")]
        done = [output for task in tasks if (output := object_at(task, "output"))]
        last = done[-1] if done else {}
        # The event that it was made for, and the result of the last task that has one.
        lines = [checkpoint.get("trigger"), last.get("name") or last.get("description"), last.get("raw")]
        text = "\n".join(str(line) for line in lines if line)
    elif STATE in fields:
        texts = [value for key, value in object_at(fields, STATE).items() if isinstance(value, str) and key != "id"]
        text = "\n".join(filter(None, [text_at(fields, "method"), *texts]))
    else:
        return any_json(data, name, source)
    return [FormItem(name, Text(text), source)] if text else []


FORM: Final = Form(name=NAME, read=read)

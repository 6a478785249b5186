"""
Events of Google's ADK, as it writes them to JSON; ADK itself is not needed.

    {"id": "e1", "author": "guide", "timestamp": 1795521600.25, "content": {"role": "model", "parts": [
        {"functionCall": {"id": "adk-1", "name": "weather", "args": {"city": "Riga"}}}]}, "actions": {...}, ...}

The content is one of the Gemini API. Calls have ids, as ADK pairs by them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from . import google
from .items import ASSISTANT, USER, FormItem
from .model import Form
from .plain import object_at, text_at
from .writing import Sources, Writer, WrittenTurn, sources_of

NAME: Final = "adk"
_ROLES: Final = (USER, google.MODEL, "function")


def content_in(event: Any) -> Mapping[str, Any]:
    """Return the content of an event; its author says its role where it says none."""
    content = object_at(event, "content")
    if content.get("role") in _ROLES:
        return content
    return {**content, "role": USER if object_at(event).get("author") == USER else google.MODEL}


def read(data: Any, name: str, source: Any) -> list[FormItem]:
    return google.read({"parts": [], **content_in(data)}, name, source)


class AdkWriter(google.GoogleWriter):
    """Writes events: the calls of an answer in one, and all responses in the next. Their times, and the names of agents, are missing."""

    form = NAME

    def takes(self, turns: Sequence[WrittenTurn], sources: Sources) -> bool:  # noqa: ARG002
        """Whether models take them as they came."""
        for turn in turns:
            responses = sources_of(turn.results)
            # ADK pairs the calls of an event with the responses of one other (`_rearranger.py`).
            if turn.calls and (len(sources_of(turn.items)) > 1 or len(responses) > 1):
                return False
            if any(len(content_in(source.data)["parts"]) != len(turn.calls) for source in responses):
                return False
        return True

    def put(self, sources: Sources) -> None:
        """Give events as they came."""
        Writer.put(self, sources)
        self.ids.update(event_id for source in sources if (event_id := text_at(object_at(source.data), "id")))

    def write(self, turn: WrittenTurn) -> None:
        """Write a turn anew."""
        count = len(self.messages)
        super().write(turn)
        source = turn.items[0].source if turn.items else turn.calls[0].source
        for place, content in enumerate(self.messages[count:], count):
            is_users = content["role"] == USER and (turn.role != ASSISTANT or content["parts"] == [{"text": "Go on."}])
            self.messages[place] = {
                "id": self.free_id(source),
                "invocationId": source.id,
                "author": USER if is_users else google.MODEL,
                "content": content,
            }

    def _is_behind_user(self) -> bool:
        return bool(self.messages) and content_in(self.messages[-1])["role"] != google.MODEL


FORM: Final = Form(
    name=NAME,
    read=read,
    write=AdkWriter,
    rules=msgspec.structs.replace(google.FORM.rules, needs_ids=True),  # by which ADK pairs calls and responses
    blocks=google.NAME,
)

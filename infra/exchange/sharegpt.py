"""
ShareGPT files: a list, or JSONL, of `{"id": ..., "conversations": [{"from": "human", "value": "..."}, ...]}`.

`human` and `user` are `user`; `gpt` and the names of other models are `assistant`; `observation` and `function_response` are `tool`,
and what a `function_call` says is from the assistant. Any other `from` stays as it is. `system` beside the turns, as LLaMA-Factory has
it, is the first message. Whatever else a record says is kept in the metadata, under `record`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

from chatledger.domain.chat.import_tree import Reporter
from chatledger.domain.chat.interchange import ImportedChat
from chatledger.domain.context.messages import ui_message
from chatledger.domain.errors import InvalidValueError
from chatledger.domain.values import UI

from .linear import Dialect, read_linear

_ROLES: Final = {
    "human": "user",
    **dict.fromkeys(("gpt", "chatgpt", "bing", "bard", "claude", "model", "bot", "function_call"), "assistant"),
    **dict.fromkeys(("observation", "function_response"), "tool"),
}


def read_sharegpt(path: Path, report: Reporter) -> Iterator[ImportedChat]:
    """The conversations of a file, in its order."""
    return read_linear(path, report, _DIALECT)


def _convert(turn: Any, message_id: str) -> tuple[str, Any, str]:
    fields = cast("dict[str, Any]", turn) if isinstance(turn, dict) else {}
    speaker, text = fields.get("from"), fields.get("value")
    if not isinstance(speaker, str) or not isinstance(text, str):
        msg = "it has no text under 'from' and 'value'"
        raise InvalidValueError(msg)
    name = _ROLES.get(speaker, speaker)
    return name, ui_message(name, text, message_id), UI


_DIALECT: Final = Dialect("sharegpt", ("from",), _convert, ("from", "value"))

"""The content of a ChatGPT message as the parts of a UIMessage. No published schema exists, so nothing unknown is dropped."""

from collections.abc import Iterator
from typing import Any, cast

_DATA_TYPE = "data-chatgpt"


def make_parts(content: Any) -> list[dict[str, Any]]:
    """
    Text parts for what is text, and `{"type": "data-chatgpt", "data": ...}` with the original for everything else.

    - `text`, `multimodal_text` and other types with `parts`: neighbouring texts are joined by a line break, objects such as
      image pointers are kept in their place. The words of an `audio_transcription` are a text part before it.
    - types with a `text` (`code`, `execution_output`, `system_error`, `tether_quote`, `sonic_webpage`, ...): that text, then
      the other fields as data.
    - any other (`thoughts`, `reasoning_recap`, `user_editable_context`, `tether_browsing_display`, ...): data.
    """
    if not isinstance(content, dict):
        return [] if content is None else [_data(content)]
    fields = cast("dict[str, Any]", content)
    if isinstance(fields.get("parts"), list):
        made = list(_join_texts(cast("list[Any]", fields["parts"])))
        rest = {key: value for key, value in fields.items() if key not in {"content_type", "parts"}}
    elif isinstance(fields.get("text"), str):
        made = [_text(fields["text"])]
        rest = {key: value for key, value in fields.items() if key != "text"}
    else:
        made, rest = [], fields
    return [*made, _data(rest)] if rest else made


def _join_texts(parts: list[Any]) -> Iterator[dict[str, Any]]:
    texts: list[str] = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        if texts:
            yield _text("\n".join(texts))
            texts = []
        if isinstance(part, dict):
            words = cast("dict[str, Any]", part).get("text")
            if isinstance(words, str) and words:
                yield _text(words)
        yield _data(part)
    if texts:
        yield _text("\n".join(texts))


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _data(original: Any) -> dict[str, Any]:
    return {"type": _DATA_TYPE, "data": original}

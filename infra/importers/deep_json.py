"""JSON of any depth: every usual decoder recurses, and a tree file nests one level per reply."""

import json
import re
from typing import Any

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_CLOSING = {list: "]", dict: "}"}


def decode_deep(text: str) -> Any:
    """
    Decode a JSON text with a loop and a stack of open containers.

    Slower than the usual decoders by far, so it is meant for what they refuse. Raises ValueError when malformed.
    """
    result: list[Any] = []
    stack: list[tuple[list[Any] | dict[str, Any], str]] = [(result, "")]
    at = _skip(text, 0)
    while True:
        if text[at : at + 1] in {"[", "{"}:
            opened: list[Any] | dict[str, Any] = [] if text[at] == "[" else {}
            _put(stack[-1], opened)
            at = _skip(text, at + 1)
            if text[at : at + 1] != _CLOSING[type(opened)]:
                key, at = _read_key(text, at, opened)
                stack.append((opened, key))
                continue
            at += 1
        else:
            value, at = _DECODER.raw_decode(text, at)
            _put(stack[-1], value)
        at = _skip(text, at)
        while len(stack) > 1 and text[at : at + 1] == _CLOSING[type(stack[-1][0])]:
            stack.pop()
            at = _skip(text, at + 1)
        if len(stack) == 1:
            if at != len(text):
                raise _malformed(at)
            return result[0]
        if text[at : at + 1] != ",":
            raise _malformed(at)
        container = stack[-1][0]
        key, at = _read_key(text, _skip(text, at + 1), container)
        stack[-1] = (container, key)


def _put(place: tuple[list[Any] | dict[str, Any], str], value: Any) -> None:
    container, key = place
    if isinstance(container, dict):
        container[key] = value
    else:
        container.append(value)


def _read_key(text: str, at: int, container: list[Any] | dict[str, Any]) -> tuple[str, int]:
    if isinstance(container, list):
        return "", at
    if text[at : at + 1] != '"':
        raise _malformed(at)
    key, at = _DECODER.raw_decode(text, at)
    at = _skip(text, at)
    if text[at : at + 1] != ":":
        raise _malformed(at)
    return key, _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()


def _malformed(at: int) -> ValueError:
    return ValueError(f"JSON is malformed: unexpected character (character {at})")

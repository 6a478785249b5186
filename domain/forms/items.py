"""
The items that messages consist of in any form.

    {"role": "assistant", "content": "Let me see.", "tool_calls": [{"id": "call_1", "type": "function",
        "function": {"name": "weather", "arguments": '{"city":"Riga"}'}}]}

    FormItem("assistant", Text("Let me see."), ...)
    FormItem("assistant", Call("call_1", "weather", raw='{"city":"Riga"}'), ...)
"""

from typing import Any, Final, Protocol

import msgspec

from ..wire import Value

SYSTEM: Final = "system"
DEVELOPER: Final = "developer"
USER: Final = "user"
ASSISTANT: Final = "assistant"
TOOL: Final = "tool"


class Text(msgspec.Struct, frozen=True, gc=False):
    """Something said."""

    text: str


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """The words in which a model refused; text where an API has no refusals."""

    text: str


class Reasoning(msgspec.Struct, frozen=True, gc=False):
    """
    Thoughts of a model.

    Args:
        text: In plain text; may be empty.
        origin: The form of the API that can read `opaque`: `anthropic`, `responses` or `google`; None for plain text.
        opaque: What goes back to that API alone, in its own fields: `{"signature"}` or `{"data"}` of Anthropic, `{"id",
            "encrypted_content"}` of Responses, `{"thoughtSignature"}` of Gemini.
    """

    text: str
    origin: str | None = None
    opaque: dict[str, Any] | None = None


class File(msgspec.Struct, frozen=True, gc=False):
    """
    A file: its bytes in Base64, its URL, or its id at the provider `origin` (`openai`, `anthropic` or `google`).

    `media_type` may be a range, such as `image/*`, where the message does not say more. `copies` are ids at other providers.
    """

    media_type: str
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    name: str | None = None
    origin: str | None = None
    copies: dict[str, str] | None = None


class Call(msgspec.Struct, frozen=True, gc=False):
    """
    A call of a tool.

    Args:
        id: None where the message has none, as calls of Gemini.
        name: The tool.
        input: The arguments, parsed; unset where there is only `raw`.
        raw: The arguments as the model wrote them, for APIs that take text.
        origin: The form of the API that can read `opaque`.
        opaque: The signature of Gemini, which goes back to that API alone.
    """

    id: str | None
    name: str
    input: Any = msgspec.UNSET
    raw: str | None = None
    origin: str | None = None
    opaque: str | None = None


class Json(msgspec.Struct, frozen=True, gc=False):
    """A structured value in the result of a tool."""

    value: Any


class Own(msgspec.Struct, frozen=True, gc=False):
    """A block that only its own form has: server tools, citations, audio, parts for user interfaces."""

    origin: str
    block: Any


Words = Text | Refusal
Piece = Text | Json | File | Own


class Result(msgspec.Struct, frozen=True, gc=False):
    """
    The result of a call: text, or a list of `Text`, `Json`, `File` and `Own`.

    `call_id` is None where results are paired by name; `name` where the message does not say it.
    """

    call_id: str | None
    name: str | None
    content: str | list[Piece]
    is_error: bool = False


What = Text | Refusal | Reasoning | File | Call | Result | Own


class FormItem(msgspec.Struct, frozen=True, gc=False):
    """
    One thing in a message.

    Args:
        role: `system`, `developer`, `user`, `assistant`, `tool` for all results, or another speaker.
        what: The thing.
        source: The message that it is in; None when only data were read.
        native: Its block as it came, which goes back to its own form; None where it has no block of its own.
        name: The name of the participant, where the form has one.
    """

    role: str
    what: What
    source: Any = None
    native: Any = None
    name: str | None = None


REDACTED: Final = "[redacted]"
"""
The text in the place of what was taken away: of a secret that a pattern matched, and, for models, of a message of which nothing was
left, as providers refuse messages without content.
"""


class Source(Protocol):
    """A message as translation needs it: `Message` has these fields."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def name(self) -> str:
        """The role of a message whose form has none."""
        ...

    @property
    def form(self) -> str | None:
        """The name of its form; None for any JSON."""
        ...

    @property
    def data(self) -> Any:
        """The message as it came."""
        ...


class Dropped(Value, frozen=True):
    """
    Something that a translation left out.

    Args:
        message_id: The message that it was in.
        what: `reasoning`, `file`, `result`, `call`, `name`, or the kind of a block that only one form has.
        why: The reason, in words.
    """

    message_id: str
    what: str
    why: str

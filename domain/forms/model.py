"""
The items that messages consist of in any form, and the table that describes a form.

    {"role": "assistant", "content": "Let me see.", "tool_calls": [{"id": "call_1", "type": "function",
        "function": {"name": "weather", "arguments": '{"city":"Riga"}'}}]}

    Item("assistant", Text("Let me see."), ...)
    Item("assistant", Call("call_1", "weather", raw='{"city":"Riga"}'), ...)

A form has one reader, which gives these items; text, search fields, UIMessage parts and every other form are derived from them.
"""

# Values are any JSON, which `isinstance` narrows to objects of unknown values; casts would cost more than reading.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

import re
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import msgspec

from ..wire import Value
from .plain import base64_of, compact, media_type_of, object_at, parsed, text_at

if TYPE_CHECKING:
    from .writing import Writer

SYSTEM: Final = "system"
DEVELOPER: Final = "developer"
USER: Final = "user"
ASSISTANT: Final = "assistant"
TOOL: Final = "tool"


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


class Result(msgspec.Struct, frozen=True, gc=False):
    """
    The result of a call: text, or a list of `Text`, `Json`, `File` and `Own`.

    `call_id` is None where results are paired by name; `name` where the message does not say it.
    """

    call_id: str | None
    name: str | None
    content: str | list[Text | Json | File | Own]
    is_error: bool = False


What = Text | Refusal | Reasoning | File | Call | Result | Own


class Item(msgspec.Struct, frozen=True, gc=False):
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


Read = Callable[[Any, str, Any], list[Item]]
"""A reader: `(data, name, source) -> items`, for any JSON value; it does not raise. `name` is the role where the data have none."""


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


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """
    Rules of a form that `arrange` follows.

    Args:
        ids: Ids of calls that are allowed.
        names: Names of tools that are allowed.
        needs_ids: Whether each call needs one.
        blank: The texts that are left out: `empty`, `blank` (of nothing but white space), or `kept` for none.
    """

    ids: re.Pattern[str]
    names: re.Pattern[str]
    needs_ids: bool = True
    blank: str = "empty"


ANY: Final = re.compile(r".+", re.DOTALL)
TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The names of tools that all APIs allow, but for Gemini's, which wants no digit or dash at the beginning."""


FormName = Literal[
    "ui",
    "openai",
    "responses",
    "anthropic",
    "google",
    "langchain",
    "claude-code",
    "pydantic-ai",
    "llamaindex",
    "agent-framework",
    "strands",
    "adk",
]
"""The names of the forms that a chain can be told in, whatever is installed."""

SPEAKERS: Final = {"human": USER, "ai": ASSISTANT}
"""Other names that messages of a known role go by: LangChain's."""
_ROLES: Final = {**SPEAKERS, "chatbot": ASSISTANT, "model": ASSISTANT, "system": SYSTEM, "function": TOOL, "tool": TOOL}


def role_in(data: Any) -> str | None:
    """Return the role that the data of a message of nothing say in most forms; None where they say none."""
    fields = object_at(data)
    role = text_at(fields, "role") or text_at(object_at(fields, "data"), "role")
    return _ROLES.get(role, role) if role else _ROLES.get(text_at(fields, "type") or "")


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """
    A form of messages: how they are read, and how a chain is written in it.

    Args:
        name: What it is called, such as `openai`.
        read: The reader.
        write: The class of writers; None where nothing is translated into it.
        rules: For `arrange`.
        blocks: The form whose blocks its messages consist of, if it is another one's: they are given to that as they came.
        role: Finds the role of a message that has no items.
        unsaid: The name of messages that nobody said, if there are such.
        decode: Makes objects of a library of messages of this form, all at once; None where messages are JSON values.
    """

    name: str
    read: Read
    write: "type[Writer] | None" = None
    rules: Rules = Rules(ids=ANY, names=ANY)
    blocks: str | None = None
    role: Callable[[Any], str | None] = role_in
    unsaid: str = ""
    decode: Callable[[list[Any]], list[Any]] | None = None


NO_SIGNATURE: Final = b64encode(b"skip_thought_signature_validator").decode()
"""The documented signature of Gemini for calls that another model made: it refuses a step whose first call has none."""


def input_of(call: Call) -> Any:
    """Return the arguments of a call, parsed; what is no JSON as the text that it is."""
    if call.input is not msgspec.UNSET:
        return call.input
    return parsed(call.raw)[0] if call.raw else {}


def object_of(call: Call) -> dict[str, Any]:
    """Return the arguments of a call as an object; anything else under the key `input`."""
    value = input_of(call)
    return value if isinstance(value, dict) else {} if value is None else {"input": value}


def arguments_of(call: Call) -> str:
    """Return the arguments of a call as text: as the model wrote them, else as compact JSON."""
    if call.raw is not None:
        return call.raw
    if isinstance(call.input, str) and not parsed(call.input)[1]:
        return call.input  # what a model wrote that was no JSON, from a form that has no text for it
    return compact({} if call.input is None or call.input is msgspec.UNSET else call.input)


def result_text(result: Result) -> str:
    """Return the result of a tool as text: its texts by lines, values as compact JSON; files have none."""
    content = result.content
    if isinstance(content, str):
        return content
    return "\n".join(
        piece.text if isinstance(piece, Text) else compact(piece.value)
        for piece in content
        if isinstance(piece, Text | Json)
    )


def file_of(url: str, media_type: str, name: str | None = None) -> File:
    """Return the file at a URL, which may be a data URL; `media_type` counts where that does not say its own."""
    data = base64_of(url)
    if data is None:
        return File(media_type, url=url, name=name)
    return File(media_type_of(url) or media_type, data=data, name=name)


def id_at(file: File, provider: str) -> str | None:
    """Return the id of a file at a provider, if it was uploaded there."""
    if file.origin == provider:
        return file.file_id
    return None if file.copies is None else file.copies.get(provider)


def url_of(file: File) -> str | None:
    """Return the URL of a file, a data URL if its bytes are given; None of one that only its provider has."""
    return file.url if file.data is None else f"data:{file.media_type};base64,{file.data}"


class Formless(NamedTuple):
    """A message whose data are not as its form says; to a translation it is of no form."""

    id: str
    name: str
    form: None
    data: Any


def any_json(data: Any, name: str, source: Any) -> list[Item]:
    """Read data of no form: text by `name`, or compact JSON."""
    if data is None:
        return []
    if source is not None and source.form is not None:
        source = Formless(source.id, source.name, None, data)
    role = SPEAKERS.get(name, name)
    return [Item(role, Text(data if isinstance(data, str) else compact(data)), source)]

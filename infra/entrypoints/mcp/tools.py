"""Tools: a function and its arguments; the schema of both comes from its annotations."""

import inspect
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, get_type_hints

import msgspec

from chatledger.domain.errors import InvalidValueError

from ...ledger.ledger import Ledger

Time = Annotated[str, msgspec.Meta(description="A time in ISO 8601, e.g. 2026-03-01 or 2026-03-01T09:30:00Z; UTC.")]
ChatId = Annotated[str, msgspec.Meta(description="The id of a conversation.")]
MessageId = Annotated[str, msgspec.Meta(description="The id of a message.")]
BranchName = Annotated[str, msgspec.Meta(description="The name of a branch; the active one if left out.")]

_ARGUMENTS: Final = {
    "chat_id": "conversation",
    "message_id": "message",
    "user_id": "user",
    "name of message": "role of message",
}
"""The arguments of tools, by what the ledger calls them."""
_PARAMETERS: Final = re.compile(rf"\b(?:{'|'.join(_ARGUMENTS)})\b")


class Tool:
    """
    A function that an assistant may call.

    Its first parameter is the ledger of the caller, the others are its arguments. Its docstring is the description that the
    assistant reads, its return annotation the form of the answer.

    Args:
        call: The function.
        title: A name for people.
        is_writing: Whether it writes; such tools are served only where writing is allowed.
        is_idempotent: Whether calling it again with the same arguments changes nothing more.
        is_destructive: Whether it replaces something that was there.
    """

    def __init__(
        self,
        call: Callable[..., Any],
        title: str,
        *,
        is_writing: bool = False,
        is_idempotent: bool = True,
        is_destructive: bool = False,
    ) -> None:
        self.name, self.title, self._call = call.__name__, title, call
        self.is_writing, self.is_idempotent, self.is_destructive = is_writing, is_idempotent, is_destructive
        self.description = inspect.getdoc(call) or title
        hints = get_type_hints(call, include_extras=True)
        parameters = list(inspect.signature(call).parameters.values())[1:]
        fields = [
            (each.name, hints[each.name])
            if each.default is inspect.Parameter.empty
            else (each.name, hints[each.name], each.default)
            for each in parameters
        ]
        self._arguments = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        self.input_schema = schema_of(self._arguments)
        self.output_schema = schema_of(hints["return"])

    def answer(self, ledger: Ledger, arguments: Mapping[str, Any]) -> Any:
        """
        Call the function, in this thread.

        Raises:
            InvalidValueError: An argument is missing, unknown or of the wrong form, and nothing was called; or the ledger refuses it.
        """
        try:
            read = msgspec.convert(arguments, self._arguments, strict=False)
        except msgspec.ValidationError as error:
            msg = f"the arguments of {self.name} cannot be read: {error}"
            raise InvalidValueError(msg) from error
        try:
            return self._call(ledger, **msgspec.structs.asdict(read))
        except InvalidValueError as error:
            # The ledger names its own parameters, which an assistant does not have.
            words = _PARAMETERS.sub(lambda named: _ARGUMENTS[named[0]], str(error))
            raise InvalidValueError(words) from error


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a struct, with all it refers to inside, and an object at its root."""
    (root,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    name = root["$ref"].rpartition("/")[2]
    schema = {key: value for key, value in components.pop(name).items() if key != "title"}
    return schema | ({"$defs": components} if components else {})


def time_of(text: str, name: str) -> datetime:
    """
    Read a time in ISO 8601; in UTC unless it has an offset.

    Raises:
        InvalidValueError: It is none.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        msg = f"{name} is a time in ISO 8601, such as 2026-03-01 or 2026-03-01T09:30:00Z, not {text[:100]!r}"
        raise InvalidValueError(msg) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)

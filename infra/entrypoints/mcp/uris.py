"""URIs of resources: `chatledger://chats/{chat}`, and the branches, messages and checkpoints below it."""

from typing import Final, Literal, NamedTuple
from urllib.parse import quote, unquote

from chatledger.domain.errors import InvalidValueError

SCHEME: Final = "chatledger://chats/"

Part = Literal["branches", "messages", "checkpoints"]
_PARTS: Final[dict[str, Part]] = {"branches": "branches", "messages": "messages", "checkpoints": "checkpoints"}

TEMPLATES: Final = (
    ("conversation", SCHEME + "{chat}", "A conversation: what it is about, its branches and its newest messages."),
    ("branch", SCHEME + "{chat}/branches/{name}", "The newest messages of a branch."),
    ("message", SCHEME + "{chat}/messages/{message}", "A message with its whole text and data."),
    ("checkpoint", SCHEME + "{chat}/checkpoints/{name}", "The message that a checkpoint names, and those before it."),
)
"""Name, template and description of each kind of resource."""


class ResourceName(NamedTuple):
    """The thing that a URI names: a chat, or one of its branches, messages or checkpoints."""

    chat_id: str
    part: Part | None = None
    name: str = ""


def chat_uri(chat_id: str) -> str:
    """Return the URI of a chat."""
    return SCHEME + quote(chat_id, safe="")


def branch_uri(chat_id: str, name: str) -> str:
    """Return the URI of a branch."""
    return f"{chat_uri(chat_id)}/branches/{quote(name, safe='')}"


def message_uri(chat_id: str, message_id: str) -> str:
    """Return the URI of a message."""
    return f"{chat_uri(chat_id)}/messages/{quote(message_id, safe='')}"


def checkpoint_uri(chat_id: str, name: str) -> str:
    """Return the URI of a checkpoint."""
    return f"{chat_uri(chat_id)}/checkpoints/{quote(name, safe='')}"


def parse_uri(uri: str) -> ResourceName:
    """
    Read a URI.

    Raises:
        InvalidValueError: It is not one of the forms of `TEMPLATES`.
    """
    parts = uri.removeprefix(SCHEME).split("/") if uri.startswith(SCHEME) else []
    try:
        names = [unquote(part, errors="strict") for part in parts]
    except UnicodeDecodeError:
        names = []
    if len(names) == 1 and names[0]:
        return ResourceName(names[0])
    if len(names) == 3 and all(names) and names[1] in _PARTS:
        return ResourceName(names[0], _PARTS[names[1]], names[2])
    msg = f"{uri[:200]!r} names nothing here; the forms are {', '.join(template for _, template, _ in TEMPLATES)}"
    raise InvalidValueError(msg)

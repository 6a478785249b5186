"""
Namespaces: whose checkpoints those of a thread are.

An assistant has the namespace `assistant:<id>`, and what it calls has namespaces below it, after `|`. Storage takes any text
as a namespace and reads nothing out of it.
"""

from typing import Final

from ..errors import NamespaceError
from ..limits import check_id

ASSISTANT: Final = "assistant:"
_SEPARATOR: Final = "|"


def assistant_namespace(assistant_id: str, *parts: str) -> str:
    """
    The namespace of an assistant, or of a part below it: `assistant:<id>|<part>|<part>`.

    Raises:
        NamespaceError: The id or a part is empty, or contains `|`.
    """
    for part in (assistant_id, *parts):
        if not isinstance(part, str) or not part or _SEPARATOR in part:
            msg = f"assistant namespace parts must be text that is not empty and has no {_SEPARATOR!r}, not {part!r}"
            raise NamespaceError(msg)
    return check_id(_SEPARATOR.join((ASSISTANT + assistant_id, *parts)), "namespace")


def assistant_of(namespace: str) -> str | None:
    """
    The assistant that a namespace belongs to; None when it is no assistant's.

    Raises:
        NamespaceError: It begins as an assistant's, but has an empty part.
    """
    if not namespace.startswith(ASSISTANT):
        return None
    assistant, *parts = namespace.removeprefix(ASSISTANT).split(_SEPARATOR)
    if not assistant or not all(parts):
        msg = f"namespace {namespace!r} has an empty part; the form is assistant:<id>|<part>|<part>"
        raise NamespaceError(msg)
    return assistant


def root_of(namespace: str) -> str:
    """The namespace of the assistant that it belongs to; `""` when it is none's."""
    return namespace.partition(_SEPARATOR)[0] if namespace.startswith(ASSISTANT) else ""


def is_within(namespace: str, root: str) -> bool:
    """Whether a namespace is `root` or below it."""
    return namespace == root or namespace.startswith(root + _SEPARATOR)

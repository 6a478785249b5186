"""Annotations of messages, made after they were written."""

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from chatledger.domain.errors import ChatNotFoundError, MessageNotFoundError, WrongChatError
from chatledger.domain.values import Annotation
from chatledger.domain.wire import Value

from ..routing import HttpCall, Route
from .chats import get_chat


class AnnotationChange(msgspec.Struct, forbid_unknown_fields=True):
    """A change of the annotation of a message; what is left out stays. `metadata` is merged into what there is, `replace_metadata` takes its place."""

    stale: bool | UnsetType = UNSET
    replaced_by: str | UnsetType | None = UNSET
    hidden: bool | UnsetType = UNSET
    metadata: dict[str, Any] | None = None
    replace_metadata: dict[str, Any] | UnsetType | None = UNSET


class Annotated(Value, frozen=True):
    """A message that has an annotation."""

    message_id: str
    annotation: Annotation


def get_annotations(call: HttpCall, chat_id: str) -> list[Annotated]:
    """Read the annotations of a chat."""
    get_chat(call, chat_id)
    return [
        Annotated(message_id, annotation) for message_id, annotation in call.reader.get_annotations(chat_id).items()
    ]


def annotate(call: HttpCall, chat_id: str, message_id: str, body: AnnotationChange) -> Annotation:
    """Annotate a message: as stale, hidden or replaced, or with metadata of your application."""
    return call.ledger.annotate(
        chat_id,
        message_id,
        stale=body.stale,
        replaced_by=body.replaced_by,
        hidden=body.hidden,
        metadata=body.metadata,
        replace_metadata=body.replace_metadata,
    )


ROUTES: Final = [
    Route("GET", "/chats/{chat_id}/annotations", get_annotations, raises=[ChatNotFoundError]),
    Route(
        "PATCH",
        "/chats/{chat_id}/messages/{message_id}/annotation",
        annotate,
        raises=[ChatNotFoundError, MessageNotFoundError, WrongChatError],
    ),
]

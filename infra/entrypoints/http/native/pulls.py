"""Routes of the ledgers that pull from this one: heads of chats, how far each has come, and events as a bundle."""

from functools import partial
from tempfile import SpooledTemporaryFile
from typing import Annotated, Final, cast

import msgspec
from starlette.background import BackgroundTask
from starlette.responses import StreamingResponse

from chatledger.domain.wire import Value

from ....ledger.sync import IN_MEMORY, ChatStanding, LedgerSource
from ..routing import HttpCall, Route

BUNDLE: Final = "application/octet-stream"
_CHUNK: Final = 256 * 1024

Bundle = Annotated[str, msgspec.Meta(description="The bytes of a bundle, as `chatledger bundle verify` checks it.")]


class WantedChats(msgspec.Struct, forbid_unknown_fields=True):
    """The chats to compare; all without it."""

    chat_ids: list[str] | None = None


class ChatHead(Value, frozen=True):
    """The last event of a chat, with its hash in hexadecimal digits."""

    chat_id: str
    version: int
    hash: str


class ChatHeads(Value, frozen=True):
    """The last event of each chat; `identity` tells the log from others."""

    identity: str
    heads: list[ChatHead]


def list_heads(call: HttpCall, body: WantedChats) -> ChatHeads:
    """List where chats end, so that another ledger sees which differ."""
    source = LedgerSource(call.ledger)
    return ChatHeads(
        source.identity, [ChatHead(chat_id, *head) for chat_id, head in source.heads(body.chat_ids).items()]
    )


class WantedVersion(msgspec.Struct, forbid_unknown_fields=True):
    """A chat, and the version of the last event of it elsewhere."""

    chat_id: str
    version: int


def get_standing(call: HttpCall, body: WantedVersion) -> ChatStanding:
    """Say how far a chat has come here, and the hash of its event of that version."""
    return LedgerSource(call.ledger).standing(body.chat_id, body.version)


class KnownEvents(msgspec.Struct, forbid_unknown_fields=True):
    """Numbers of the events of each chat that the other ledger has."""

    known: dict[str, Annotated[int, msgspec.Meta(ge=0)]]


def make_bundle(call: HttpCall, body: KnownEvents) -> Bundle:
    """Send the further events of chats as a bundle, which proves itself; nothing where none of the chats has any."""
    file = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed after the answer
    try:
        LedgerSource(call.ledger).write_bundle(body.known, file)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    streamed = StreamingResponse(
        iter(partial(file.read, _CHUNK), b""), media_type=BUNDLE, background=BackgroundTask(file.close)
    )
    return cast("str", streamed)  # for the reference, which says what is in it


ROUTES: Final = {
    "pulls": [
        Route("POST", "/pulls/heads", list_heads, scope="read"),
        Route("POST", "/pulls/standing", get_standing, scope="read"),
        Route("POST", "/pulls/bundle", make_bundle, scope="read", media_type=BUNDLE),
    ]
}

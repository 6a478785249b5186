"""Routes of the ledgers that pull from this one and push to it: heads of chats, how far each has come, and events as a bundle."""

from functools import partial
from io import BytesIO
from tempfile import SpooledTemporaryFile
from typing import Annotated, Final, cast

import msgspec
from starlette.background import BackgroundTask
from starlette.responses import StreamingResponse

from chatledger.domain.errors import ChatNotFoundError, MessageNotFoundError, PayloadTooLargeError
from chatledger.domain.limits import sought_id
from chatledger.domain.wire import Value

from ....exchange.tails import ChatTail, read_tail, written_tail
from ....ledger.peers import ChatStanding, HeadSums, LedgerPeer, Place, PulledChat, Settlement, TakenChat
from ....ledger.sync import EVENTS_TOGETHER, IN_MEMORY
from ..routing import HttpCall, Route
from .upkeep import Holds

BUNDLE: Final = "application/octet-stream"
_CHUNK: Final = 256 * 1024

Bundle = Annotated[str, msgspec.Meta(description="The bytes of a bundle, as `chatledger bundle verify` checks it.")]


class WantedSums(msgspec.Struct, forbid_unknown_fields=True):
    """The places of the tree: `""` for the 256 groups, two hexadecimal digits for the buckets of a group; the root without it."""

    under: list[Place] = []


def sum_heads(call: HttpCall, body: WantedSums) -> HeadSums:
    """Return sums over the last events of all chats, equal in ledgers that have the same, so that another one sees where they differ."""
    return LedgerPeer(call.ledger).sums(body.under)


class WantedHeads(msgspec.Struct, forbid_unknown_fields=True):
    """Chats, and buckets of the tree of sums, in four hexadecimal digits."""

    chat_ids: list[str] = []
    buckets: list[Place] = []


class ChatHead(Value, frozen=True):
    """The last event of a chat, with its hash in hexadecimal digits."""

    chat_id: str
    version: int
    hash: str


class ChatHeads(Value, frozen=True):
    """The last event of each chat."""

    heads: list[ChatHead]


def list_heads(call: HttpCall, body: WantedHeads) -> ChatHeads:
    """List where chats end, so that another ledger sees which differ."""
    heads = LedgerPeer(call.ledger).heads(body.chat_ids, body.buckets)
    return ChatHeads([ChatHead(chat_id, *head) for chat_id, head in heads.items()])


class WantedChats(msgspec.Struct, forbid_unknown_fields=True):
    """The chats to compare; all without it."""

    chat_ids: list[str] | None = None


def list_held(call: HttpCall, body: WantedChats) -> Holds:
    """List the legal holds on users and on chats, so that they are in force elsewhere too; none for a caller who is a user."""
    return Holds(LedgerPeer(call.ledger).holds(body.chat_ids))


class WantedStandings(msgspec.Struct, forbid_unknown_fields=True):
    """Chats, each with the version of the last event of it elsewhere."""

    versions: dict[str, Annotated[int, msgspec.Meta(ge=0)]]


class ChatStandings(Value, frozen=True):
    """The standing of each chat that was asked for."""

    standings: dict[str, ChatStanding]


def list_standings(call: HttpCall, body: WantedStandings) -> ChatStandings:
    """Say how far chats have come here, and the hash of the event of that version of each."""
    return ChatStandings(LedgerPeer(call.ledger).standings(body.versions))


class WantedVersion(msgspec.Struct, forbid_unknown_fields=True):
    """A chat, and the version up to which another ledger has it."""

    chat_id: str
    version: int


class WantedEvents(msgspec.Struct, forbid_unknown_fields=True):
    """The number of the events of each chat that the other ledger has, and about how many more of each to send."""

    known: dict[str, Annotated[int, msgspec.Meta(ge=0)]]
    most: Annotated[int, msgspec.Meta(ge=1)] = EVENTS_TOGETHER


def export_tail(call: HttpCall, body: WantedVersion) -> ChatTail:
    """Export a conversation with what its events after a version tell of, and the ends of its branches; whole after 0."""
    return written_tail(LedgerPeer(call.ledger).export_chat(sought_id(body.chat_id, "chat_id"), body.version))


def make_bundle(call: HttpCall, body: WantedEvents) -> Bundle:
    """Send the further events of chats as a bundle, which proves itself; nothing where none of the chats has any."""
    file = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed after the answer
    try:
        LedgerPeer(call.ledger).write_bundle(body.known, file, body.most)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    streamed = StreamingResponse(
        iter(partial(file.read, _CHUNK), b""), media_type=BUNDLE, background=BackgroundTask(file.close)
    )
    return cast("str", streamed)  # for the reference, which says what is in it


class TakenChats(Value, frozen=True):
    """The chats of a bundle, with what was taken in of each."""

    chats: list[TakenChat]


def take_bundle(call: HttpCall, body: bytes) -> TakenChats:
    """
    Take in the events of a bundle as they are, where the caller may write them: of each chat all or none.

    The events of a user say of themselves that the user wrote them, or nobody. A bundle that does not hold is refused as a whole.
    """
    return TakenChats(LedgerPeer(call.ledger).take_in(BytesIO(body)))


class ChatToSettle(msgspec.Struct, forbid_unknown_fields=True):
    """A chat that cannot be continued by events, and what the other ledger has of it; None where it was deleted."""

    settlement: Settlement
    chat: ChatTail | None = None


class SettledChat(Value, frozen=True):
    """The outcome, None where nothing was to be done; `lacks` where messages before those that were sent are not here."""

    chat: PulledChat | None
    lacks: bool = False


def settle_chat(call: HttpCall, body: ChatToSettle) -> SettledChat:
    """Delete a chat as it was deleted elsewhere, or add what another ledger went on with; as far as the caller may."""
    theirs = None if body.chat is None else read_tail(body.chat, "the body")
    try:
        return SettledChat(LedgerPeer(call.ledger).settle(body.settlement, theirs))
    except MessageNotFoundError:
        return SettledChat(None, lacks=True)


class Copies(msgspec.Struct, forbid_unknown_fields=True):
    """Messages that are copies of others."""

    message_ids: list[str]


class RedactedCopies(Value, frozen=True):
    """Those of the messages that were redacted."""

    message_ids: list[str]


def redact_copies(call: HttpCall, body: Copies) -> RedactedCopies:
    """Redact copies of messages that are redacted here, as those are: those that only this ledger has. Others, and what is held, stay."""
    ids = [sought_id(each, "message_ids") for each in body.message_ids]
    return RedactedCopies(LedgerPeer(call.ledger).redact_copies(ids))


ROUTES: Final = {
    "pulls": [
        Route("POST", "/pulls/sums", sum_heads, scope="read"),
        Route("POST", "/pulls/heads", list_heads, scope="read"),
        Route("POST", "/pulls/holds", list_held, scope="read"),
        Route("POST", "/pulls/standings", list_standings, scope="read"),
        Route("POST", "/pulls/bundle", make_bundle, scope="read", media_type=BUNDLE),
        Route("POST", "/pulls/tail", export_tail, scope="read", raises=[ChatNotFoundError]),
        Route("POST", "/pulls/take", take_bundle, body_type=BUNDLE, raises=[PayloadTooLargeError]),
        Route("POST", "/pulls/copies", redact_copies),
        Route("POST", "/pulls/settle", settle_chat, raises=[PayloadTooLargeError]),
    ]
}

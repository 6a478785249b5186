"""The report of what was erased of a user, which its signature makes a receipt that anybody can check."""

import base64
from typing import Any, ClassVar, Final, Literal

import msgspec

from ..errors import InvalidValueError
from ..wire import Value, encode_json
from .anchors import key_id_of

FORMAT: Final = "chatledger-erasure/1"

MentionKind = Literal["member", "sender", "actor"]
"""The way in which a chat of somebody else names a user: as a member, as the sender of messages, or as who did something."""


class ErasedStream(Value, frozen=True, kw_only=True):
    """
    A chat, thread, state or item that was erased, or would be.

    Args:
        kind: The kind: `chat`, `thread`, `state` or `item`.
        digest: SHA-256 over the id of its stream, in hexadecimal digits; an id may say whose it was.
        event_count: The number of its events.
        position: The position of its tombstone on the log; None where nothing was erased.
    """

    kind: str
    digest: str
    event_count: int
    position: int | None = None


class Mention(Value, frozen=True, kw_only=True):
    """A chat of somebody else that names a user, and how many of its events, messages or memberships do."""

    chat_id: str
    kind: MentionKind
    count: int


class ErasureReport(Value, frozen=True, kw_only=True):
    """
    The report of an erasure of a user: what went, and what still names the user.

    Args:
        user_id: The user.
        is_dry_run: Whether nothing was erased: it says what would be.
        began_at: When it began, in ms.
        ended_at: When the last byte was gone, in ms.
        position_before: Where the log ended before.
        root_before: The root over all streams there, as an anchor has it, in hexadecimal digits.
        position: Where the log ended afterwards.
        root: The root over all streams there.
        erased: What was erased by this call, in the order of the log.
        earlier: What of the user had been erased before: by a call that was interrupted, or chat by chat, of all that names its owner.
        held: What was not erased, as a legal hold keeps it.
        mentions: Chats of others that name the user, the first 1,000. After an erasure with a pseudonym those that a hold keeps as they are.
        pseudonymised: Chats of others that named the user, the first 1,000, and have a pseudonym in the places of the name.
        unreached: What a ledger cannot erase, in words.
        public_key: The Ed25519 key of who signed it, in base64; None where nobody did.
        signature: Of `signed_bytes`, in base64; None where nobody signed it.
    """

    user_id: str
    is_dry_run: bool
    began_at: int
    ended_at: int
    position_before: int
    root_before: str
    position: int
    root: str
    erased: tuple[ErasedStream, ...]
    mentions: tuple[Mention, ...]
    unreached: tuple[str, ...]
    held: tuple[ErasedStream, ...] = ()
    earlier: tuple[ErasedStream, ...] = ()
    pseudonymised: tuple[Mention, ...] = ()
    public_key: str | None = None
    signature: str | None = None

    derived: ClassVar[tuple[str, ...]] = ("counts",)

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of each kind that were erased."""
        kinds = [each.kind for each in self.erased]
        return {kind: kinds.count(kind) for kind in sorted({*kinds})}

    @property
    def key_id(self) -> str | None:
        """A short name of the public key; None where nobody signed it."""
        return None if self.public_key is None else key_id_of(base64.b64decode(self.public_key))

    def signed_bytes(self) -> bytes:
        """The bytes that are signed: the format in a line, then the fields but for the signature, as JSON without blanks."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name != "signature"}
        return f"{FORMAT}\n".encode() + encode_json(fields)

    def to_json(self) -> str:
        """The receipt file: JSON, a field a line."""
        return msgspec.json.format(encode_json({"format": FORMAT, **msgspec.to_builtins(self)})).decode() + "\n"

    @staticmethod
    def from_json(text: str | bytes) -> "ErasureReport":
        """
        The report of a receipt file. Its signature is not checked yet.

        Raises:
            InvalidValueError: It is no receipt of an erasure, or one of a newer format.
        """
        try:
            values: Any = msgspec.json.decode(text)
            form = values.pop("format")
        except (msgspec.DecodeError, ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
            msg = "this is no receipt of an erasure: it has no 'format'; give the file that erase_user or 'delete --user' wrote"
            raise InvalidValueError(msg) from error
        if form != FORMAT:
            msg = f"the receipt is in the format {form!r}, and this chatledger reads {FORMAT!r}"
            raise InvalidValueError(msg)
        try:
            return msgspec.convert(values, ErasureReport)
        except msgspec.ValidationError as error:
            msg = f"the receipt of an erasure is damaged: {error}; take another copy of it"
            raise InvalidValueError(msg) from error

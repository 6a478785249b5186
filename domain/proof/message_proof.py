"""
Proof of one message: a file by which anybody can check, without the ledger, that a message was there when an anchor was signed.

It holds the event that brought the message, the positions and hashes of all events of its chat up to the anchor, and the
hashes that lead from the chat to the root that was signed. Of other messages only those that the same event brought can be read
from it, and nothing of other chats.
"""

import base64
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ..chat.events import ChatDeleted, MessagesAppended, Recorded
from ..errors import ChatledgerError, InvalidValueError
from ..log.codec import NO_POSITION_HASH, decode_event, next_position_hash
from ..log.parts import event_hash
from ..values import Message
from ..wire import Value
from .anchors import Anchor, AnchorLeaf, InclusionProof

FORMAT: Final = "chatledger-message-proof/1"


class MessageProof(Value, frozen=True, kw_only=True):
    """
    The proof that a message was in a chat when an anchor was signed.

    Args:
        chat_id: The chat.
        message_id: The message.
        topic: The type of the event that brought it.
        event: The event, as the hash chain has it.
        trail: The position and hash of each event of the chat up to the anchor, since its last deletion.
        inclusion: The proof that the chat, with this trail, is in the anchor.
        anchor: The anchor, without its leaves.
    """

    chat_id: str
    message_id: str
    topic: str
    event: bytes
    trail: tuple[tuple[int, bytes], ...]
    inclusion: InclusionProof
    anchor: Anchor

    def check(self) -> Message:
        """
        Return the message, as it was proven to be. The signature of the anchor is not checked by this.

        Raises:
            InvalidValueError: The parts do not belong together: it was changed, or is of another message.
        """
        leaf, trail = self.inclusion.leaf, NO_POSITION_HASH
        for position, hash_ in self.trail:
            trail = next_position_hash(trail, position, hash_)
        if not self.trail or trail != leaf.trail or self.trail[-1] != (leaf.position, leaf.hash):
            raise _wrong(self, "its events are not those that the anchor has of the chat")
        if not self.anchor.check_proof(self.chat_id, self.inclusion):
            raise _wrong(self, "the anchor does not have the chat like this")
        try:
            hash_ = event_hash(self.event)
            body = decode_event(self.topic, self.event).body
        except ChatledgerError as error:
            raise _wrong(self, str(error)) from error
        if all(hash_ != known for _, known in self.trail):
            raise _wrong(self, "its event is not one of the chat's")
        messages = body.messages if isinstance(body, MessagesAppended) else ()
        found = next((message for message in messages if message.id == self.message_id), None)
        if found is None:
            raise _wrong(self, "its event did not bring the message")
        return msgspec.structs.replace(found, chat_id=self.chat_id)

    def to_json(self) -> str:
        """The file: JSON with hashes in hexadecimal digits, and the event in base64."""
        values = {
            "format": FORMAT,
            "chat_id": self.chat_id,
            "message_id": self.message_id,
            "topic": self.topic,
            "event": base64.b64encode(self.event).decode(),
            "trail": [[position, hash_.hex()] for position, hash_ in self.trail],
            "leaf": self.inclusion.leaf.to_row(),
            "index": self.inclusion.index,
            "path": [one.hex() for one in self.inclusion.path],
            "anchor": msgspec.Raw(self.anchor.to_json().encode()),
        }
        return msgspec.json.format(msgspec.json.encode(values)).decode() + "\n"

    @staticmethod
    def from_json(text: str | bytes) -> "MessageProof":
        """
        The proof of a file. Nothing of it is checked yet.

        Raises:
            InvalidValueError: It is no proof, or one of a newer format.
        """
        try:
            found = msgspec.json.decode(text)
            _check_format(found["format"])
            return MessageProof(
                chat_id=_text(found["chat_id"]),
                message_id=_text(found["message_id"]),
                topic=_text(found["topic"]),
                event=base64.b64decode(found["event"], validate=True),
                trail=tuple((_position(position), bytes.fromhex(hash_)) for position, hash_ in found["trail"]),
                inclusion=InclusionProof(
                    AnchorLeaf.from_row(found["leaf"]),
                    _position(found["index"]),
                    tuple(map(bytes.fromhex, found["path"])),
                ),
                anchor=Anchor.from_json(msgspec.json.encode(found["anchor"])),
            )
        except InvalidValueError:
            raise
        except (msgspec.MsgspecError, ValueError, TypeError, KeyError, RecursionError) as error:
            msg = f"this is no proof of a message, or it is damaged ({error}); take the file that 'chatledger prove' wrote"
            raise InvalidValueError(msg) from error


def prove_message(
    message_id: str, events: Sequence[Recorded], anchor: Anchor, read: Callable[[int], bytes | None]
) -> MessageProof:
    """
    Return the proof of a message by an anchor, from all events of its chat; `read` gives the bytes of the event at a position.

    Raises:
        InvalidValueError: The anchor does not have the message: it is older; or it lacks its leaves, or is of another log.
    """
    chat_id = events[0].chat_id
    inclusion = anchor.proof(chat_id)
    kept = [recorded for recorded in events if recorded.position <= inclusion.leaf.position]
    last_deletion = max((number for number, one in enumerate(kept) if isinstance(one.body, ChatDeleted)), default=0)
    kept = kept[last_deletion:]
    brought = next((one for one in kept if _brings(one, message_id)), None)
    if brought is None:
        msg = f"the anchor of position {anchor.position} does not have message {message_id!r}: take one that was made after it"
        raise InvalidValueError(msg)
    event = read(brought.position)
    if event is None:
        msg = f"chat {chat_id!r} was deleted meanwhile, and message {message_id!r} with it"
        raise InvalidValueError(msg)
    return MessageProof(
        chat_id=chat_id,
        message_id=message_id,
        topic=brought.topic,
        event=event,
        trail=tuple((one.position, one.hash) for one in kept),
        inclusion=inclusion,
        anchor=anchor.without_leaves(),
    )


def _brings(recorded: Recorded, message_id: str) -> bool:
    body = recorded.body
    return isinstance(body, MessagesAppended) and any(message.id == message_id for message in body.messages)


def _check_format(found: object) -> None:
    if found != FORMAT:
        msg = f"the file has the format {found!r}, this version reads {FORMAT!r}"
        raise InvalidValueError(msg)


def _text(value: object) -> str:
    if not isinstance(value, str):
        msg = f"{value!r} is no text"
        raise TypeError(msg)
    return value


def _position(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        msg = f"{value!r} is no position"
        raise ValueError(msg)
    return value


def _wrong(proof: MessageProof, why: str) -> InvalidValueError:
    return InvalidValueError(
        f"the proof of message {proof.message_id!r} does not hold: {why}; it was changed, or is of another ledger"
    )

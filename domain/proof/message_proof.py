"""
Proof of one message: a file by which anybody can check, without the ledger, that a message was there when an anchor was signed.

It holds the message as a part of the event that brought it, the head of that event without who wrote it, and the hashes that lead
from there to the root of the chat's events, and on to the root that was signed. Of other messages it has nothing but hashes, but for
the structure of the one before it in the same event, where that is its parent.

And proof of growth: that between two anchors a chat only got more events, and those that it had stayed as they were.
"""

import base64
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ..errors import ChatledgerError, InvalidValueError
from ..log.codec import decode_shown, lines_in, place_of_event
from ..log.large_data import UnknownContentError, data_digest, take_out
from ..log.merkle import (
    PARTS,
    Subtree,
    consistency_path,
    event_leaf,
    is_consistent,
    multi_path,
    root_from_multi_path,
    subtree_of,
)
from ..log.parts import RawPart, committed, hash_of_root, join, leaves_of, take_apart
from ..values import Message
from ..wire import Value
from .anchors import Anchor, AnchorLeaf, InclusionProof, path_from_rows, path_to_rows

FORMAT: Final = "chatledger-message-proof/2"


class MessageProof(Value, frozen=True, kw_only=True):
    """
    The proof that a message was in a chat when an anchor was signed.

    Args:
        chat_id: The chat.
        message_id: The message.
        position, number: Of the event that brought it: its position on the log, and its number among the chat's events since the
            last deletion, from 0.
        event: The event with its head and the parts that are shown; all other content is redacted.
        part_numbers: The numbers of these parts in the whole event.
        part_count: How many parts that has.
        part_path: The hashes that lead from these parts to the root of all, as of a multi-proof.
        path: Those that lead from the event to the root of the chat's events (RFC 9162).
        inclusion: The proof that the chat, with that root, is in the anchor.
        anchor: The anchor, without its leaves.
        large: The large data that the event names by their digests.
    """

    chat_id: str
    message_id: str
    position: int
    number: int
    event: bytes
    part_numbers: tuple[int, ...]
    part_count: int
    part_path: tuple[bytes, ...]
    path: tuple[bytes, ...]
    inclusion: InclusionProof
    anchor: Anchor
    large: tuple[bytes, ...] = ()

    def check(self) -> Message:
        """
        Return the message, as it was proven to be. The signature of the anchor is not checked by this.

        Raises:
            InvalidValueError: The parts do not belong together: it was changed, or is of another message.
        """
        leaf = self.inclusion.leaf
        try:
            head, parts = take_apart(self.event)
            head_leaf, *leaves = leaves_of((head, *parts))
            place, message = decode_shown(self.event, {data_digest(data): data for data in self.large})
        except ChatledgerError as error:
            raise _wrong(self, str(error)) from error
        except UnknownContentError as error:
            raise _wrong(self, "its large data are not those that the event names") from error
        root = None
        if len(leaves) == len(self.part_numbers) == len(set(self.part_numbers)):
            shown = dict(zip(self.part_numbers, leaves, strict=True))
            root = root_from_multi_path(self.part_count, shown, self.part_path, PARTS)
        if root is None or place.stream != self.chat_id:
            raise _wrong(self, "its parts are not those of an event of the chat")
        hash_ = hash_of_root(head_leaf, self.part_count, root)
        events = {self.number: event_leaf(self.position, hash_)}
        if root_from_multi_path(leaf.size, events, self.path) != leaf.root:
            raise _wrong(self, "its event is not one of those that the anchor has of the chat")
        if not self.anchor.check_proof(self.chat_id, self.inclusion):
            raise _wrong(self, "the anchor does not have the chat like this")
        # The part before it is there for its id, as the parent; another one would pass for that.
        first, *others = self.part_numbers
        if message.id != self.message_id or others not in ([], [first + 1]):
            raise _wrong(self, "its event did not bring the message")
        return msgspec.structs.replace(message, chat_id=self.chat_id)

    def to_json(self) -> str:
        """The file: JSON with hashes in hexadecimal digits, and the event in base64."""
        values = {
            "format": FORMAT,
            "chat_id": self.chat_id,
            "message_id": self.message_id,
            "position": self.position,
            "number": self.number,
            "event": base64.b64encode(self.event).decode(),
            "part_numbers": self.part_numbers,
            "part_count": self.part_count,
            "part_path": [hash_.hex() for hash_ in self.part_path],
            "path": [hash_.hex() for hash_ in self.path],
            "leaf": self.inclusion.leaf.to_row(),
            "anchor_path": path_to_rows(self.inclusion.path),
            "anchor": msgspec.Raw(self.anchor.to_json().encode()),
            "large": [base64.b64encode(data).decode() for data in self.large],
        }
        return msgspec.json.format(msgspec.json.encode(values)).decode() + "\n"

    @staticmethod
    def from_json(text: str | bytes) -> "MessageProof":
        """
        The proof of a file. Nothing of it is checked yet.

        Raises:
            InvalidValueError: It is no proof, or one of another format.
        """
        try:
            values: Mapping[str, Any] = msgspec.json.decode(text)
            _check_format(values["format"])
            return MessageProof(
                chat_id=_text(values["chat_id"]),
                message_id=_text(values["message_id"]),
                position=_number(values["position"]),
                number=_number(values["number"]),
                event=base64.b64decode(values["event"], validate=True),
                part_numbers=tuple(map(_number, values["part_numbers"])),
                part_count=_number(values["part_count"]),
                part_path=tuple(map(bytes.fromhex, values["part_path"])),
                path=tuple(map(bytes.fromhex, values["path"])),
                inclusion=InclusionProof(AnchorLeaf.from_row(values["leaf"]), path_from_rows(values["anchor_path"])),
                anchor=Anchor.from_json(msgspec.json.encode(values["anchor"])),
                large=tuple(base64.b64decode(data, validate=True) for data in values["large"]),
            )
        except InvalidValueError:
            raise
        except (msgspec.MsgspecError, ValueError, TypeError, KeyError, RecursionError) as error:
            msg = f"this is no proof of a message, or it is damaged ({error}); take the file that 'chatledger prove' wrote"
            raise InvalidValueError(msg) from error


def prove_message(
    message: Message, event: bytes, *, position: int, number: int, events: Subtree, size: int, anchor: Anchor
) -> MessageProof:
    """
    Return the proof of a message by an anchor.

    Args:
        message: The message.
        event: The event that brought it, as it is stored.
        position: Where the event stands on the log.
        number: Its number among the chat's events since the last deletion, from 0.
        events: Returns the root of some of the chat's events, by number.
        size: How many of these there are.
        anchor: An anchor with its leaves.

    Raises:
        InvalidValueError: The anchor does not have the message: it is older; or it lacks its leaves, or is of another log.
    """
    place = place_of_event(event)
    inclusion = anchor.proof(place.stream)
    leaf = inclusion.leaf
    head, parts = take_apart(event)
    lines = lines_in(event)
    at, follows = next((at, follows) for at, (line_id, follows) in enumerate(lines) if line_id == message.id)
    if position > leaf.position or number >= leaf.size:
        msg = f"the anchor of position {anchor.position} does not have message {message.id!r}: take one that was made after it"
        raise InvalidValueError(msg)
    if leaf.size > size:
        raise _other_log(anchor, f"it has {leaf.size} events of chat {place.stream!r}, and there are {size}")
    shown = [at - 1, at] if follows else [at]
    leaves = leaves_of(parts)
    proof = MessageProof(
        chat_id=place.stream,
        message_id=message.id,
        position=position,
        number=number,
        event=join(_bare(head), [*(_bare(parts[part]) for part in shown[:-1]), parts[at]]),
        part_numbers=tuple(shown),
        part_count=len(parts),
        part_path=multi_path(subtree_of(leaves, PARTS), len(parts), shown),
        path=multi_path(events, leaf.size, [number]),
        inclusion=inclusion,
        anchor=anchor.without_leaves(),
        large=tuple(large.data for large in take_out(message.data).large),
    )
    # The anchor and the events came from two places: whether they belong together shows only here.
    try:
        proof.check()
    except InvalidValueError as error:
        raise _other_log(anchor, str(error)) from error
    return proof


def _other_log(anchor: Anchor, why: str) -> InvalidValueError:
    return InvalidValueError(
        f"the anchor of position {anchor.position} is not one of this ledger, or the log was changed since: {why}"
    )


def _bare(part: RawPart) -> RawPart:
    """A part without its content."""
    structure, who, what = part
    return structure, committed(who), committed(what)


def _check_format(format_: object) -> None:
    if format_ != FORMAT:
        msg = f"the file has the format {format_!r}, this version reads {FORMAT!r}"
        raise InvalidValueError(msg)


def _text(value: object) -> str:
    if not isinstance(value, str):
        msg = f"{value!r} is no text"
        raise TypeError(msg)
    return value


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        msg = f"{value!r} is no number"
        raise ValueError(msg)
    return value


def _wrong(proof: MessageProof, why: str) -> InvalidValueError:
    return InvalidValueError(
        f"the proof of message {proof.message_id!r} does not hold: {why}; it was changed, or is of another ledger"
    )


class GrowthProof(Value, frozen=True, kw_only=True):
    """
    The proof that a chat at one anchor is the beginning of the same chat at a later one.

    Args:
        chat_id: The chat.
        earlier: Where it ended at the first anchor.
        later: Where it ended at the second.
        path: The consistency proof of RFC 9162 between the roots of both.
    """

    chat_id: str
    earlier: InclusionProof
    later: InclusionProof
    path: tuple[bytes, ...]

    def check(self, earlier: Anchor, later: Anchor) -> None:
        """
        Check it against both anchors, whose leaves are not needed. Their signatures are not checked by this.

        Raises:
            InvalidValueError: It does not show that.
        """
        before, after = self.earlier.leaf, self.later.leaf
        if not (earlier.check_proof(self.chat_id, self.earlier) and later.check_proof(self.chat_id, self.later)):
            why = "an anchor does not have the chat like this"
        # A tombstone begins a new tree: then the size does not grow as the version does.
        elif before.version > after.version or after.version - before.version != after.size - before.size:
            why = "the chat was deleted in between"
        elif not is_consistent(before.size, before.root, after.size, after.root, self.path):
            why = "the chat at the second anchor does not begin with all that it had at the first"
        else:
            return
        msg = f"the proof that chat {self.chat_id!r} only grew does not hold: {why}"
        raise InvalidValueError(msg)


def prove_growth(
    chat_id: str, earlier: Anchor, later: Anchor, *, events: Subtree, first_position: int, size: int
) -> GrowthProof:
    """
    Return the proof that between two anchors a chat only grew.

    `events` gives the roots of the chat's events by number, the first of which is at `first_position`; there are `size` of them.

    Raises:
        InvalidValueError: An anchor does not have the chat or lacks its leaves, is of another log, or the chat was deleted since.
    """
    earlier_proof, later_proof = earlier.proof(chat_id), later.proof(chat_id)
    before, after = earlier_proof.leaf, later_proof.leaf
    if before.position < first_position or not before.size <= after.size <= size:
        msg = f"chat {chat_id!r} was deleted since one of the anchors was signed, or they are given the wrong way round"
        raise InvalidValueError(msg)
    path = consistency_path(events, before.size, after.size)
    proof = GrowthProof(chat_id=chat_id, earlier=earlier_proof, later=later_proof, path=path)
    proof.check(earlier, later)
    return proof

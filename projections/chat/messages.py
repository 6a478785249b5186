"""Messages whose data are decoded when somebody asks for them: decoding data is most of what reading a chain takes."""

import threading
from collections.abc import Iterable
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from chatledger.domain.errors import DECODE_ERRORS, CorruptStateError
from chatledger.domain.values import Message

from .packed import unpack_row

T = TypeVar("T")

_set: Final = msgspec.structs.force_setattr
_chat_of: Final = vars(Message)["chat_id"].__get__
_data_of: Final = vars(Message)["data"].__get__
_lock: Final = threading.Lock()


class UndecodedMessage:
    """
    The placeholder that lazy messages of a chat hold in place of its id, until their data are decoded.

    Encoders of msgspec read what a message holds, and would write its data as they are stored. They refuse this, which comes first.
    """

    __slots__ = ("chat_id",)

    def __init__(self, chat_id: str) -> None:
        self.chat_id = chat_id


class _StoredMessage(Message, frozen=True, kw_only=True, gc=False):
    """A message as it is stored. The bytes of its data are a part of those that it was decoded from."""

    data: msgspec.Raw


class LazyMessage(_StoredMessage, frozen=True, kw_only=True, gc=False):
    """
    A message that decodes its data when they are asked for, and is a `Message` like any other from then on.

    Safe for threads. Comparing it, showing it and pickling it ask for its data.
    """

    # The fields that the properties below stand before, under names of their own. For those who know that it is none yet: while
    # it is asked, another thread may make it a message.
    held_chat: ClassVar[Any] = vars(Message)["chat_id"]
    held_data: ClassVar[Any] = vars(Message)["data"]

    @property  # type: ignore[misc]  # it reads as the field does
    def chat_id(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # as above
        """The chat."""
        held: UndecodedMessage | str = _chat_of(self)
        return held.chat_id if isinstance(held, UndecodedMessage) else held

    @property  # type: ignore[misc]  # as above
    def data(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]  # as above
        """
        Any JSON value.

        Raises:
            CorruptStateError: They cannot be decoded.
        """
        return _data_of(_decoded(self))

    def __eq__(self, other: object) -> bool:
        return Message.__eq__(_decoded(self), _decoded(other))

    def __ne__(self, other: object) -> bool:  # the struct's own one would compare what both hold
        return Message.__ne__(_decoded(self), _decoded(other))

    def __hash__(self) -> int:
        return Message.__hash__(_decoded(self))

    def __repr__(self) -> str:
        return Message.__repr__(_decoded(self))

    def __reduce__(self) -> Any:
        return Message.__reduce__(_decoded(self))


def _decoded(one: T) -> T:
    """Return the object, with its data if it is a lazy message."""
    if not isinstance(one, LazyMessage):
        return one
    with _lock:  # so that all threads get the same data
        if isinstance(one, LazyMessage):
            if isinstance(one.held_data, msgspec.Raw):
                _set(one, "held_data", _decode_data(one, one.held_data))
            _set(one, "held_chat", one.chat_id)
            # It has no fields that a message has not; so from now on it costs no more than one.
            _set(one, "__class__", Message)
    return one


def _decode_data(message: LazyMessage, data: msgspec.Raw) -> Any:
    try:
        return unpack_row(data)
    except DECODE_ERRORS as error:
        msg = (
            f"the data of message {message.id!r} of chat {message.chat_id!r} cannot be decoded: {error}; "
            "rebuild the index, the log is not affected"
        )
        raise CorruptStateError(msg) from error


decode_lazily: Final = msgspec.msgpack.Decoder(list[LazyMessage]).decode
"""A page of messages, without chat and parent."""


def place_lazily(chat: UndecodedMessage, messages: Iterable[Message], parent_id: str | None) -> str | None:
    """Say of lazy messages that follow each other what chat they belong to and what they answer; returns the id of the last one."""
    for message in messages:
        _set(message, "held_chat", chat)
        _set(message, "parent_id", parent_id)
        parent_id = message.id
    return parent_id

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


class _RawDataMessage(Message, frozen=True, kw_only=True, gc=False):
    """A message with undecoded data: a part of the bytes that it was decoded from, which stay in memory with it."""

    data: msgspec.Raw


class LazyMessage(_RawDataMessage, frozen=True, kw_only=True, gc=False):
    """
    A message that decodes its data when they are asked for, and is a `Message` like any other from then on.

    Safe for threads. Comparing it, showing it and pickling it ask for its data.
    """

    # The fields that the properties below hide, under names of their own. Only for code that holds `_lock` or has made the object
    # just now: at any other time another thread may turn it into a `Message`, which has no such names.
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

    def __ne__(self, other: object) -> bool:  # the struct's own would compare what both hold, undecoded
        return Message.__ne__(_decoded(self), _decoded(other))

    def __hash__(self) -> int:
        return Message.__hash__(_decoded(self))

    def __repr__(self) -> str:
        return Message.__repr__(_decoded(self))

    def __reduce__(self) -> Any:
        return Message.__reduce__(_decoded(self))


def _decoded(message: T) -> T:
    """Return the object, with its data decoded if it is a lazy message."""
    if not isinstance(message, LazyMessage):
        return message
    with _lock:  # so that all threads get the same data
        if isinstance(message, LazyMessage):
            if isinstance(message.held_data, msgspec.Raw):
                try:
                    data = unpack_row(message.held_data)
                except DECODE_ERRORS as error:
                    msg = (
                        f"the data of message {message.id!r} of chat {message.chat_id!r} cannot be decoded: {error}; "
                        "rebuild the index, the log is not affected"
                    )
                    raise CorruptStateError(msg) from error
                _set(message, "held_data", data)
            _set(message, "held_chat", message.chat_id)
            # It has no fields that a message has not, so from now on it is read as fast as any message.
            _set(message, "__class__", Message)
    return message


decode_lazily: Final = msgspec.msgpack.Decoder(list[LazyMessage]).decode
"""A page of messages, without chat and parent."""


def place_lazily(chat: UndecodedMessage, messages: Iterable[Message], parent_id: str | None) -> str | None:
    """Set chat and parents of lazy messages that follow each other; return the id of the last one."""
    for message in messages:
        _set(message, "held_chat", chat)
        _set(message, "parent_id", parent_id)
        parent_id = message.id
    return parent_id

"""Values that break a rule."""

from .base import ChatledgerError, InvalidValueError


class SelfParentError(InvalidValueError):
    """A message names itself as its parent. Nothing was written."""

    def __init__(self, message_id: str) -> None:
        super().__init__(
            f"message {message_id!r} names itself as its parent; name an earlier message, or none for a root"
        )
        self.message_id = message_id


class PayloadTooLargeError(InvalidValueError):
    """An event would exceed the configured size limit. Nothing was written; content is never cut."""

    def __init__(self, chat_id: str, *, size_bytes: int, limit_bytes: int, what: str = "an event of chat") -> None:
        super().__init__(
            f"{what} {chat_id!r} takes {size_bytes:,} bytes, the limit is {limit_bytes:,}; "
            "store large content elsewhere and keep a reference to it"
        )
        self.chat_id, self.size_bytes, self.limit_bytes = chat_id, size_bytes, limit_bytes


class AmbiguousEditError(InvalidValueError):
    """One save edits messages that do not lie on one chain. Nothing was written."""


class MissingCodecError(InvalidValueError):
    """A message fragment has no codec, or is still lazy, where its data are needed. Nothing was written."""

    def __init__(self, name: str, *, fragment_id: str | None = None) -> None:
        which = "" if fragment_id is None else f" (id {fragment_id!r})"
        super().__init__(
            f"message fragment {name!r}{which} has no codec, or is still lazy; user(), assistant() and message() make "
            "fragments that have one, and a context engine resolves lazy ones"
        )
        self.name, self.fragment_id = name, fragment_id


class UnknownLazyTypeError(InvalidValueError):
    """Nobody knows how to resolve a lazy fragment of this type. Nothing was written."""

    def __init__(self, lazy_type: str) -> None:
        super().__init__(
            f"unknown lazy type {lazy_type!r}; last_assistant_message() makes one of type 'last-assistant'"
        )
        self.lazy_type = lazy_type


class NamespaceError(InvalidValueError):
    """A namespace or the id of an assistant is malformed."""


class FragmentConversionError(InvalidValueError):
    """A fragment cannot be converted to or from its serialized form."""


class ResolverError(ChatledgerError):
    """A computed value inside a fragment failed; `path` says which. The cause is chained."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"the computed value at {path} {reason}")
        self.path = path

"""
Proof that nothing was changed: verifying the log and the index, and anchors and excerpts for third parties, signed with Ed25519 keys
from PEM files.
"""

import os
import secrets
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET, UnsetType

from chatledger.domain.errors import (
    ChatNotFoundError,
    ConfigurationError,
    InvalidValueError,
    MessageNotFoundError,
    WrongChatError,
)
from chatledger.domain.limits import sought_id
from chatledger.domain.log.large_data import take_out
from chatledger.domain.log.merkle import root_of_peaks
from chatledger.domain.moments import Moment
from chatledger.domain.proof.anchors import Anchor, AnchorLeaf, key_id_of, root_of
from chatledger.domain.proof.excerpt import (
    ChosenEvent,
    Excerpt,
    ExcerptStanding,
    Terms,
    payload_of,
    read_excerpt,
    token_of,
)
from chatledger.domain.proof.growth import GrowthProof, prove_growth
from chatledger.domain.proof.verification import Verification
from chatledger.domain.values import Annotation, Message, Progress, no_progress
from chatledger.projections.chat.reader import IndexedChat
from chatledger.projections.lmdb.environment import absolute_path
from chatledger.projections.lmdb.system_errors import system_errors
from chatledger.projections.log.stream_trees import StreamTree, stream_heads

from ..log.envelope import clock_ms
from ..store.commands import ChatsToRead
from .expiry import Ending
from .port import LedgerPart, LedgerSnapshot, store_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


PemSource = str | os.PathLike[str] | bytes
"""The path of a PEM file, or its content as bytes."""

_MAKE = "openssl genpkey -algorithm ed25519 -out anchor.key"
_EXPORT = "openssl pkey -in anchor.key -pubout -out anchor.pub"
_NO_SIGNATURE = bytes(64)
_MOST_PEM_BYTES: Final = 4 << 20
"""Ten times the certificates of all authorities that systems trust."""


def load_private_key(source: PemSource) -> "Ed25519PrivateKey":
    """
    The key that signs.

    Raises:
        ConfigurationError: There is no such file, or it holds no Ed25519 private key that is readable without a password.
    """
    _require_library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = _load(source, lambda pem: load_pem_private_key(pem, password=None), "private", _MAKE)
    if not isinstance(key, Ed25519PrivateKey):
        raise _wrong(key, "private", _MAKE)
    return key


def read_signing_key(source: PemSource) -> bytes:
    """
    Return the PEM of a key that signs anchors, once it was tried: a server fails at its start, not at the first anchor.

    Raises:
        ConfigurationError: As `load_private_key`.
    """
    load_private_key(source)
    return pem_of(source, f"the private key {source!s} cannot be read")


def load_public_key(source: PemSource) -> "Ed25519PublicKey":
    """
    The key that signatures are checked with.

    Raises:
        ConfigurationError: There is no such file, or it holds no Ed25519 public key.
    """
    _require_library()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    key = _load(source, load_pem_public_key, "public", _EXPORT)
    if not isinstance(key, Ed25519PublicKey):
        raise _wrong(key, "public", _EXPORT)
    return key


def pem_of(source: PemSource, otherwise: str, hint: str = "") -> bytes:
    """Return the content of a PEM file. Raises `ConfigurationError` in these words, and why, where it cannot be read."""
    if isinstance(source, bytes):
        return source
    try:
        with absolute_path(source).open("rb") as stream:
            # Not to its end: a device such as `/dev/full` has none.
            pem = stream.read(_MOST_PEM_BYTES + 1)
    except OSError as error:
        msg = f"{otherwise}: {error.strerror or error}{hint}"
        raise ConfigurationError(msg) from error
    if len(pem) > _MOST_PEM_BYTES:
        msg = f"{otherwise}: it is larger than {_MOST_PEM_BYTES >> 20} MiB, so it is no file of PEM{hint}"
        raise ConfigurationError(msg)
    return pem


def _load(source: PemSource, load: Callable[[bytes], object], what: str, how: str) -> object:
    """The key in a file, of whatever kind; or why there is none."""
    from cryptography.exceptions import UnsupportedAlgorithm

    pem = pem_of(source, f"the {what} key {source!s} cannot be read", f"; '{how}' makes one")
    try:
        return load(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        return error


def _wrong(key: object, what: str, how: str) -> ConfigurationError:
    # The library raises `TypeError` for a key that is encrypted.
    hint = (
        "it needs a password; write it without one for this purpose"
        if isinstance(key, TypeError)
        else f"'{how}' makes one"
    )
    return ConfigurationError(f"this is no Ed25519 {what} key in PEM; {hint}")


def leaves_of(snapshot: LedgerSnapshot) -> list[AnchorLeaf]:
    """Return where every stream ends, in the order of an anchor. Costs a row for each stream."""
    return sorted(
        AnchorLeaf(digest, head.version, head.position, head.hash, head.size, root_of_peaks(head.peaks))
        for digest, head in stream_heads(snapshot.txn, snapshot.tables)
    )


def sign(leaves: Sequence[AnchorLeaf], *, position: int, created_at: int, key: "Ed25519PrivateKey") -> Anchor:
    """The anchor of a log whose streams end at these leaves, which are in the order of their digests."""
    draft = Anchor(
        position=position,
        created_at=created_at,
        count=len(leaves),
        root=root_of(leaves),
        public_key=key.public_key().public_bytes_raw(),
        signature=_NO_SIGNATURE,
        leaves=tuple(leaves),
    )
    return msgspec.structs.replace(draft, signature=key.sign(draft.signed_bytes()))


def check_signature(anchor: Anchor, public_key: "Ed25519PublicKey | None") -> None:
    """
    Check who signed an anchor: the holder of `public_key`, or, where None is given, of the key that is named in it.

    Raises:
        InvalidValueError: Somebody else, or the anchor was changed.
        ConfigurationError: The library is missing.
    """
    check_signed(
        anchor.signed_bytes(),
        signature=anchor.signature,
        signer=anchor.public_key,
        public_key=public_key,
        what=f"anchor of position {anchor.position}",
    )


def check_signed(
    data: bytes, *, signature: bytes, signer: bytes, public_key: "Ed25519PublicKey | None", what: str
) -> None:
    """
    Check who signed something: the holder of `public_key`, or, where None is given, of the key of `signer`.

    Raises:
        InvalidValueError: Somebody else, or it was changed.
        ConfigurationError: The library is missing.
    """
    _require_library()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if public_key is not None and public_key.public_bytes_raw() != signer:
        msg = f"the {what} was signed with another key, {key_id_of(signer)}, than the one given; ask its signer which key is right"
        raise InvalidValueError(msg)
    try:
        Ed25519PublicKey.from_public_bytes(signer).verify(signature, data)
    except (InvalidSignature, ValueError) as error:
        msg = f"the signature of the {what} is wrong: the file was changed after it was signed; take another copy of it"
        raise InvalidValueError(msg) from error


def _require_library() -> None:
    if find_spec("cryptography") is None:
        msg = "signing and checking anchors needs cryptography: pip install 'chatledger[crypto]'"
        raise ConfigurationError(msg)


_CATCH_UP_S: Final = 30.0
_TTL_MS: Final = 5 * 60_000
_NONCE_BYTES: Final = 16


class ProofMethods(LedgerPart):
    """The part of a ledger that proves what it holds."""

    @system_errors("verifying")
    def verify(
        self,
        *,
        anchor: Anchor | None = None,
        public_key: PemSource | None = None,
        progress: Progress | None = None,
    ) -> Verification:
        """
        Read the whole log, check every event, and compare the index with what the log says. Changes nothing.

        Of the log: every event can be read, versions have no holes, each names the hash of the one before it, parents are in
        the same chat and older, heads and checkpoints point at messages of the chat, names and message ids are unique,
        commits are whole, times do not go back, and only deleted chats leave holes. Of the index: it equals the fold of the
        log, rows, orders and search index included.

        Costs time in proportion to the log, and memory that does not depend on it; on the disk about as much as the index
        takes, for as long as it runs. Others may read and write meanwhile.

        Args:
            anchor: Also check that the log still has everything that it had when this was signed, except for chats that were
                deleted since. Takes memory for its leaves.
            public_key: The key of whom you trust to have signed it: the path of a PEM file, or its bytes. Without it only the
                key that the anchor itself names is checked, which anybody can make.
            progress: Called with (positions done, positions in all); each position counts twice, read and compared.

        Returns:
            What was read. Whatever is wrong is raised.

        Raises:
            ChainIntegrityError: The log lost events, or they were changed; `position`, `chat_id` and `version` say which.
            CorruptStateError: An event cannot be read, or the index does not equal the log; then `rebuild` repairs it.
            UnsupportedFormatError: A newer chatledger wrote the event, or it is damaged.
            InvalidValueError: The anchor was changed, or signed with another key.
            ConfigurationError: The key cannot be read, or `cryptography` is missing.
            LogUnavailableError: The log did not answer.
        """
        from chatledger.projections.verify.verification import verify

        from .sweeper import count_due

        store = self._store.whole("verify")
        store.check_open()
        if anchor is not None:
            check_signature(anchor, None if public_key is None else load_public_key(public_key))
            anchor.check_leaves()
        store.scratch.remove_abandoned()  # a verification that was killed left a folder about as large as the index
        with store.scratch.folder() as folder:
            verified = verify(
                store.log,
                store.index,
                catch_up=store.projector.catch_up,
                folder=folder,
                anchor=anchor,
                progress=progress or no_progress,
            )
        return msgspec.structs.replace(verified, overdue_count=count_due(store, clock_ms()))

    @system_errors("reading the index for an anchor")
    def anchor(self, key: PemSource) -> Anchor:
        """
        Sign where every chat, thread and state ends now, so that a third party can tell later that nothing before it was changed.

        Keep the result, `to_json()`, where whoever can change the log cannot change it; see `verify`. The log is not read: `verify`
        before it, if you doubt that it is sound.

        Args:
            key: An Ed25519 private key: the path of a PEM file, or its bytes.

        Raises:
            ConfigurationError: The key cannot be read, or `cryptography` is missing.
            CorruptStateError: The index is damaged; nothing is signed.
            LogUnavailableError: The log did not answer.

        Source: the index, brought up to the end of the log. Costs a row for each chat.
        """
        store = self._store.whole("anchor")
        private_key = load_private_key(key)
        store.catch_up(None, _CATCH_UP_S)  # what was acknowledged before the call is in the anchor
        with store.snapshot() as snapshot:
            position = snapshot.state.position
            leaves = leaves_of(snapshot)
        return sign(leaves, position=position, created_at=clock_ms(), key=private_key)

    @system_errors("reading the index for a proof")
    def prove(
        self,
        message_ids: str | Sequence[str],
        *,
        key: PemSource | None = None,
        anchor: Anchor | None = None,
        audience: str | None = None,
        expires_at: Moment | UnsetType | None = UNSET,
        ttl_seconds: float | None = None,
    ) -> str:
        """
        Return chosen messages as an excerpt: a text that proves, to somebody who does not get the ledger, that they were there.

        It has the content of these messages; of others nothing but hashes, and the id, role and time of one that is the parent of a
        chosen one and was written by the same call. `chatledger.admin.check_excerpt` or `chatledger check-proof` checks it without
        the ledger; `still_valid` says whether it is up to date.

        Args:
            message_ids: A message, or several of one chat.
            key: An Ed25519 private key to sign it with: the path of a PEM file, or its bytes.
            anchor: A whole anchor of this ledger, with its leaves, made after the messages: the excerpt leads to it, and needs no `key`.
            audience: Whom it is for; nobody else accepts it. Needs a key, as an end does.
            expires_at: When it ends, in ms since the epoch, a `datetime`, or a text in ISO 8601; never when None. Five minutes after it is signed by default.
            ttl_seconds: The same, as seconds from now on.

        Raises:
            MessageNotFoundError: A message is unknown.
            WrongChatError: They are of several chats.
            InvalidValueError: There is neither key nor anchor, it would be over already, or the anchor does not have a message, lacks its
                leaves, or is of another ledger.
            ConfigurationError: The key cannot be read, or `cryptography` is missing.
            CorruptStateError: The index is damaged.
            LogUnavailableError: The log did not answer.

        Source: the index, and the events of the messages. Costs O(log n) hashes of n events of the chat for each.
        """
        ids = (message_ids,) if isinstance(message_ids, str) else message_ids
        ids = tuple(dict.fromkeys(sought_id(message_id, "a message id") for message_id in ids))
        if not ids or (key is None and anchor is None):
            msg = "name messages to prove, and a key to sign with, or an anchor that has them"
            raise InvalidValueError(msg)
        signer, now = None if key is None else load_private_key(key), clock_ms()
        terms = _terms_of(Ending(expires_at, ttl_seconds), audience, now, is_signed=signer is not None)
        positions = {message_id: message_position(self, message_id) for message_id in ids}
        # Not inside a snapshot: of a ledger at rest the index is closed before its log is opened.
        states = self._store.bytes_at(sorted({position for position in positions.values() if position is not None}))
        events: dict[int, ChosenEvent] = {}
        with self._store.snapshot(ChatsToRead(message_ids=ids)) as snapshot:
            located = snapshot.find(ids[0])
            if located is None:
                raise MessageNotFoundError(ids[0])
            chat = snapshot.chat(located[0].chat_id)
            tree = tree_of(snapshot, chat)
            for message_id, position in positions.items():
                state = None if position is None else states.get(position)
                if position is None or state is None:
                    raise MessageNotFoundError(message_id)
                message = chat.message(message_id)
                if message is None:
                    raise WrongChatError(message_id, chat_id=chat.chat_id)
                number = _number_of(tree, chat, message_id)
                event = events.setdefault(number, ChosenEvent(position, state, [], {}))
                event.message_ids.append(message_id)
                event.large.update((part.digest, part.data) for part in take_out(message.data).large)
            payload = payload_of(
                events,
                tree=tree.subtree,
                size=tree.size,
                anchor=anchor,
                issued_at=None if signer is None else now,
                terms=terms,
                public_key=None if signer is None else signer.public_key().public_bytes_raw(),
            )
        return token_of(payload) if signer is None else token_of(payload, signer.sign(payload))

    @system_errors("reading the index for a proof")
    def still_valid(self, excerpt: str) -> ExcerptStanding:
        """
        Say whether what an excerpt shows is still so in this ledger: one that took its chat in by a bundle tells as well.

        Neither its signature nor its end is checked: see `chatledger.admin.check_excerpt`.

        Raises:
            InvalidValueError: It is no excerpt, or was changed.
            CorruptStateError: The index is damaged.

        Source: the index. Costs O(log n) for each message.
        """
        read = read_excerpt(excerpt)
        gone: list[str] = []
        redacted: list[str] = []
        revoked: list[str] = []
        superseded: list[str] = []
        with self._store.snapshot(ChatsToRead(sought_id(read.chat_id, "chat_id"))) as snapshot:
            chat = snapshot.chat(read.chat_id)
            tree = None if chat.record is None else tree_of(snapshot, chat)
            for event in read.events:
                is_here = tree is not None and event.number < tree.size and tree.entry(event.number).hash == event.hash
                for shown in event.messages:
                    message = chat.message(shown.id) if is_here else None
                    if message is None:
                        gone.append(shown.id)
                        continue
                    annotation = chat.annotation(message.id) or Annotation()
                    if message.redacted is not None:
                        redacted.append(message.id)
                    if annotation.hidden:
                        revoked.append(message.id)
                    if annotation.stale or annotation.replaced_by or _is_left(chat, message, event.branch):
                        superseded.append(message.id)
        return ExcerptStanding(tuple(gone), tuple(redacted), tuple(revoked), tuple(superseded))

    @system_errors("reading the index for a proof")
    def prove_growth(self, chat_id: str, earlier: Anchor, later: Anchor) -> GrowthProof:
        """
        Return the proof that between two anchors a chat only grew: all that it had at the first it had at the second, unchanged.

        Check it with `GrowthProof.check`, with the two anchors without their leaves.

        Args:
            chat_id: The chat.
            earlier: An anchor of this ledger, with its leaves.
            later: A later one, with its leaves.

        Raises:
            ChatNotFoundError: There is no such chat.
            InvalidValueError: An anchor does not have the chat or lacks its leaves, is of another ledger, or the chat was deleted and
                begun anew in between.
            CorruptStateError: The index is damaged.

        Source: the index. Costs O(log n) hashes of n events of the chat.
        """
        chat_id = sought_id(chat_id, "chat_id")
        with self._store.snapshot(ChatsToRead(chat_id)) as snapshot:
            chat = snapshot.chat(chat_id)
            if chat.record is None:
                raise ChatNotFoundError(chat_id)
            tree = tree_of(snapshot, chat)
            return prove_growth(
                chat_id,
                earlier,
                later,
                events=tree.subtree,
                first_position=tree.entry(0).position,
                size=chat.record.head.size,
            )


def tree_of(snapshot: LedgerSnapshot, chat: IndexedChat) -> StreamTree:
    assert chat.record is not None, "the chat is there"
    assert chat.stream_no is not None, "the chat is there"
    return StreamTree(snapshot.txn, snapshot.tables, chat.stream_no, chat.record.head)


def _number_of(tree: StreamTree, chat: IndexedChat, message_id: str) -> int:
    return tree.place_of_message(chat.ordinal(chat.place_of(message_id)))[0]


def message_position(ledger: LedgerPart, message_id: str) -> int | None:
    """Return the position on the log of the event that brought a message; None where the ledger has none of that id."""
    with store_of(ledger).snapshot(ChatsToRead(message_ids=(message_id,))) as snapshot:
        located = snapshot.find(message_id)
        if located is None:
            return None
        chat = snapshot.chat(located[0].chat_id)
        tree = tree_of(snapshot, chat)
        return tree.entry(_number_of(tree, chat, message_id)).position


def _terms_of(ending: Ending, audience: str | None, now: int, *, is_signed: bool) -> Terms | None:
    """Return the terms of an excerpt that is issued now, which somebody must sign."""
    ends_at = ending.at(now)
    if not is_signed:
        if audience is None and not isinstance(ends_at, int):
            return None
        msg = "an audience and an end hold by a signature alone: give a key, too"
        raise InvalidValueError(msg)
    ends_at = now + _TTL_MS if isinstance(ends_at, UnsetType) else ends_at
    if ends_at is not None and ends_at <= now:
        msg = "the excerpt would be over before it is read"
        raise InvalidValueError(msg)
    return Terms(secrets.token_bytes(_NONCE_BYTES), ends_at, audience)


def _is_left(chat: IndexedChat, message: Message, branch: int | None) -> bool:
    """Whether the branch on which a message was said leads past it now, or the active one through another version of it."""
    assert chat.record is not None, "the chat has the message"
    active = chat.branch_record(chat.record.active_branch)
    own = None if branch is None else chat.numbered_branch(branch) or active
    if own is not None and (own.head_message_id is None or not chat.is_ancestor(message.id, own.head_message_id)):
        return True
    depth = chat.depth(message.id)
    if active is None or active.head_message_id is None or active.message_count <= depth:
        return False
    version = chat.message(chat.ancestor(active.head_message_id, depth))
    return version is not None and version.id != message.id and version.parent_id == message.parent_id


def check_excerpt(
    excerpt: str,
    public_key: PemSource | None = None,
    *,
    audience: str | None = None,
    anchor_key: PemSource | None = None,
) -> Excerpt:
    """
    Check an excerpt, its signatures included, without a ledger; return what it says.

    Args:
        excerpt: The text that `Ledger.prove` returned.
        public_key: The key of whom you trust to have signed it, and its anchor: the path of a PEM file, or its bytes. Without it only
            the key that the excerpt itself names is checked, which anybody can make.
        audience: Who you are, where it is for you alone.
        anchor_key: The key of whom you trust to have signed its anchor, where that is somebody else.

    Raises:
        InvalidValueError: It does not hold: it was changed, somebody else signed it, it is for somebody else, or it expired.
        ConfigurationError: A key cannot be read, or `cryptography` is missing.
    """
    read = read_excerpt(excerpt)
    trusted = None if public_key is None else load_public_key(public_key)
    if read.public_key is not None:
        check_signed(
            read.payload,
            signature=read.signature,
            signer=read.public_key,
            public_key=trusted,
            what=f"excerpt of chat {read.chat_id!r}",
        )
    if read.anchor is not None:
        check_signature(read.anchor, trusted if anchor_key is None else load_public_key(anchor_key))
    read.check_terms(audience, clock_ms())
    return read

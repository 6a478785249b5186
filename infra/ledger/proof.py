"""Proof that nothing was changed: verifying the log and the index, and anchors for third parties."""

from chatledger.domain.errors import MessageNotFoundError
from chatledger.domain.limits import sought_id
from chatledger.domain.proof.anchors import Anchor
from chatledger.domain.proof.message_proof import MessageProof, prove_message
from chatledger.domain.proof.verification import Verification
from chatledger.domain.values import Message, Progress, no_progress
from chatledger.projections.lmdb.system_errors import system_errors

from ..log.envelope import clock_ms
from ..store.commands import ChatsToRead
from ..store.signing import PemSource, check_signature, load_private_key, load_public_key, sign
from .port import LedgerPart


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

        store = self._store.whole("verify")
        store.check_open()
        if anchor is not None:
            check_signature(anchor, None if public_key is None else load_public_key(public_key))
            anchor.check_leaves()
        store.scratch.remove_abandoned()
        with store.scratch.folder() as folder:
            return verify(
                store.log,
                store.index,
                catch_up=store.projector.catch_up,
                folder=folder,
                anchor=anchor,
                progress=progress or no_progress,
            )

    @system_errors("reading the log for an anchor")
    def anchor(self, key: PemSource, *, progress: Progress | None = None) -> Anchor:
        """
        Sign where every chat ends now, so that a third party can tell later that nothing before it was changed.

        The whole log is read and checked first, so that nothing is signed that is not sound. Keep the result, `to_json()`,
        where whoever can change the log cannot change it; see `verify`.

        Args:
            key: An Ed25519 private key: the path of a PEM file, or its bytes.
            progress: Called with (positions done, positions in all).

        Raises:
            ChainIntegrityError, CorruptStateError, UnsupportedFormatError: The log is not sound; nothing is signed.
            ConfigurationError: The key cannot be read, or `cryptography` is missing.
            LogUnavailableError: The log did not answer.

        Source: the log; the index is not asked.
        """
        from chatledger.projections.verify.verification import read_heads

        store = self._store.whole("anchor")
        private_key = load_private_key(key)
        store.check_open()
        store.scratch.remove_abandoned()
        with store.scratch.folder() as folder:
            position, leaves = read_heads(store.log, folder=folder, progress=progress or no_progress)
        return sign(leaves, position=position, created_at=clock_ms(), key=private_key)

    @system_errors("reading the log for a proof")
    def prove(self, message_id: str, anchor: Anchor) -> MessageProof:
        """
        Return the proof that a message was there when an anchor was signed, for somebody who does not get the ledger.

        The proof has the content of the event that brought the message, so also of messages that were written in the same call; of
        others nothing but positions and hashes.
        Check it with `MessageProof.check` and `check_message_proof`, or by `chatledger check-proof`.

        Args:
            message_id: The message.
            anchor: A whole anchor of this ledger, with its leaves, made after the message.

        Raises:
            MessageNotFoundError: It is unknown.
            InvalidValueError: The anchor does not have the message, or lacks its leaves, or is of another ledger.
            LogUnavailableError: The log did not answer.

        Source: the log; all events of the chat are read.
        """
        message_id = sought_id(message_id, "message_id")
        with self._store.snapshot(ChatsToRead(message_ids=(message_id,))) as snapshot:
            found = snapshot.find(message_id)
            if found is None:
                raise MessageNotFoundError(message_id)
            chat_id = found[0].chat_id
        events = list(self._store.events(0, stream_id=chat_id))
        return prove_message(message_id, events, anchor, self._store.event_bytes)


def check_message_proof(proof: MessageProof, public_key: PemSource | None = None) -> Message:
    """
    Check the proof of a message, its signature included, without a ledger; return the message.

    Args:
        proof: The proof.
        public_key: The key of whom you trust to have signed the anchor: the path of a PEM file, or its bytes. Without it only the
            key that the proof itself names is checked, which anybody can make.

    Raises:
        InvalidValueError: It does not hold, or somebody else signed it.
        ConfigurationError: The key cannot be read, or `cryptography` is missing.
    """
    check_signature(proof.anchor, None if public_key is None else load_public_key(public_key))
    return proof.check()

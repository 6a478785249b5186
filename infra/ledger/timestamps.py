"""Time stamps of anchors (RFC 3161): what an authority, and not the signer's clock, says of when an anchor was there."""

import hashlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from chatledger.domain.errors import ConfigurationError, InvalidValueError
from chatledger.domain.proof.anchors import Anchor
from chatledger.domain.wire import Value

from .proof import PemSource, pem_of

if TYPE_CHECKING:
    from cryptography import x509

_HASHES: Final = {
    "2.16.840.1.101.3.4.2.1": "sha256",
    "2.16.840.1.101.3.4.2.2": "sha384",
    "2.16.840.1.101.3.4.2.3": "sha512",
}


class TimeStamp(Value, frozen=True, kw_only=True):
    """
    What an authority says of an anchor.

    Args:
        at: When it was there at the latest, in ms.
        authority: The subject of the certificate that signed the time stamp; None where that is not in it.
        is_trusted: Whether it leads to a root certificate that was given. Else anybody may have made it.
    """

    at: int
    authority: str | None
    is_trusted: bool


def timestamp_request(anchor: Anchor) -> bytes:
    """
    Return the request for a time stamp of an anchor, as an authority takes it (`application/timestamp-query`).

    It has the SHA-256 of the anchor's signature, and nothing of the log.

    Raises:
        ConfigurationError: `rfc3161-client` is missing.
    """
    _require_library()
    from rfc3161_client import HashAlgorithm, TimestampRequestBuilder

    return TimestampRequestBuilder().data(anchor.signature).hash_algorithm(HashAlgorithm.SHA256).build().as_bytes()


def stamped(anchor: Anchor, response: bytes) -> Anchor:
    """
    Return an anchor with the time stamp of an authority, which travels with its proofs and bundles.

    Args:
        anchor: The anchor.
        response: The answer to `timestamp_request(anchor)` (`application/timestamp-reply`).

    Raises:
        InvalidValueError: It is no time stamp, or one of something else.
        ConfigurationError: `rfc3161-client` is missing.
    """
    with_stamp = replace(anchor, timestamp=response)
    check_timestamp(with_stamp)
    return with_stamp


def check_timestamp(anchor: Anchor, roots: PemSource | None = None) -> TimeStamp | None:
    """
    Check the time stamp of an anchor; None where it has none and none is asked for.

    Args:
        anchor: The anchor. Its signature is not looked at.
        roots: The root certificates that you trust: the path of a PEM file, or its bytes. Without them only what is stamped is checked.

    Raises:
        InvalidValueError: It is a stamp of something else, it was changed, it leads to no root that is given, or there is none.
        ConfigurationError: The certificates cannot be read, or `rfc3161-client` is missing.
    """
    what = f"anchor of position {anchor.position}"
    if not anchor.timestamp:
        if roots is not None:
            msg = f"the {what} has no time stamp; 'chatledger timestamp' asks for one and adds it"
            raise InvalidValueError(msg)
        return None
    _require_library()
    from cryptography import x509
    from rfc3161_client import VerificationError, VerifierBuilder, decode_timestamp_response

    try:
        response = decode_timestamp_response(anchor.timestamp)
        imprint = response.tst_info.message_imprint
        hash_name = _HASHES.get(imprint.hash_algorithm.dotted_string, "")
        is_of_it = bool(hash_name) and hashlib.new(hash_name, anchor.signature).digest() == imprint.message
        signers = [x509.load_der_x509_certificate(der) for der in response.signed_data.certificates]
    except ValueError as error:
        msg = f"the time stamp of the {what} is none, or was refused ({error}); ask the authority again"
        raise InvalidValueError(msg) from error
    if not is_of_it:
        msg = f"the time stamp is not of the {what}; take the answer to the request that was made for it"
        raise InvalidValueError(msg)
    if roots is not None:
        verifier = VerifierBuilder(roots=_certificates(roots)).build()
        try:
            verifier.verify_message(response, anchor.signature)
        except (VerificationError, ValueError) as error:
            msg = f"the time stamp of the {what} does not lead to a certificate that you trust: {error}"
            raise InvalidValueError(msg) from error
    numbers = {signer.serial_number for signer in response.signed_data.signer_infos}
    names = {each.subject.rfc4514_string() for each in signers if each.serial_number in numbers}
    return TimeStamp(
        at=round(response.tst_info.gen_time.timestamp() * 1000),
        # Nobody signs the list of certificates: whoever adds one of the same number could choose the name that is shown.
        authority=names.pop() if len(names) == 1 else None,
        is_trusted=roots is not None,
    )


def _certificates(source: PemSource) -> "list[x509.Certificate]":
    from cryptography import x509

    pem = pem_of(source, f"the certificates {source!s} cannot be read")
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        msg = f"there is no certificate (PEM) in what was given as roots: {error}"
        raise ConfigurationError(msg) from error


def _require_library() -> None:
    if find_spec("rfc3161_client") is None:
        msg = "time stamps need rfc3161-client: pip install 'chatledger[timestamps]'"
        raise ConfigurationError(msg)

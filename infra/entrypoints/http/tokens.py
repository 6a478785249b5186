"""JSON Web Tokens: callers known by a token that an identity provider signed. Extra: `jwt`."""

import logging
import time
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, cast, get_args
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import anyio
import anyio.to_thread
import msgspec
from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey

from chatledger.domain.errors import ConfigurationError

from .access import Principal, Scope, credential_of

ALGORITHMS: Final = [
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519", "EdDSA"),
]
"""Algorithms with a public key. With a shared secret, everybody who checks tokens could make one."""

LEEWAY_S: Final = 30
_KEEP_S: Final = 3600.0
_PAUSE_S: Final = 30.0
_TIMEOUT_S: Final = 5.0
_MAX_KEYS_BYTES: Final = 1 << 20
_DEFAULT_SCOPES: Final[frozenset[Scope]] = frozenset({"read", "write"})
_NAME: Final = "jwt"
_Public = RSAKey | ECKey | OKPKey
_log: Final = logging.getLogger("chatledger.server")


class JsonWebTokens:
    """
    Authentication by `Authorization: Bearer <token>`.

    A token counts when one of the provider's keys signed it, it has not expired, and issuer and audience are these. Scopes are
    the words `read`, `write` and `admin` of its claim `scope` or `scp`, also as `chatledger:read`; a token with none of them
    may read and write what its user owns.

    Args:
        jwks: The provider's public keys, a JSON Web Key Set: a file, or a URL. They are read again each hour, and when a token
            names a key that is not among them.
        issuer: What the claim `iss` has to be.
        audience: What the claim `aud` has to be or contain. Not looked at when None: then tokens for other applications of the
            same issuer count too.
        user_claim: The claim that is the user's id.

    Raises:
        ConfigurationError: The keys are in a file that cannot be read, or the URL is neither https nor on this machine.
    """

    def __init__(self, jwks: str, *, issuer: str, audience: str | None = None, user_claim: str = "sub") -> None:
        self._jwks, self._user_claim = jwks, user_claim
        claims: dict[str, Any] = {
            "iss": {"essential": True, "value": issuer},
            "exp": {"essential": True},
            user_claim: {"essential": True},
        }
        if audience is not None:
            claims["aud"] = {"essential": True, "value": audience}
        self._claims = jwt.JWTClaimsRegistry(leeway=LEEWAY_S, **claims)
        self._keys: list[_Public] = []
        self._read_at = self._tried_at = float("-inf")
        self._reading = anyio.Lock()
        _check_is_safe(jwks)
        self._is_remote = urlsplit(jwks).scheme in {"http", "https"}
        if not self._is_remote:
            self._keys, self._read_at = _keys_in(_read_file(jwks)), time.monotonic()

    async def __call__(self, headers: Mapping[str, str]) -> Principal | None:
        token = credential_of(headers)
        if token is None or token.count(".") != 2:
            return None
        try:
            key_id = jws.extract_compact(token.encode()).headers().get("kid")
        except (JoseError, ValueError, TypeError):
            return None
        await self._refresh(key_id)
        # A set may have several keys of one id, or without any: each is tried.
        for key in self._keys:
            if key_id is not None and key.kid != key_id:
                continue
            try:
                claims = jwt.decode(token, key, algorithms=ALGORITHMS).claims
                self._claims.validate(claims)
            except (JoseError, ValueError, TypeError) as error:
                _log.debug("a token is refused: %s", error)
                continue
            user_id = claims.get(self._user_claim)
            if isinstance(user_id, str) and user_id:
                claim = claims.get("scope", claims.get("scp"))
                words: list[Any] = (
                    claim.split()
                    if isinstance(claim, str)
                    else cast("list[Any]", claim)
                    if isinstance(claim, list)
                    else []
                )
                scopes: tuple[Scope, ...] = get_args(Scope)
                named: frozenset[Scope] = frozenset(
                    scope for scope in scopes if scope in words or f"chatledger:{scope}" in words
                )
                return Principal(user_id, (named or _DEFAULT_SCOPES), _NAME)
        return None

    async def _refresh(self, key_id: Any) -> None:
        """Read the keys again where they are old, or lack the one that a token names; at most every 30 s."""
        if self._is_fresh(key_id):
            return
        async with self._reading:
            if self._is_fresh(key_id):
                return
            self._tried_at = time.monotonic()
            try:
                read = _fetch if self._is_remote else _read_file
                self._keys = _keys_in(await anyio.to_thread.run_sync(read, self._jwks))
                self._read_at = time.monotonic()
            except (ConfigurationError, OSError) as error:
                _log.warning("the keys at %s cannot be read: %s", self._jwks, error)

    def _is_fresh(self, key_id: Any) -> bool:
        # A token names what key it likes: without the pause strangers could have the provider asked with each request.
        now = time.monotonic()
        is_known = bool(self._keys) and (key_id is None or any(key.kid == key_id for key in self._keys))
        return (is_known and now - self._read_at < _KEEP_S) or now - self._tried_at < _PAUSE_S


def _read_file(path: str) -> bytes:
    try:
        with Path(path).open("rb") as stream:
            return stream.read(_MAX_KEYS_BYTES)
    except OSError as error:
        msg = f"cannot read the keys in {path}: {error.strerror}"
        raise ConfigurationError(msg) from error


def _fetch(url: str) -> bytes:
    request = Request(url, headers={"Accept": "application/json"})  # noqa: S310 - http and https only, see above
    try:
        with urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
            _check_is_safe(answer.url)  # where it was led to
            body: bytes = answer.read(_MAX_KEYS_BYTES)
    except HTTPException as error:
        msg = f"{url} answers what is no HTTP: {error!r}"
        raise ConfigurationError(msg) from error
    return body


def _check_is_safe(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in {"localhost", "127.0.0.1", "::1"}:
        msg = f"{url} can be changed on its way: keys come by https, or from a file"
        raise ConfigurationError(msg)


def _keys_in(encoded: bytes) -> list[_Public]:
    """The public keys for signatures of a key set; others are left out."""
    # `oct` keys are shared secrets, which none of ALGORITHMS takes.
    try:
        key_set = msgspec.json.decode(encoded, type=dict[str, Any])
        keys = KeySet.import_key_set({"keys": [key for key in key_set["keys"] if key.get("kty") != "oct"]})
    except (JoseError, msgspec.DecodeError, KeyError, ValueError, TypeError, AttributeError) as error:
        msg = f"what was found is no JSON Web Key Set: {error}"
        raise ConfigurationError(msg) from error
    return [key for key in keys.keys if isinstance(key, _Public) and key.get("use") in {None, "sig"}]

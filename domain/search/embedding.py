"""Embeddings: the function that turns texts into vectors, the pieces of long texts, and the fusion of rankings."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

from ..errors import ConfigurationError
from ..packing import readable_text

SearchMode = Literal["words", "meaning", "both"]
Ranking = Literal["words", "meaning"]
MODES: Final[tuple[SearchMode, ...]] = get_args(SearchMode)
EmbedTexts = Callable[[Sequence[str]], Iterable[Iterable[float]]]
"""Returns one vector for each text, all of the same length; numbers of NumPy or Python. May call a network, and may fail."""

BATCH: Final = 64
PIECE_CHARS: Final = 2_000
QUERY_TIMEOUT_S: Final = 15.0
MAX_PIECES: Final = 16
"""So many pieces of a message have vectors; what follows them is found by its words only."""
_MOST_DIMENSIONS: Final = 16_384
_MOST_NAME: Final = 256
_MOST_BATCH: Final = 4_096
_LEAST_PIECE: Final = 64
_DIGEST_BYTES: Final = 16
FUSION_K: Final = 60
"""The constant of reciprocal rank fusion (Cormack, Clarke and Buettcher 2009)."""

K = TypeVar("K", bound=Hashable)


class Embedding:
    """
    An embedding: a function from texts to vectors, and the name of its model.

    Args:
        function: Called with a list of at most `batch` texts; returns a vector for each. It runs in a thread of its own, never
            inside a write, and may take long, call a network or fail: it is called again then.
        name: The name and version of the model. Vectors are kept under it: another name means other vectors, and all
            messages are embedded anew.
        dimensions: The length of each vector.
        query: For models that embed questions differently from texts; the same function when None.
        batch: At most so many texts in one call (1 to 4,096).
        piece_chars: A message that is longer is embedded in pieces of at most so many characters (>= 64), cut at blanks where
            possible, the first 16 of them; it is as near as the nearest piece.
        query_timeout_s: A search waits so long for the vector of its query. Then it goes by words, or fails where only the meaning was
            asked for; the call itself cannot be stopped, and goes on in its thread.

    Raises:
        ConfigurationError: An argument breaks a rule.
    """

    __slots__ = ("batch", "dimensions", "function", "name", "piece_chars", "query", "query_timeout_s")

    def __init__(
        self,
        function: EmbedTexts,
        name: str,
        dimensions: int,
        *,
        query: EmbedTexts | None = None,
        batch: int = BATCH,
        piece_chars: int = PIECE_CHARS,
        query_timeout_s: float = QUERY_TIMEOUT_S,
    ) -> None:
        if not callable(function) or not (query is None or callable(query)):
            msg = "the function of an embedding must be callable: it is given a list of texts and returns a vector for each"
            raise ConfigurationError(msg)
        if not isinstance(name, str) or not 0 < len(name) <= _MOST_NAME:
            msg = f"the name of an embedding must be text of 1 to {_MOST_NAME} characters, such as 'all-MiniLM-L6-v2'"
            raise ConfigurationError(msg)
        self.function, self.name = function, name
        self.dimensions = _checked(dimensions, "dimensions", 1, _MOST_DIMENSIONS)
        self.query = function if query is None else query
        self.batch = _checked(batch, "batch", 1, _MOST_BATCH)
        self.piece_chars = _checked(piece_chars, "piece_chars", _LEAST_PIECE, None)
        if isinstance(query_timeout_s, bool) or not isinstance(query_timeout_s, int | float) or not query_timeout_s > 0:
            msg = f"query_timeout_s must be a number of seconds above 0, not {query_timeout_s!r}"
            raise ConfigurationError(msg)
        self.query_timeout_s = query_timeout_s

    @property
    def key(self) -> str:
        """The name of the place of its vectors: the same for embeddings with the same name, dimensions and pieces."""
        facts = f"{self.name}\n{self.dimensions}\n{self.piece_chars}"
        return sha256(facts.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def pieces(self, text: str) -> list[str]:
        """Return the pieces of a text that have vectors of their own; see `pieces_of`."""
        return pieces_of(text, self.piece_chars)

    def __repr__(self) -> str:
        return f"<Embedding {self.name!r}, {self.dimensions} dimensions>"


def check_embedding(embed: Any) -> Embedding | None:
    """Return what was given as `embed`. Raises `ConfigurationError` for what is no embedding."""
    if not isinstance(embed, Embedding | None):
        msg = f"embed must be a chatledger.Embedding, not {type(embed).__name__}: Embedding(function, name, dimensions)"
        raise ConfigurationError(msg)
    return embed


def _checked(value: Any, what: str, least: int, most: int | None) -> int:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or value < least or (most is not None and value > most):
        beyond = f"of at least {least:,}" if most is None else f"from {least:,} to {most:,}"
        msg = f"{what} of an embedding must be a number {beyond}, not {value!r}"
        raise ConfigurationError(msg)
    return int(value)


def pieces_of(text: str, chars: int) -> list[str]:
    """
    Return a text in pieces of at most so many characters, at most 16 of them; none of an empty one.

    A piece ends at the last blank in its second half, if there is one. Blanks around pieces are dropped.
    """
    rest = readable_text(text).strip()
    pieces: list[str] = []
    while rest and len(pieces) < MAX_PIECES:
        end = len(rest)
        if end > chars:
            end = chars
            blank = next((at for at in range(chars, chars // 2, -1) if rest[at].isspace()), None)
            end = chars if blank is None else blank
        pieces.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    return pieces


def piece_digest(piece: str) -> bytes:
    """The key of the content of a piece: equal pieces share a vector that was computed once."""
    return sha256(piece.encode("utf-8", "surrogatepass")).digest()[:_DIGEST_BYTES]


def role_key(name: str) -> int:
    """A number from 0 to 2**63 - 1 for the name of a role, to filter by."""
    return int.from_bytes(sha256(name.encode("utf-8", "surrogatepass")).digest()[:8], "big") >> 1


class Fused(NamedTuple):
    """
    A key with its place in a fusion of rankings.

    Args:
        score: The sum of `1 / (60 + place)` over the rankings that have it; higher is better.
        places: Its place in each of these, from 1.
    """

    score: float
    places: dict[Ranking, int]


def fused(rankings: Mapping[Ranking, Sequence[K]], *, k: int = FUSION_K) -> list[tuple[K, Fused]]:
    """
    Merge rankings by reciprocal rank fusion, best first; of equal ones the one that an earlier ranking has before.

    Of a key that a ranking has twice, the first place counts.
    """
    places: dict[K, dict[Ranking, int]] = {}
    for name, ranking in rankings.items():
        for place, key in enumerate(ranking, 1):
            places.setdefault(key, {}).setdefault(name, place)
    scored = [(key, Fused(sum(1 / (k + place) for place in of_key.values()), of_key)) for key, of_key in places.items()]
    return sorted(scored, key=lambda entry: -entry[1].score)

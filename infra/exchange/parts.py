"""UIMessage parts for what exports of several applications have: texts, thoughts, sources, and anything else as it came."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

Part = dict[str, Any]


class SourceLink(NamedTuple):
    """
    A page that an answer cites, or that a search found.

    Args:
        url: Its address; None where the export names none, which leaves the record as data.
        title: Its title.
        source_id: What the text calls it, as `turn0search1`; the address where nothing else is said.
        place: Where the text cites it; None where it does not.
        record: What the export says of it.
    """

    url: str | None
    title: str | None
    source_id: str | None
    place: Any
    record: dict[str, Any]


def text_part(text: str) -> Part:
    return {"type": "text", "text": text}


def reasoning_part(text: str, provider: str, details: Mapping[str, Any] | None = None) -> Part:
    """Return a part for what a model thought; `details` is what its application says of it besides."""
    part = {"type": "reasoning", "text": text}
    return part | ({"providerMetadata": {provider: dict(details)}} if details else {})


def data_part(provider: str, original: Any) -> Part:
    """Return a part for what no other type of part says, as it came."""
    return {"type": f"data-{provider}", "data": original}


def source_parts(provider: str, links: Iterable[SourceLink]) -> Iterator[Part]:
    """Yield a `source-url` part for each page at each place that cites it; data for what has no address."""
    seen: set[tuple[str, ...]] = set()
    for url, title, source_id, place, record in links:
        if url is None:
            yield data_part(provider, record)
            continue
        # Exports name one page in several lists: a hit of a search that is cited too is there already.
        keys = (url,), (url, source_id or ""), (url, source_id or "", str(place))
        is_repeated = keys[2] in seen if place is not None else keys[1 if source_id else 0] in seen
        seen.update(keys)
        if not is_repeated:
            part: Part = {"type": "source-url", "sourceId": source_id or url, "url": url}
            part |= {"title": title} if title else {}
            yield part | {"providerMetadata": {provider: record}}

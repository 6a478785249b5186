"""Verify a bundle of chatledger without chatledger: standard library, and for the signature the package cryptography.

python verify_bundle.py BUNDLE [--public-key PEM]
"""

import argparse
import json
import struct
import sys
from base64 import b64decode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

START, FORMAT = b"chatledger-bundle/1\n", "chatledger-anchor/2"
NOTHING, DIGEST = b"\xc0", b"\xc4\x20"  # slots without content
MESSAGES = "message_appended/2"
Frame = tuple[bytes, bytes]


def check(is_so: object, otherwise: str) -> None:
    """Refuse what is not so."""
    if not is_so:
        raise ValueError(otherwise)


def frames(content: bytes) -> Iterator[Frame]:
    """Yield kind and body of each frame."""
    check(content.startswith(START), "this is no bundle")
    at = len(START)
    while at < len(content):
        check(at + 5 <= len(content), "it is cut off")
        end = at + 5 + int.from_bytes(content[at + 1 : at + 5])
        check(end <= len(content), "it is cut off")
        yield content[at : at + 1], content[at + 5 : end]
        at = end


def skip(data: bytes, at: int, large: list[bytes]) -> int:
    """Return where a value of msgpack ends, and note the digests of large data in it."""
    first = data[at]
    if first <= 0x7F or first >= 0xE0 or first in (0xC0, 0xC2, 0xC3):
        return at + 1
    if first <= 0x9F:  # small maps and lists
        return skip_all(data, at + 1, (first & 15) * (2 if first <= 0x8F else 1), large)
    if first <= 0xBF:
        return ended(data, at + 1 + (first & 31))
    if first in (0xDC, 0xDD, 0xDE, 0xDF):
        width = 2 if first in (0xDC, 0xDE) else 4
        count = int.from_bytes(data[at + 1 : at + 1 + width])
        return skip_all(data, at + 1 + width, count * (2 if first >= 0xDE else 1), large)
    if first in (0xC4, 0xC5, 0xC6, 0xD9, 0xDA, 0xDB):
        width = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}[first]
        return ended(data, at + 1 + width + int.from_bytes(data[at + 1 : at + 1 + width]))
    if first in (0xC7, 0xC8, 0xC9):
        width = {0xC7: 1, 0xC8: 2, 0xC9: 4}[first]
        size, code = int.from_bytes(data[at + 1 : at + 1 + width]), data[at + 1 + width]
        end = ended(data, at + 2 + width + size)
        if code in (4, 5):
            large.append(data[end - size : end])
        return end
    sizes = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
    sizes |= {0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}
    check(first in sizes, "this is no msgpack")
    return ended(data, at + 1 + sizes[first])


def skip_all(data: bytes, at: int, count: int, large: list[bytes]) -> int:
    """Return where so many values end."""
    for _ in range(count):
        at = skip(data, at, large)
    return at


def ended(data: bytes, end: int) -> int:
    """Return an end, if the data go so far."""
    check(end <= len(data), "an event is cut off")
    return end


def parts_of(event: bytes, large: list[bytes]) -> list[list[bytes]]:
    """Return structure, who and what of the head and of each part."""
    check(event.startswith(b"\x93\x02"), "this is no event")
    parts, at, count, number = [], 2, 1, 0
    while number < count:
        check(event[at : at + 1] == b"\x93", "a part of an event has another form")
        ends = [at + 1]
        for _ in range(3):
            ends.append(skip(event, ends[-1], large if number else []))
        parts.append([event[ends[n] : ends[n + 1]] for n in range(3)])
        at, number = ends[3], number + 1
        if number == 1:
            count = 1 + (
                event[at] & 15
                if event[at] < 0xA0
                else int.from_bytes(event[at + 1 : at + (3 if event[at] == 0xDC else 5)])
            )
            if count <= 16:
                header = bytes([0x90 | count - 1])
            else:
                header = b"\xdc" + (count - 1).to_bytes(2) if count <= 0x10000 else b"\xdd" + (count - 1).to_bytes(4)
            check(event[at : at + len(header)] == header, "the list of parts has another form")
            at += len(header)
    check(at == len(event), "something follows an event")
    return parts


def committed(slot: bytes) -> bytes:
    """Return a slot without its content."""
    if slot == NOTHING or (len(slot) == 34 and slot.startswith(DIGEST)):
        return slot
    check(0x92 <= slot[0] <= 0x9F and slot[1:3] == b"\xc4\x10", "a slot of an event has another form")
    return DIGEST + sha256(slot).digest()


def event_hash(parts: list[list[bytes]]) -> bytes:
    """Return the hash of an event."""
    head, *level = [sha256(b"\x10" + s + committed(who) + committed(what)).digest() for s, who, what in parts]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [*(sha256(b"\x11" + a + b).digest() for a, b in pairs), *(level[-1:] if len(level) % 2 else [])]
    root = level[0] if level else sha256(b"").digest()
    return sha256(b"\x12" + head + (len(parts) - 1).to_bytes(4) + root).digest()


def value(data: bytes, at: int) -> tuple[Any, int]:
    """Return a text, bytes or a whole number, and where it ends."""
    end, first = skip(data, at, []), data[at]
    if first <= 0x7F:
        return first, end
    if first in (0xCC, 0xCD, 0xCE, 0xCF):
        return int.from_bytes(data[at + 1 : end]), end
    start = at + {0xD9: 2, 0xDA: 3, 0xDB: 5, 0xC4: 2, 0xC5: 3, 0xC6: 5}.get(first, 1)
    check(0xA0 <= first <= 0xBF or start > at + 1, "the head of an event has another form")
    return data[start:end] if first in (0xC4, 0xC5, 0xC6) else data[start:end].decode(), end


def head_of(structure: bytes) -> list[Any]:
    """Return topic, stream, version, id, time, previous hash, and how many events of the commit follow."""
    at, values = 1 if structure[0] < 0xA0 else 3, []
    for _ in range(7):
        decoded, at = value(structure, at)
        values.append(decoded)
    return values


def grown(size: int, peaks: list[bytes], leaf: bytes) -> list[bytes]:
    """Return the peaks of a tree with one more leaf."""
    while size & 1:
        *peaks, left = peaks
        leaf, size = sha256(b"\x01" + left + leaf).digest(), size >> 1
    return [*peaks, leaf]


def root_of(peaks: list[bytes]) -> bytes:
    """Return the root over peaks."""
    *peaks, root = peaks
    for peak in reversed(peaks):
        root = sha256(b"\x01" + peak + root).digest()
    return root


def check_anchor(anchor: dict[str, Any], public_key: Path | None) -> None:
    """Check who signed the anchor."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError:
        sys.exit("verify_bundle: the package cryptography is missing, which checks the signature")
    key = b64decode(anchor["public_key"], validate=True)
    if public_key is not None:
        trusted: Any = load_pem_public_key(public_key.read_bytes())
        check(trusted.public_bytes_raw() == key, "somebody else signed it")
    check(
        anchor["format"] == FORMAT and anchor["key_id"] == sha256(key).hexdigest()[:32], "its anchor is of another kind"
    )
    check(anchor["leaves"] == [], "its anchor has leaves")
    fields = [f"{name} {anchor[name]}" for name in ("position", "created_at", "count")]
    root, signer = f"root {bytes.fromhex(anchor['root']).hex()}", f"key {key.hex()}"
    signed = "".join(f"{line}\n" for line in (FORMAT, *fields, root, signer)).encode()
    is_signed = True
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(b64decode(anchor["signature"], validate=True), signed)
    except InvalidSignature:
        is_signed = False
    check(is_signed, "the signature of its anchor is wrong")


def check_path(entry: dict[str, Any], anchor: dict[str, Any]) -> tuple[int, tuple[Any, ...]]:
    """Check that the anchor has a chat; return the size of its tree there, and what stands at its end."""
    digest, version, position, hash_, size, root = entry["leaf"]
    check(bytes.fromhex(digest) == sha256(entry["chat_id"].encode()).digest(), "the anchor has another chat")
    packed = struct.pack(
        ">c32sQQ32sQ32s",
        b"\0",
        bytes.fromhex(digest),
        version,
        position,
        bytes.fromhex(hash_),
        size,
        bytes.fromhex(root),
    )
    at, below = sha256(packed).digest(), 256
    for bit, other in entry["path"]:
        check(0 <= bit < below and len(other) == 64, "a path in the anchor has another form")
        is_right = bytes.fromhex(digest)[bit // 8] >> (7 - bit % 8) & 1
        pair = (bytes.fromhex(other), at) if is_right else (at, bytes.fromhex(other))
        at, below = sha256(b"\x01" + bit.to_bytes(2) + pair[0] + pair[1]).digest(), bit
    check(at == bytes.fromhex(anchor["root"]), "the anchor does not have the chat like this")
    return size, (version, position, bytes.fromhex(hash_), bytes.fromhex(root))


def check_chat(entry: dict[str, Any], anchor: dict[str, Any] | None, rest: Iterator[Frame]) -> str:
    """Check the events of a chat; return them in words."""
    size, hash_, last, version, left = entry["before"], None, 0, 0, 0
    peaks = [bytes.fromhex(entry["peaks"])[n : n + 32] for n in range(0, len(entry["peaks"]) // 2, 32)]
    check(len(entry["peaks"]) == 64 * size.bit_count(), "the hashes of what was before are missing")
    check((entry.get("leaf") is None) == (anchor is None), "the anchor is for other chats")
    signed, end = (0, ()) if anchor is None else check_path(entry, anchor)
    check(anchor is None or signed > size, "the anchor is older than all that is here")
    for number in range(entry["count"]):
        kind, body = next(rest, (b"", b""))
        check(kind == b"e", "events are missing")
        large: list[bytes] = []
        position, parts = int.from_bytes(body[:8]), parts_of(body[8:], large)
        topic, stream, now, _, _, previous, follow = head_of(parts[0][0])
        check(stream == entry["chat_id"], "an event is of another chat")
        is_start = number == 0 and (size or (now == 1 and previous == b"") or topic.startswith("chat_deleted/"))
        is_next = number and (now, previous) == (version + 1, hash_) and position > last and left in (0, follow + 1)
        check(is_start or is_next, f"event {now} does not follow event {version}")
        for reference in dict.fromkeys(large if topic == MESSAGES else []):
            kind, data = next(rest, (b"", b""))
            is_named = reference == len(data).to_bytes(8) + sha256(data).digest()
            check(kind == b"l" and is_named, "large data are missing or others")
        hash_, last, version, left = event_hash(parts), position, now, follow
        peaks, size = grown(size, peaks, sha256(b"\0" + body[:8] + hash_).digest()), size + 1
        check(size != signed or end == (version, position, hash_, root_of(peaks)), "the anchor has other events")
    check(hash_ is not None and hash_ == bytes.fromhex(entry["hash"]) and left == 0, "its end is another one")
    check(size >= signed, "events are missing that the anchor has")
    return f"chat {entry['chat_id']}: {entry['count']} events up to version {version}"


def verify(content: bytes, public_key: Path | None = None) -> list[str]:
    """Verify a bundle; return what it holds. Raises an error, whatever is wrong."""
    rest = frames(content)
    kind, body = next(rest, (b"", b""))
    check(kind == b"m", "it does not begin with a manifest")
    manifest = json.loads(body)
    chats, anchor = manifest["chats"], manifest.get("anchor")
    names = {"chat_id", "count", "hash", "before", "peaks", "leaf", "path"}
    is_known = manifest.keys() <= {"chats", "anchor"} and all(entry.keys() <= names for entry in chats)
    check(is_known, "its manifest has fields of another format")
    check(chats and len({entry["chat_id"] for entry in chats}) == len(chats), "it names no chat, or one twice")
    check(public_key is None or anchor is not None, "nobody signed it")
    if anchor is not None:
        check_anchor(anchor, public_key)
    said = [check_chat(entry, anchor, rest) for entry in chats]
    check(next(rest, None) is None, "something follows its last event")
    return said


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--public-key", type=Path)
    options = parser.parse_args()
    try:
        print("\n".join(verify(options.bundle.read_bytes(), options.public_key)))
    except Exception as error:
        sys.exit(f"verify_bundle: the bundle does not hold: {error}")

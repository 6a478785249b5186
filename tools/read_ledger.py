"""Read a backup of chatledger without chatledger: check all of it, and write its chats as JSON lines.

pip install msgpack zstandard; python read_ledger.py BACKUP [ID:BASE64 of a key ...] > FILE
"""

import json
import sys
import zlib
from base64 import b64decode
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgpack
import zstandard

SEGMENT_HEADER, ZSTD_MAGIC = b"chatledger-segment/1\n", b"\x28\xb5\x2f\xfd"
NOTHING, DIGEST, SALT = b"\xc0", b"\xc4\x20", b"\xc4\x10"  # how slots begin; one with content is an array with a salt
KINDS = "message branch checkpoint run regeneration".split()
MESSAGE = "id parent_id created_at name type form agent_id reply_to copied_from merged_from".split()
ANNOTATION = {"stale": False, "replaced_by": None, "hidden": False, "metadata": {}}
RUN = """id run_id thread_id assistant_id runtime trigger_message_id references message_id checkpoint_id status
created_at updated_at repeats regeneration_id metadata""".split()
RUN = dict.fromkeys(RUN) | {"runtime": "python", "metadata": {}}  # with what is left out
REGENERATION = "id edited_message_id new_message_id runs approved created_at carries".split()


def check(is_so: object, otherwise: str) -> None:
    if not is_so:
        raise ValueError(otherwise)


def unpack(packed: bytes, large: dict) -> Any:
    """Decode msgpack, and what it has no form for, given the large data that it may refer to."""

    def extension(code: int, raw: bytes) -> Any:
        if code in (4, 5):  # the size, then the digest
            check(raw[8:] in large, "large data is missing or damaged")
            raw = large[raw[8:]]
        if code in (2, 4):
            return raw.decode("utf-8", "surrogatepass")
        value = int(raw) if code == 1 else unpack(raw, large)
        return dict(zip(value[::2], value[1::2], strict=True)) if code == 3 else value

    return msgpack.unpackb(packed, strict_map_key=False, ext_hook=extension)


def read_frames(folder: Path, segments: list[dict]) -> Any:
    last = 0
    for segment in segments:
        content, at, positions = (folder / segment["file"]).read_bytes(), len(SEGMENT_HEADER), []
        is_same = content.startswith(SEGMENT_HEADER) and sha256(content).hexdigest() == segment["sha256"]
        check(is_same, f"{segment['file']} is no segment, or has another digest than the manifest says")
        while at < len(content):
            length, checksum = (int.from_bytes(content[start : start + 4], "big") for start in (at, at + 4))
            packed, at = content[at + 8 : at + 8 + length], at + 8 + length
            check(zlib.crc32(packed) == checksum, f"a frame of {segment['file']} is damaged before byte {at}")
            frame = unpack(packed, {})[:5]
            check(frame[0] > last, f"position {frame[0]} stands behind position {last}")
            positions.append(last := frame[0])
            yield frame
        is_whole = (len(positions), positions[0], last) == (segment["count"], segment["first"], segment["last"])
        check(is_whole, f"the manifest has other positions of {segment['file']}")


def read_event(stream: str, version: int, topic: str, record: bytes, keys: dict[str, bytes]) -> tuple[Any, ...]:
    """Return the head of an event, its messages, its hash, and its large data by digest."""
    if record[:2] == b"\xc1E":  # what stands before the nonce is authenticated with it, and the place
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce, key_id = 3 + record[2], record[3 : 3 + record[2]].decode()
        check(key_id in keys, f"the key {key_id!r} is missing, give it as ID:BASE64")
        place = b"".join(b"%d:%b" % (len(name), name) for name in (stream.encode(), topic.encode())) + b"%d" % version
        record = AESGCM(keys[key_id]).decrypt(record[nonce : nonce + 12], record[nonce + 12 :], record[:nonce] + place)
    if record[:2] == b"\xc1Z":
        check(zlib.crc32(record[6:]) == int.from_bytes(record[2:6], "little"), "the compressed record is damaged")
        record = zstandard.ZstdDecompressor().decompressobj().decompress(ZSTD_MAGIC + record[6:])
    event, large = unpack(record[2:], {})[:2] if record[:2] == b"\xc1L" else (record, [])
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    unpacker.feed(event)

    def take() -> bytes:
        start = unpacker.tell()
        unpacker.skip()
        return event[start : unpacker.tell()]

    check(unpacker.read_array_header() == 3 and take() == b"\x02", "this is no event, or one of a later format")
    head = [take() for _ in range(unpacker.read_array_header())]
    parts = [[take() for _ in range(unpacker.read_array_header())] for _ in range(unpacker.read_array_header())]
    header = b"\x93\x02\x93" + b"".join(head) + msgpack.Packer().pack_array_header(len(parts))
    check(header + b"".join(b"\x93" + b"".join(part) for part in parts) == event, "the event has another form")
    leaves = []
    for structure, *slots in (head, *parts):  # of a slot with content the hash covers the commitment
        covered = [DIGEST + sha256(slot).digest() if slot[1:3] == SALT else slot for slot in slots]
        check(all(slot == NOTHING or slot[:2] == DIGEST for slot in covered), "a slot begins with something else")
        leaves.append(sha256(b"\x10" + structure + b"".join(covered)).digest())
    nodes = leaves[1:] or [sha256().digest()]
    while len(nodes) > 1:  # this makes the shape of RFC 9162: a node without a neighbour moves up as it is
        pairs = [nodes[at : at + 2] for at in range(0, len(nodes), 2)]
        nodes = [sha256(b"\x11" + b"".join(pair)).digest() if len(pair) == 2 else pair[0] for pair in pairs]
    digest = sha256(b"\x12" + leaves[0] + len(parts).to_bytes(4, "big") + nodes[0]).digest()
    return head, parts, digest, {sha256(data).digest(): data for data in large}


def content_of(slot: bytes, large: dict) -> list[Any]:
    """Return the values of a slot. What was left out or taken away reads as None."""
    return (unpack(slot, large)[1:] if slot[1:3] == SALT else []) + [None] * 5


def replay(chats: dict[str, dict], head: list[bytes], parts: list[list[bytes]], large: dict) -> None:
    """Do to the chats what an event says. Kinds that are not known are passed over."""
    topic, stream, _, _, time, _, _, *ids = unpack(head[0], {}) + [None] * 8
    content, chat, last = content_of(head[2], large), chats.get(stream), None
    if topic == "chat_created/2":
        at = time if ids[1] is None else ids[1]
        info = dict(zip(("user_id", "title", "metadata"), content)) | {"id": stream, "members": {}}
        info |= {"created_at": at, "updated_at": max(at, time if ids[3] is None else ids[3]), "expires_at": ids[2]}
        main = {"id": ids[0], "name": "main", "head_message_id": None, "created_at": at if ids[4] is None else ids[4]}
        chats[stream] = {kind: {} for kind in KINDS} | {"chat": info, "active": 0, "branch": {0: main}}
    elif chat and topic == "message_appended/2":
        for structure, who, what in parts:
            message = dict.fromkeys(MESSAGE[:9]) | dict(zip(MESSAGE, unpack(structure, {}))) | {"annotation": None}
            message |= dict(zip(("sender_id", "data", "notes"), content_of(who, {})[:1] + content_of(what, large)))
            message["created_at"] = time if message["created_at"] is None else message["created_at"]
            message["parent_id"] = last if message["parent_id"] == 0 else message["parent_id"]
            chat["message"][last := message["id"]] = message
        if ids[0] is not None:
            chat["branch"][ids[0]]["head_message_id"] = last if ids[2] == 0 else ids[2]
        chat["chat"]["updated_at"] = max(chat["chat"]["updated_at"], time if ids[3] is None else ids[3])
    elif chat and topic == "content_redacted/2":
        (text, reason), slots = content[:2], [slot for _, of_event in ids[1] for slot in of_event]
        why = {"at": time, "by": content_of(head[1], {})[0], "reason": reason}
        why = {key: why[key] for key in why if why[key] is not None} | (
            {} if ids[2] == "request" else {"cause": ids[2]}
        )
        for message in (chat["message"][message_id] for message_id in ids[0]):
            if all(slot % 2 for slot in slots):
                form = None if text is None or isinstance(text, str) else message["form"]
                message |= {"data": text, "notes": {"chatledger": {"redacted": why.copy()}}, "form": form}
            elif max(slots) > 1:  # the text is a pseudonym: of the sender, or of who redacted the message
                message["sender_id"] = text
            else:
                message["notes"]["chatledger"]["redacted"]["by"] = text
    elif chat:
        change(chat, topic.removesuffix("/2"), time, ids, content)


def change(chat: dict, kind: str, time: int, ids: list[Any], content: list[Any]) -> None:
    """Do what any other event says to a chat. A name that was taken away is None."""
    info, branches, name = chat["chat"], chat["branch"], content[0]
    if kind == "chat_updated":
        changes = (ids[0] or {}) | (name or {})
        info |= {key: changes[key] for key in ("title", "metadata", "expires_at", "user_id") if key in changes}
        if not changes or changes.keys() - {"holds", "hold_notes"}:
            info["updated_at"] = max(info["updated_at"], time)
    elif kind == "message_annotated":
        for message in (chat["message"][message_id] for message_id in ids[0]):
            now = ANNOTATION | (message["annotation"] or {}) | (ids[1] or {}) | (name or {})
            now = {key: now[key] for key in ANNOTATION if now[key] != ANNOTATION[key] or key == "metadata"}
            message["annotation"] = None if now == {"metadata": {}} else now
    elif kind == "branch_created":
        branches[ids[0]] = {"id": ids[1], "name": name, "head_message_id": ids[4], "created_at": ids[2]}
    elif kind == "branch_deleted":
        del branches[ids[0]]
    elif kind in ("branch_renamed", "head_moved"):
        branches[ids[0]] |= {"name": content[1]} if kind == "branch_renamed" else {"head_message_id": ids[2]}
    elif kind == "checkpoint_set" and name is not None:
        chat["checkpoint"][name] = {"id": ids[0], "name": name, "message_id": ids[1], "created_at": ids[2]}
    elif kind == "member_set" and name is not None:
        info["members"][name] = ids[0]
    elif kind in ("checkpoint_deleted", "member_removed"):
        (chat["checkpoint"] if kind == "checkpoint_deleted" else info["members"]).pop(name, None)
    elif kind == "run_recorded":
        chat["run"][ids[0]["run_id"]] = ids[0] | {"metadata": name}
    elif kind == "run_changed":
        chat["run"][ids[0]] |= (ids[1] or {}) | (name or {})
        chat["run"][ids[0]]["updated_at"] = max(chat["run"][ids[0]]["updated_at"], time)
    elif kind == "regeneration_begun":
        chat["regeneration"][ids[0]] = dict(zip(REGENERATION, ids)) | {"created_at": time if ids[5] is None else ids[5]}
    elif kind == "regeneration_approved":
        chat["regeneration"][ids[0]]["approved"] += ids[1]
    if kind == "branch_activated" or (kind == "branch_created" and ids[3]):
        chat["active"] = ids[0]


def export(chat: dict) -> list[dict]:
    lines = {kind: list(chat[kind].values()) for kind in KINDS}
    lines["branch"] = [line | {"is_active": number == chat["active"]} for number, line in chat["branch"].items()]
    lines["branch"].sort(key=lambda branch: (branch["created_at"], branch["name"] or ""))
    lines["checkpoint"].sort(key=lambda point: (-point["created_at"], point["name"] or ""))
    lines["run"] = [{key: run[key] for key in RUN if run.get(key) not in (None, RUN[key])} for run in lines["run"]]
    counts = {"branches" if kind == "branch" else f"{kind}s": len(lines[kind]) for kind in KINDS}
    end = {"end": {"chat_id": chat["chat"]["id"], **counts}}
    return [{"chat": chat["chat"]}, *({kind: line} for kind in KINDS for line in lines[kind]), end]


def follow(place: list[Any], record: bytes, keys: dict[str, bytes], heads: dict, holes: set[str], chats: dict) -> bytes:
    """Check an event, do what it says, and return its hash."""
    stream, version, _ = place
    head, parts, digest, large = read_event(*place, record, keys)
    kind, *named, _, _, previous_hash, rest = unpack(head[0], {})[:7]
    check([*named, f"chatledger.{kind}"] == place, "this is the event of another place")
    last_version, last_hash, _ = heads.get(stream, (0, b"", 0))
    check(version > last_version, f"it comes after version {last_version}")
    check(version > last_version + 1 or previous_hash == last_hash, "it does not name the hash of the version before")
    heads[stream] = [version, digest, rest]
    if kind in ("chat_deleted/2", "versions_deleted/2"):
        holes.discard(stream)  # what is missing was erased
        chats.pop(stream, None)
    elif version > last_version + 1 or stream in holes:
        holes.add(stream)
    elif not stream.startswith("chatledger:v:"):
        replay(chats, head, parts, large)
    return digest


def main() -> None:
    sys.set_int_max_str_digits(0)  # an integer may have more digits than Python allows
    folder, where, keys, chats, heads, holes, last = Path(sys.argv[1]), "", {}, {}, {}, set(), (0, b"")
    try:
        for key_id, _, encoded in (argument.rpartition(":") for argument in sys.argv[2:]):
            key = b64decode(encoded, validate=True)
            keys[key_id or sha256(b"chatledger key id " + key).hexdigest()[:8]] = key
        text = (folder / "manifest.json").read_text("utf-8")
        file, start = json.loads(text), text.index("{", text.index('"manifest"'))
        manifest, end = json.JSONDecoder().raw_decode(text, start)
        digest = sha256(text[start:end].encode()).hexdigest()
        check((file["format"], file["sha256"]) == (1, digest), "the manifest has another format, or another digest")
        for position, *place, record in read_frames(folder, manifest["segments"]):
            where = f"position {position}, version {place[1]} of {place[0]!r}: "
            if place[2]:  # otherwise this is no event of chatledger
                last = position, follow(place, record, keys, heads, holes, chats)
            where = ""
        check(not holes, f"versions are missing of {sorted(holes)}")
        ends = unpack((folder / manifest["heads"]["file"]).read_bytes(), {})
        is_same = heads == {stream: [*head[:2], 0] for stream, head in ends.items()}
        check(is_same, "the file of heads says otherwise, or a stream ends within a commit")
        check(not manifest["is_dense"] or manifest["missing"] <= manifest["erased"], "more is missing than was erased")
        check(len(heads) == manifest["stream_count"], "the manifest has another number of streams")
        check(last == (manifest["position"], b64decode(manifest["hash"])), "the manifest has another last event")
        lines = [json.dumps(line) + "\n" for chat in chats.values() for line in export(chat)]
    except Exception as error:  # whatever it is that fails on unexpected bytes
        why = error if type(error) is ValueError else f"something is missing, damaged, or has another key: {error!r}"
        sys.exit(f"read_ledger: {where}{why}")
    sys.stdout.writelines(lines)
    print(f"{len(heads)} streams, {len(chats)} chats, last position {last[0]}", file=sys.stderr)


if __name__ == "__main__":
    main() if len(sys.argv) > 1 else sys.exit(__doc__)

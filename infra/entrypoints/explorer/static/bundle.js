// Verifying a bundle here: the file is read by this page, and sent nowhere. As `tools/verify_bundle.py` does, of which it shares no line.

const START = "chatledger-bundle/1\n";
const ANCHOR = "chatledger-anchor/2";
const PEM = /^-----BEGIN PUBLIC KEY-----\s+MCowBQYDK2VwAyEA([\w+/]{43}=)\s+-----END PUBLIC KEY-----\s*$/;

/** @param {unknown} isSo @param {string} [otherwise] @returns {asserts isSo} */
function check(isSo, otherwise = "it was changed, or is no bundle") {
  if (!isSo) throw new Error(otherwise);
}

/** @param {...(number | Uint8Array)} parts A number is a byte. */
async function sha256(...parts) {
  const lists = parts.map((part) => (typeof part === "number" ? [part] : part));
  const data = new Uint8Array(lists.reduce((size, list) => size + list.length, 0));
  let at = 0;
  for (const list of lists) {
    data.set(list, at);
    at += list.length;
  }
  return new Uint8Array(await crypto.subtle.digest("SHA-256", data));
}

/** @param {Uint8Array} bytes */
const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
/** @param {string} text */
const utf8 = (text) => new TextEncoder().encode(text);
/** @param {Uint8Array} bytes */
const text = (bytes) => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);

/** A whole number, big-endian. @param {number | bigint} value @param {number} size */
function number(value, size) {
  check(typeof value === "bigint" || Number.isSafeInteger(value));
  const bytes = new Uint8Array(8);
  check(value >= 0 && value < 2n ** 64n);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(value));
  return bytes.subarray(8 - size);
}

/** @param {Uint8Array} bytes */
const big = (bytes) => bytes.reduce((value, byte) => (value << 8n) | BigInt(byte), 0n);

/** @param {unknown} digits @param {number} [size] */
function unhex(digits, size) {
  check(typeof digits === "string" && /^([\da-f]{2})*$/i.test(digits));
  const bytes = Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
  check(size === undefined || bytes.length === size);
  return bytes;
}

/** @param {unknown} digits @param {number} size */
function unbase64(digits, size) {
  check(typeof digits === "string" && /^[\w+/]+={0,2}$/.test(digits) && !digits.includes("_"));
  const bytes = Uint8Array.from(atob(digits.replace(/=+$/, "")), (letter) => letter.charCodeAt(0));
  check(bytes.length === size && digits.length >= 4 * Math.ceil(size / 3));
  return bytes;
}

/** @typedef {{kind: string, body: Uint8Array}} Frame */

/** @param {Uint8Array} content @returns {Generator<Frame>} */
function* framesOf(content) {
  check(content.length >= START.length && text(content.subarray(0, START.length)) === START, "this is no bundle");
  for (let at = START.length; at < content.length; ) {
    check(at + 5 <= content.length, "it is cut off");
    const end = at + 5 + Number(big(content.subarray(at + 1, at + 5)));
    check(end <= content.length, "it is cut off");
    yield { kind: String.fromCharCode(content[at]), body: content.subarray(at + 5, end) };
    at = end;
  }
}

/** @type {Record<number, number>} The bytes after the first one of values of a fixed size. */
const SIZES = { 0xca: 4, 0xcb: 8, 0xcc: 1, 0xcd: 2, 0xce: 4, 0xcf: 8, 0xd0: 1, 0xd1: 2, 0xd2: 4, 0xd3: 8 };
Object.assign(SIZES, { 0xd4: 2, 0xd5: 3, 0xd6: 5, 0xd7: 9, 0xd8: 17, 0xc0: 0, 0xc2: 0, 0xc3: 0 });

/** @type {Record<number, number>} The bytes of the size or the count after the first one. */
const WIDTHS = { 0xc4: 1, 0xc5: 2, 0xc6: 4, 0xc7: 1, 0xc8: 2, 0xc9: 4, 0xd9: 1, 0xda: 2, 0xdb: 4, 0xdc: 2, 0xdd: 4, 0xde: 2, 0xdf: 4 };

/** Where a value of msgpack ends. What it names of large data is put into `large`. @param {Uint8Array} data @param {number} at @param {Uint8Array[]} large @returns {number} */
function skip(data, at, large) {
  check(at < data.length);
  const first = data[at];
  let end = at + 1;
  // A few values are followed by their size, or the number of values in them.
  const width = WIDTHS[first] ?? 0;
  const size = Number(big(data.subarray(end, (end += width))));
  let inside = 0;
  if (first >= 0x80 && first <= 0x9f) inside = (first & 15) * (first < 0x90 ? 2 : 1);
  else if (first >= 0xa0 && first <= 0xbf) end += first & 31;
  else if (first >= 0xdc && first <= 0xdf) inside = size * (first < 0xde ? 1 : 2);
  else if (width) end += size;
  else if (first >= 0xc0 && first < 0xe0) {
    check(first in SIZES);
    end += SIZES[first];
  }
  if (first >= 0xc7 && first <= 0xc9) {
    end += 1;
    if ([4, 5].includes(data[at + 1 + width])) large.push(data.subarray(at + 2 + width, end));
  }
  check(end <= data.length);
  for (; inside; inside -= 1) end = skip(data, end, large);
  return end;
}

/** Structure, who and what of the head and of each part. @param {Uint8Array} event @param {Uint8Array[]} large */
function partsOf(event, large) {
  check(event[0] === 0x93 && event[1] === 2);
  /** @type {Uint8Array[][]} */
  const parts = [];
  let at = 2;
  for (let count = 1; parts.length < count; ) {
    check(event[at] === 0x93);
    const ends = [at + 1];
    for (let slot = 0; slot < 3; slot += 1) ends.push(skip(event, ends[slot], parts.length ? large : []));
    parts.push([0, 1, 2].map((slot) => event.subarray(ends[slot], ends[slot + 1])));
    at = ends[3];
    if (parts.length > 1) continue;
    const first = event[at];
    const width = first === 0xdc ? 2 : first === 0xdd ? 4 : 0;
    check(width || (first >= 0x90 && first <= 0x9f));
    const length = width ? Number(big(event.subarray(at + 1, at + 1 + width))) : first & 15;
    check(width === (length < 16 ? 0 : length < 0x10000 ? 2 : 4));
    count = 1 + length;
    at += 1 + width;
  }
  check(at === event.length);
  return parts;
}

/** A slot without its content. @param {Uint8Array} slot */
async function committed(slot) {
  if (slot.length === 1 && slot[0] === 0xc0) return slot;
  if (slot.length === 34 && slot[0] === 0xc4 && slot[1] === 0x20) return slot;
  check(slot[0] >= 0x92 && slot[0] <= 0x9f && slot[1] === 0xc4 && slot[2] === 0x10);
  return Uint8Array.of(0xc4, 0x20, ...(await sha256(slot)));
}

/** @param {Uint8Array[][]} parts */
async function eventHash(parts) {
  const leaves = parts.map(async ([structure, who, what]) => sha256(0x10, structure, await committed(who), await committed(what)));
  let [head, ...level] = await Promise.all(leaves);
  while (level.length > 1) {
    const pairs = level.map((right, index) => (index % 2 ? sha256(0x11, level[index - 1], right) : index + 1 < level.length ? [] : right));
    level = (await Promise.all(pairs)).filter((node) => node instanceof Uint8Array);
  }
  return sha256(0x12, head, number(parts.length - 1, 4), level[0] ?? (await sha256()));
}

/** Topic, stream, version, id, time, previous hash, and how many events of the commit follow. @param {Uint8Array} structure */
function headOf(structure) {
  /** @type {(string | bigint | Uint8Array)[]} */
  const values = [];
  for (let at = structure[0] < 0xa0 ? 1 : 3; values.length < 7; ) {
    const [first, end] = [structure[at], skip(structure, at, [])];
    if (first <= 0x7f) values.push(BigInt(first));
    else if (first >= 0xcc && first <= 0xcf) values.push(big(structure.subarray(at + 1, end)));
    else {
      const isBytes = first >= 0xc4 && first <= 0xc6;
      check(isBytes || (first >= 0xa0 && first <= 0xbf) || (first >= 0xd9 && first <= 0xdb));
      const value = structure.subarray(at + 1 + (WIDTHS[first] ?? 0), end);
      values.push(isBytes ? value : text(value));
    }
    at = end;
  }
  return values;
}

/** @param {any} anchor @param {Uint8Array | null} trusted */
async function checkAnchor(anchor, trusted) {
  const key = unbase64(anchor.public_key, 32);
  check(trusted === null || hex(trusted) === hex(key), "somebody else signed it");
  check(anchor.format === ANCHOR && anchor.key_id === hex(await sha256(key)).slice(0, 32));
  check(Array.isArray(anchor.leaves) && !anchor.leaves.length);
  const fields = ["position", "created_at", "count"].map((name) => `${name} ${anchor[name]}`);
  const lines = [ANCHOR, ...fields, `root ${hex(unhex(anchor.root, 32))}`, `key ${hex(key)}`];
  const signer = await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
  const signed = utf8(lines.map((line) => `${line}\n`).join(""));
  const isSigned = await crypto.subtle.verify("Ed25519", signer, unbase64(anchor.signature, 64), signed);
  check(isSigned, "the signature of its anchor is wrong");
}

/** Check that the anchor has a chat, and return its leaf. @param {any} entry @param {any} anchor */
async function checkPath(entry, anchor) {
  check(Array.isArray(entry.leaf) && entry.leaf.length === 6 && Array.isArray(entry.path));
  const [digest, version, position, hash, size, root] = entry.leaf;
  const name = unhex(digest, 32);
  check(hex(name) === hex(await sha256(utf8(entry.chat_id))));
  const place = [number(version, 8), number(position, 8), unhex(hash, 32), number(size, 8), unhex(root, 32)];
  let [at, below] = [await sha256(0, name, ...place), 256];
  for (const [bit, other] of entry.path) {
    check(Number.isSafeInteger(bit) && bit >= 0 && bit < below);
    const isRight = (name[bit >> 3] >> (7 - (bit & 7))) & 1;
    const pair = isRight ? [unhex(other, 32), at] : [at, unhex(other, 32)];
    at = await sha256(1, number(bit, 2), ...pair);
    below = bit;
  }
  check(hex(at) === hex(unhex(anchor.root)), "the anchor does not have the chat like this");
  return { size, end: [version, position, hex(unhex(hash)), hex(unhex(root))].join() };
}

/** @param {any} entry @param {any} anchor @param {Iterator<Frame>} rest */
async function checkChat(entry, anchor, rest) {
  let size = entry.before;
  check(Number.isSafeInteger(size) && size >= 0 && Number.isSafeInteger(entry.count));
  let peaks = unhex(entry.peaks);
  check(peaks.length === 32 * size.toString(2).replaceAll("0", "").length);
  check((entry.leaf ?? null) === null === (anchor === null));
  const signed = anchor === null ? null : await checkPath(entry, anchor);
  check(signed === null || signed.size > size);
  let [hash, last, version, left] = ["", -1n, 0n, 0n];
  for (let index = 0; index < entry.count; index += 1) {
    const frame = rest.next().value;
    check(frame?.kind === "e", "events are missing");
    /** @type {Uint8Array[]} */
    const large = [];
    const [position, parts] = [big(frame.body.subarray(0, 8)), partsOf(frame.body.subarray(8), large)];
    const [topic, stream, now, , , previous, follow] = headOf(parts[0][0]);
    check(typeof topic === "string" && typeof now === "bigint" && typeof follow === "bigint");
    check(stream === entry.chat_id && previous instanceof Uint8Array);
    const isStart = !index && (size || (now === 1n && !previous.length) || topic.startsWith("chat_deleted/"));
    const isNext = index && now === version + 1n && hex(previous) === hash && position > last && (!left || left === follow + 1n);
    check(isStart || isNext, `event ${now} does not follow event ${version}`);
    const named = topic === "message_appended/2" ? new Set(large.map(hex)) : [];
    for (const reference of named) {
      const data = rest.next().value;
      check(data?.kind === "l" && reference === hex(number(data.body.length, 8)) + hex(await sha256(data.body)), "large data are missing or others");
    }
    const event = await eventHash(parts);
    let node = await sha256(0, frame.body.subarray(0, 8), event);
    for (let bits = size; bits % 2; bits = (bits - 1) / 2) {
      node = await sha256(1, peaks.subarray(-32), node);
      peaks = peaks.subarray(0, -32);
    }
    peaks = Uint8Array.of(...peaks, ...node);
    [hash, last, version, left, size] = [hex(event), position, now, follow, size + 1];
    if (size !== signed?.size) continue;
    let root = peaks.subarray(-32);
    for (let end = peaks.length - 32; end; end -= 32) root = await sha256(1, peaks.subarray(end - 32, end), root);
    check(signed.end === [version, position, hash, hex(root)].join(), "the anchor has other events");
  }
  check(entry.count > 0 && hash === hex(unhex(entry.hash)) && !left);
  check(signed === null || size >= signed.size, "events are missing");
  return `${entry.chat_id}: ${entry.count.toLocaleString("en")} events up to version ${version}`;
}

/**
 * Verify a bundle. Throws an error, whatever is wrong.
 * @param {Uint8Array} content
 * @param {Uint8Array | null} trusted The key of whom one trusts.
 * @returns {Promise<{chats: string[], anchor: any}>} What it holds, and who signed it.
 */
export async function verify(content, trusted = null) {
  const rest = framesOf(content);
  const first = rest.next().value;
  check(first?.kind === "m");
  const manifest = JSON.parse(text(first.body));
  const [chats, anchor] = [manifest.chats, manifest.anchor ?? null];
  const names = ["chat_id", "count", "hash", "before", "peaks", "leaf", "path"];
  const known = [manifest, ...chats].flatMap((value, index) => Object.keys(value).filter((name) => !(index ? names : ["chats", "anchor"]).includes(name)));
  check(!known.length && chats.every((/** @type {any} */ entry) => typeof entry.chat_id === "string"));
  check(chats.length && new Set(chats.map((entry) => entry.chat_id)).size === chats.length);
  check(trusted === null || anchor !== null, "nobody signed it");
  if (anchor !== null) await checkAnchor(anchor, trusted);
  const words = [];
  for (const entry of chats) words.push(await checkChat(entry, anchor, rest));
  check(rest.next().done);
  return { chats: words, anchor };
}

/** @param {HTMLFormElement} form */
async function answer(form) {
  const [bundle, key] = /** @type {File[]} */ ([...new FormData(form).values()]);
  const output = /** @type {HTMLOutputElement} */ (form.querySelector("output"));
  output.replaceChildren("Verifying …");
  /** @type {string[]} */
  let lines;
  try {
    check(globalThis.crypto?.subtle, "browsers check signatures on pages over https:// and on this machine only");
    const pem = key.size ? PEM.exec(await key.text()) : null;
    check(!key.size || pem, "the key is no Ed25519 public key in PEM");
    const { chats, anchor } = await verify(new Uint8Array(await bundle.arrayBuffer()), pem && unbase64(pem[1], 32));
    const when = anchor && new Date(anchor.created_at).toISOString();
    lines = [anchor ? `It holds, as signed on ${when} with key ${anchor.key_id}.` : "It agrees with itself, and nobody signed it.", ...chats];
    if (anchor && !pem) lines.push("Only the bundle itself vouches for this key: ask the signer which is right.");
  } catch (error) {
    lines = [`It does not hold: ${error instanceof Error ? error.message : error}.`];
  }
  output.className = lines[0].startsWith("It does not") ? "verdict bad" : "verdict good";
  output.replaceChildren(...lines.map((line) => Object.assign(document.createElement("p"), { textContent: line })));
}

const form = document.querySelector("form[data-bundle]");
if (form instanceof HTMLFormElement) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    void answer(form);
  });
}

"""The page that verifies a bundle agrees with the two programs that do, and sends nothing."""

import base64
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Request, expect
from tests.support.bundle_mutations import mutations
from tests.support.page_verifier import VERIFIER
from tests.support.proof_world import KEY, OTHER, fill, pem_of, public_pem_of
from tests.support.soak import examples

import chatledger
from chatledger import assistant, user

AGREES = """async ([script, content, changes]) => {
  const { verify } = await import(script);
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const whole = bytes(content);
  const outcomes = [];
  for (const [at, length, put] of changes) {
    const parts = put === null ? [whole.subarray(0, at)] : [whole.subarray(0, at), bytes(put), whole.subarray(at + length)];
    const changed = new Uint8Array(await new Blob(parts).arrayBuffer());
    outcomes.push(await verify(changed).then(() => true, () => false));
  }
  return outcomes;
}"""


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A signed bundle with large data and redacted messages, and one that goes on and nobody signed."""
    folder = tmp_path_factory.mktemp("bundles")
    with chatledger.open("memory:") as ledger:
        fill(ledger, chats="ab", messages=3)
        ledger.create_chat("big", "ada")
        ledger.append("big", [user("leeks " * 60_000, id="l1"), assistant("short", id="l2"), user("secret", id="l3")])
        ledger.redact("l3", reason="a test")
        ledger.bundle(("a", "b", "gone", "last", "big"), folder / "signed.clb", key=pem_of(KEY))
        since = ledger.position
        ledger.append("a", [user("and on"), user("and on")])
        ledger.bundle("a", folder / "later.clb", since=since)
    return folder / "signed.clb", folder / "later.clb"


def test_a_bundle_is_verified_here(page: Page, bundles: tuple[Path, Path], tmp_path: Path) -> None:
    """It says what the bundle holds and who signed it; one byte that is another one is noticed; no request is made."""
    signed, later = bundles
    trusted, other, damaged = tmp_path / "anchor.pub", tmp_path / "other.pub", tmp_path / "damaged.clb"
    trusted.write_bytes(public_pem_of(KEY))
    other.write_bytes(public_pem_of(OTHER))
    damaged.write_bytes(signed.read_bytes().replace(b"about leeks", b"about beans", 1))
    page.goto("/proof")
    requests: list[Request] = []
    page.on("request", lambda request: requests.append(request))  # noqa: PLW0108 - Playwright wraps no builtin
    form, told = page.locator("form[data-bundle]"), page.locator("form[data-bundle] output")
    for bundle, key, words in (
        (signed, trusted, "It holds, as signed on"),
        (signed, other, "It does not hold: somebody else signed it."),
        (later, trusted, "It does not hold: nobody signed it."),
        (damaged, trusted, "It does not hold:"),
        (trusted, trusted, "It does not hold:"),
        (signed, signed, "It does not hold: the key is no Ed25519 public key in PEM."),
    ):
        form.locator("[name=bundle]").set_input_files(bundle)
        form.locator("[name=key]").set_input_files(key)
        form.locator("button").click()
        expect(told).to_contain_text(words)
    form.locator("[name=key]").set_input_files([])
    form.locator("[name=bundle]").set_input_files(later)
    form.locator("button").click()
    expect(told).to_contain_text("nobody signed it.a: 1 events up to version")
    form.locator("[name=bundle]").set_input_files(signed)
    form.locator("button").click()
    expect(told).to_contain_text("Only the bundle itself vouches for this key")
    # The page's icon may be fetched late, and its feed begun anew: neither carries anything of the file.
    own = ("/static/", "/api/v1/feed?after=")
    assert [each.url for each in requests if each.method != "GET" or not any(part in each.url for part in own)] == []


@pytest.mark.parametrize("which", [0, 1])
def test_it_agrees_with_the_other_verifiers(page: Page, bundles: tuple[Path, Path], which: int) -> None:
    """Whatever bytes are changed, it takes what `tools/verify_bundle.py` takes, which agrees with ours."""
    content = bundles[which].read_bytes()
    changes = list(mutations(content, examples(10_000), 11 + which))
    page.goto("/proof")
    script: Any = page.locator("script[src*=bundle]").get_attribute("src")
    for start in range(0, len(changes), 500):
        some = changes[start : start + 500]
        put = [
            [at, length, None if new is None else base64.b64encode(new).decode()]
            for at, length, new in [(0, 0, b""), *some]
        ]
        sound, *outcomes = page.evaluate(AGREES, [script, base64.b64encode(content).decode(), put])
        assert sound
        for mutation, is_sound in zip(some, outcomes, strict=True):
            assert is_sound == _by_the_other(mutation.of(content)), mutation


def _by_the_other(content: bytes) -> bool:
    try:
        VERIFIER.verify(content)
    except Exception:  # noqa: BLE001 - whatever it stumbles over is no proof
        return False
    return True

"""Access over HTTP: keys, tokens, functions, scopes, pages of other servers."""

import base64
import hmac
import json
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey
from starlette.applications import Starlette
from starlette.routing import Route as PathRoute
from tests.support.http_world import API, serving

import chatledger
from chatledger.errors import AlreadyExistsError, ConfigurationError, NotFoundError
from chatledger.infra.entrypoints.http.access import Scope
from chatledger.infra.entrypoints.http.guard import OPEN_PATHS
from chatledger.infra.entrypoints.http.routing import Route
from chatledger.infra.entrypoints.http.settings import Serving
from chatledger.infra.entrypoints.http.tokens import JsonWebTokens
from chatledger.server import KeyFile, Principal, create_app

READ: frozenset[Scope] = frozenset({"read"})
WRITE: frozenset[Scope] = frozenset({"write"})
ADMIN: frozenset[Scope] = frozenset({"admin"})
TYPE = "urn:chatledger:error:"


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "ledger.keys")


def app_with(authenticate: Any) -> Starlette:
    return create_app("memory:", authenticate=authenticate)


def test_a_key_is_kept_as_its_hash(keys: KeyFile) -> None:
    secret = keys.add("laptop", user_id="ada", scopes=WRITE)
    assert secret not in keys.path.read_text()
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600
    assert keys({"x-api-key": secret}) == Principal("ada", WRITE, "laptop")
    assert keys({"authorization": f"bearer {secret}"}) == Principal("ada", WRITE, "laptop")
    for headers in {"x-api-key": secret[:-1]}, {"authorization": f"Basic {secret}"}, {"x-api-key": ""}, {}:
        assert keys(headers) is None
    with pytest.raises(AlreadyExistsError):
        keys.add("laptop", user_id=None, scopes=READ)
    KeyFile(keys.path).remove("laptop")  # as another process does
    assert keys({"x-api-key": secret}) is None
    with pytest.raises(NotFoundError):
        keys.remove("laptop")


def test_keys_made_at_once_are_all_kept(keys: KeyFile) -> None:
    threads = [
        threading.Thread(target=partial(KeyFile(keys.path).add, f"key-{number}", user_id=None, scopes=READ))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {key.name for key in keys.read()} == {f"key-{number}" for number in range(8)}


def test_nobody_enters_while_the_keys_cannot_be_read(keys: KeyFile) -> None:
    secret = keys.add("laptop", user_id="ada", scopes=WRITE)
    assert keys({"x-api-key": secret}) is not None
    keys.path.write_text("{")
    assert keys({"x-api-key": secret}) is None
    with pytest.raises(ConfigurationError, match="no file of API keys"):
        Serving(location="memory:", keys=str(keys.path)).check()


def test_a_key_opens_the_chats_of_its_user(keys: KeyFile) -> None:
    ada, bob = (keys.add(name, user_id=name, scopes=WRITE) for name in ("ada", "bob"))
    reader = keys.add("reader", user_id=None, scopes=READ)
    with serving(app_with(keys)) as url, httpx.Client(base_url=url + API) as client:
        made = client.post("/chats", json={"id": "trip"}, headers={"X-Api-Key": ada})
        assert (made.status_code, made.json()["user_id"]) == (201, "ada")
        statuses = {
            name: client.get("/chats/trip", headers={"Authorization": f"Bearer {key}"}).status_code
            for name, key in {"ada": ada, "bob": bob, "reader": reader, "stranger": "clk_no"}.items()
        }
        assert statuses == {"ada": 200, "bob": 404, "reader": 200, "stranger": 401}
        refused = client.post("/chats", json={}, headers={"X-Api-Key": reader})
        assert (refused.status_code, refused.json()["type"]) == (403, TYPE + "AccessDeniedError")
        stranger = client.get("/chats")
        assert stranger.headers["WWW-Authenticate"] == "Bearer"
        assert stranger.json()["type"] == TYPE + "Unauthenticated"
        keys.remove("ada")
        assert client.get("/chats/trip", headers={"X-Api-Key": ada}).status_code == 401


def test_the_history_names_the_user_of_a_login_or_else_its_key(keys: KeyFile) -> None:
    laptop = keys.add("laptop", user_id="ada", scopes=WRITE)
    desk = keys.add("desk", user_id=None, scopes=WRITE)
    ledger = chatledger.open_async("memory:")
    with serving(create_app(ledger, authenticate=keys)) as url, httpx.Client(base_url=url) as client:
        for number, key in enumerate((laptop, desk)):
            body = {"id": f"chat-{number}", "user_id": "ada"}
            assert client.post(f"{API}/chats", json=body, headers={"X-Api-Key": key}).status_code == 201
            thread = client.post("/threads", json={"thread_id": f"thread-{number}"}, headers={"X-Api-Key": key})
            assert thread.status_code == 200
        history = list(ledger.blocking().history())
    ledger.blocking().close()
    assert [recorded.actor for recorded in history] == ["ada", "ada", "desk", "desk"]


OF_BROWSERS = {"/favicon.ico", "/sign-in", "/sign-out"}
"""What browsers ask for before anybody is signed in; none of it reads a chat."""


def operations(app: Starlette) -> Iterator[tuple[str, str, Route | None]]:
    """All that an application answers: method, path and, where it tells, what is asked for."""
    for path in app.routes:
        assert isinstance(path, PathRoute), path
        given: list[Any] = [one for one in getattr(path.endpoint, "args", ()) if isinstance(one, dict)]
        by_method: dict[str, Route] = given[0] if given else {}
        for method in path.methods or ():
            yield method, path.path, by_method.get("GET" if method == "HEAD" else method)


def test_no_route_of_any_contract_lets_strangers_in_or_forgets_a_scope(keys: KeyFile) -> None:
    nothing = keys.add("reader", user_id="ada", scopes=READ)
    app = app_with(keys)
    seen = 0
    with serving(app) as url, httpx.Client(base_url=url) as client:
        for method, template, route in operations(app):
            path = template
            for name in ("{" + part.partition("}")[0] + "}" for part in template.split("{")[1:]):
                path = path.replace(name, "some")
            status = client.request(method, path).status_code
            # What is shared by a link is for whoever has its secret.
            is_open = path in OPEN_PATHS | OF_BROWSERS or path.startswith(("/static/", "/shared/"))
            assert (status != 401) == is_open, (method, path, status)
            if route is not None and route.scope != "read":
                seen += 1
                answer = client.request(method, path, headers={"X-Api-Key": nothing}, json={})
                assert answer.status_code == 403, (method, path, answer.text)
        assert client.get("/metrics", headers={"X-Api-Key": nothing}).status_code == 403
    assert seen > 10


def test_a_function_of_the_users_says_who_asks() -> None:
    async def who(headers: Mapping[str, str]) -> Principal | None:
        return Principal(headers["x-user"]) if "x-user" in headers else None

    with serving(app_with(who)) as url, httpx.Client(base_url=url + API) as client:
        assert client.post("/chats", json={}, headers={"X-User": "ada"}).json()["user_id"] == "ada"
        assert client.get("/chats", headers={"X-User": "bob"}).json()["chats"] == []
        assert client.get("/chats").status_code == 401


ISSUER = "https://id.example.org"
KEY = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})


def encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).decode().rstrip("=")


def token(key: RSAKey | ECKey = KEY, *, alg: str = "RS256", kid: str | None = "one", **claims: Any) -> str:
    header = {"alg": alg} | ({} if kid is None else {"kid": kid})
    given = {"iss": ISSUER, "aud": "chats", "sub": "ada", "exp": int(time.time()) + 60} | claims
    return jwt.encode(
        header, {name: value for name, value in given.items() if value is not None}, key, algorithms=[alg]
    )


@pytest.fixture
def jwks(tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(KeySet([KEY]).as_dict(private=False)))
    return path


async def _who(tokens: JsonWebTokens, sent: str) -> Principal | None:
    return await tokens({"authorization": f"Bearer {sent}"})


@pytest.mark.anyio
async def test_a_token_that_the_provider_signed_counts(jwks: Path) -> None:
    tokens = JsonWebTokens(str(jwks), issuer=ISSUER, audience="chats")
    assert await _who(tokens, token()) == Principal("ada", frozenset({"read", "write"}), "jwt")
    assert await _who(tokens, token(kid=None)) is not None
    assert await _who(tokens, token(aud=["else", "chats"])) is not None
    assert await _who(tokens, token(scope="openid chatledger:read")) == Principal("ada", READ, "jwt")
    assert await _who(tokens, token(scp=["admin"])) == Principal("ada", ADMIN, "jwt")
    named = JsonWebTokens(str(jwks), issuer=ISSUER, user_claim="email")
    assert await _who(named, token(email="ada@example.org", aud="any")) == Principal(
        "ada@example.org", frozenset({"read", "write"}), "jwt"
    )


@pytest.mark.anyio
async def test_a_token_that_is_not_a_good_one_is_refused(jwks: Path) -> None:
    tokens = JsonWebTokens(str(jwks), issuer=ISSUER, audience="chats")
    other = RSAKey.generate_key(2048)
    header, claims, signature = token().split(".")
    # A key that is public must not serve as the secret of another algorithm.
    symmetric = encoded(b'{"alg":"HS256","kid":"one"}') + "." + claims
    confused = hmac.digest(KEY.as_pem(private=False), symmetric.encode(), "sha256")
    for bad in [
        token(other),
        f"{symmetric}.{encoded(confused)}",
        token(iss="https://else.example.org"),
        token(iss=None),
        token(aud="else"),
        token(aud=None),
        token(exp=int(time.time()) - 60),
        token(exp=None),
        token(nbf=int(time.time()) + 600),
        token(sub=None),
        token(sub=""),
        token(sub=["ada"]),
        token(kid="two"),
        "eyJhbGciOiJub25lIn0." + claims + ".",
        f"{header}.{claims}.{signature[:-4]}AAAA",
        "a.b.c",
        "..",
        "nothing",
        "é.é.é",
    ]:
        assert await _who(tokens, bad) is None, bad


@pytest.mark.anyio
async def test_keys_at_an_address_are_read_again_when_a_token_names_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    second = ECKey.generate_key("P-256", {"kid": "two"})
    shown: list[RSAKey | ECKey] = [KEY]
    asked: list[str] = []

    class Provider(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = json.dumps(KeySet(list(shown)).as_dict(private=False)).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as provider:
        thread = threading.Thread(target=provider.serve_forever)
        thread.start()
        try:
            tokens = JsonWebTokens(f"http://127.0.0.1:{provider.server_port}/jwks.json", issuer=ISSUER)
            assert await _who(tokens, token()) is not None
            rotated = token(second, alg="ES256", kid="two")
            assert await _who(tokens, rotated) is None
            assert await _who(tokens, rotated) is None
            assert len(asked) == 1  # strangers cannot make the server ask again and again
            shown.append(second)
            monkeypatch.setattr("chatledger.infra.entrypoints.http.tokens._PAUSE_S", 0.0)
            assert await _who(tokens, rotated) is not None
            assert len(asked) == 2
        finally:
            provider.shutdown()
            thread.join()
    assert await _who(tokens, token()) is not None  # although the provider does not answer


@pytest.mark.anyio
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.2:%d/else\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ],
)
async def test_keys_that_come_otherwise_are_not_taken(answer: bytes) -> None:
    """From another machine without encryption, or not as HTTP: nobody is known by them, and nothing fails."""
    body = json.dumps(KeySet([KEY]).as_dict(private=False)).encode()

    class Provider(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            good = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
            port = str(provider.server_port).encode()
            self.wfile.write(good if self.path == "/else" else answer.replace(b"%d", port))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
            pass

    with ThreadingHTTPServer(("", 0), Provider) as provider:
        thread = threading.Thread(target=provider.serve_forever)
        thread.start()
        try:
            tokens = JsonWebTokens(f"http://127.0.0.1:{provider.server_port}/jwks.json", issuer=ISSUER)
            assert await _who(tokens, token()) is None
        finally:
            provider.shutdown()
            thread.join()


def test_keys_come_by_https(jwks: Path) -> None:
    with pytest.raises(ConfigurationError, match="can be changed on its way"):
        JsonWebTokens("http://id.example.org/jwks.json", issuer=ISSUER)
    with pytest.raises(ConfigurationError, match="cannot read the keys"):
        JsonWebTokens(str(jwks.with_name("absent")), issuer=ISSUER)
    jwks.write_text("[]")
    with pytest.raises(ConfigurationError, match="no JSON Web Key Set"):
        JsonWebTokens(str(jwks), issuer=ISSUER)


def test_keys_and_tokens_are_taken_side_by_side(jwks: Path, keys: KeyFile) -> None:
    secret = keys.add("laptop", user_id="bob", scopes=WRITE)
    settings = Serving(location="memory:", keys=str(keys.path), jwks=str(jwks), issuer=ISSUER, host="0.0.0.0")
    settings.check()
    with serving(settings.application()) as url, httpx.Client(base_url=url + API) as client:
        for sent, user_id in (token(), "ada"), (secret, "bob"):
            made = client.post("/chats", json={}, headers={"Authorization": f"Bearer {sent}"})
            assert made.json()["user_id"] == user_id
        assert client.get("/chats").status_code == 401


def test_what_cannot_be_served_is_said() -> None:
    for settings, reason in [
        (Serving(location="memory:", host="0.0.0.0"), "lets others reach"),
        (Serving(location="memory:", jwks="x"), "--issuer"),
        (Serving(location="memory:", authenticate="nowhere:f"), "no function that can be imported"),
        (Serving(location="memory:", authenticate="json:nothing"), "no function that can be imported"),
        (Serving(location="memory:", authenticate="json:__name__"), "is no function"),
        (Serving(location="memory:", workers=2), "belongs to one process"),
    ]:
        with pytest.raises(ConfigurationError, match=reason):
            settings.check()
    Serving(location="memory:", host="0.0.0.0", is_insecure=True).check()


def test_pages_of_other_servers_are_kept_out() -> None:
    settings = Serving(location="memory:", cors=("http://chat.example.org",))
    with serving(settings.application()) as url, httpx.Client(base_url=url) as client:

        def post(**headers: str) -> int:
            return client.post(f"{API}/chats", content=b"{}", headers=headers).status_code

        assert post() == 201
        assert post(Origin=url) == 201
        assert post(Origin="http://chat.example.org") == 201
        assert post(Origin="http://evil.example.org") == 403
        assert post(Origin="null") == 403
        # Reads have effects too: what a named feed sent counts as handled.
        feed = f"{API}/feed?name=mailer&follow=false"
        image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
        link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        frame = link | {"Sec-Fetch-Dest": "iframe"}
        for headers in (image, image | {"Sec-Fetch-Site": "same-site"}, link, {"Origin": "http://evil.example.org"}):
            assert client.get(feed, headers=headers).status_code == 403
        assert client.get(f"{API}/feeds").json() == []
        assert client.get("/livez", headers=link).status_code == 200
        assert client.get("/livez", headers=frame).status_code == 403
        for site in "same-origin", "none":
            assert client.get(f"{API}/feeds", headers={"Sec-Fetch-Site": site}).status_code == 200
        allowed = image | {"Origin": "http://chat.example.org"}
        assert client.get(f"{API}/feeds", headers=allowed).status_code == 200
        # A name that somebody else's DNS lets point at this machine.
        assert client.get("/livez", headers={"Host": "evil.example.org"}).status_code == 421
        assert client.get("/livez", headers={"Host": "localhost:1"}).status_code == 200
        asked = {"Origin": "http://chat.example.org", "Access-Control-Request-Method": "POST"}
        preflight = client.options(f"{API}/chats", headers=asked)
        assert preflight.headers["Access-Control-Allow-Origin"] == "http://chat.example.org"
        answer = client.get(f"{API}/chats", headers={"Origin": "http://chat.example.org"})
        assert {"Chatledger-Position", "X-Pagination-Next"} <= {
            name.strip() for name in answer.headers["Access-Control-Expose-Headers"].split(",")
        }
        # A page on the internet, such as LangGraph Studio, that asks a server of this machine.
        local = client.options(f"{API}/chats", headers={**asked, "Access-Control-Request-Private-Network": "true"})
        assert local.headers["Access-Control-Allow-Private-Network"] == "true"
        asked["Origin"] = "http://evil.example.org"
        assert "Access-Control-Allow-Origin" not in client.options(f"{API}/chats", headers=asked).headers
    with serving(create_app("memory:")) as url, httpx.Client(base_url=url) as client:
        answer = client.get(f"{API}/chats", headers={"Origin": "http://chat.example.org"})
        assert "Access-Control-Allow-Origin" not in answer.headers


def test_pages_of_other_servers_use_no_cookies_of_this_one() -> None:
    """A function of the user's may know callers by a cookie, which a browser sends with what any page makes it send."""

    def known(headers: Mapping[str, str]) -> Principal | None:
        return Principal("ada") if "ada" in headers.get("cookie", headers.get("x-api-key", "")) else None

    app = create_app(chatledger.open_async("memory:"), authenticate=known)
    with serving(app) as url, httpx.Client(base_url=url) as client:

        def post(**headers: str) -> int:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            return client.post(f"{API}/chats", content=b"{}", headers=sent).status_code

        assert post() == 401
        assert post(Cookie="ada") == 201
        assert post(Cookie="ada", Origin=url) == 201
        assert (
            post(Cookie="ada", Origin="https://chat.example.org", Sec_Fetch_Site="same-origin") == 201
        )  # a proxy's name
        assert post(Cookie="ada", Origin="https://evil.example.org") == 403
        assert post(Cookie="ada", Sec_Fetch_Site="cross-site") == 403
        assert post(X_Api_Key="ada", Origin="https://evil.example.org") == 201  # it has the key


def run(*arguments: str, fails: bool = False) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "chatledger", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


@pytest.mark.soak
def test_keys_are_made_and_removed_by_the_command_line(tmp_path: Path) -> None:
    place = str(tmp_path / "data")
    secret = run("keys", "add", "laptop", "--user", "ada", "-l", place).strip()
    assert KeyFile(tmp_path / "data.keys")({"x-api-key": secret}) == Principal("ada", WRITE, "laptop")
    assert json.loads(run("keys", "list", "--json", "-l", place))[0]["name"] == "laptop"
    assert "laptop  ada  write" in run("keys", "list", "-l", place)
    assert "there is a key named" in run("keys", "add", "laptop", "--all-users", "-l", place, fails=True)
    assert "say whose chats" in run("keys", "add", "other", "-l", place, fails=True)
    assert "name a file with --keys" in run("keys", "list", "-l", "nats://x", fails=True)
    run("keys", "remove", "laptop", "-l", place)
    assert json.loads(run("keys", "list", "--json", "-l", place)) == []

"""A sign-in provider and an API behind it, on the loopback: what real OAuth, OpenID and key checks talk to.

Only what the tests need of the protocols, but that for real: codes are good once, the client and the PKCE verifier are
checked, refresh tokens rotate, a service account's assertion must be signed with its key.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from google.auth import jwt

__all__ = ["BACK", "CLIENT", "CLIENT_SECRET", "Provider", "provider", "service_account_key", "sign_in"]

CLIENT = "the-client"
CLIENT_SECRET = "planted-client-secret-5f1c2d"
BACK = "https://host.example/back"


class Provider:
    """What the server knows, and what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.codes: dict[str, dict[str, str]] = {}
        """Issued and not redeemed, each with what was asked for."""
        self.tokens: set[str] = set()
        """Access tokens that are good."""
        self.issued: list[str] = []
        """Every secret that was given out: codes, access, refresh and id tokens."""
        self.refresh_tokens: set[str] = set()
        self.grants: list[str] = []
        """The grant types of all requests for a token, also of those that failed."""
        self.expires_in = 3600
        self.refuses = False
        """Requests for a token fail, and the reason that is told repeats what was sent."""
        self.account_certificate = ""
        self.keys: set[str] = set()
        """API keys, and ``user:password``, that are good."""

    def secret(self, kind: str) -> str:
        made = f"planted-{kind}-{secrets.token_hex(8)}"
        self.issued.append(made)
        return made

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser is sent back to, once the person has agreed."""
        code = self.secret("code")
        self.codes[code] = query
        return query["redirect_uri"] + "?" + urlencode({"code": code, "state": query["state"]})

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        grant = form.get("grant_type", "")
        self.grants.append(grant)
        if self.refuses:
            return 400, {"error": "invalid_grant", "error_description": f"refused {json.dumps(form)} {authorization}"}
        if grant == "authorization_code":
            asked = self.codes.pop(form.get("code", ""), None)
            if asked is None or not self._client_fits(form, authorization, asked):
                return 400, {"error": "invalid_grant"}
        elif grant == "refresh_token":
            if form.get("refresh_token") not in self.refresh_tokens:
                return 400, {"error": "invalid_grant"}
            self.refresh_tokens.discard(form["refresh_token"])
        elif grant == "client_credentials":
            if not _basic(authorization, CLIENT, CLIENT_SECRET):
                return 401, {"error": "invalid_client"}
        elif grant == "urn:ietf:params:oauth:grant-type:jwt-bearer":
            jwt.decode(form["assertion"], certs=self.account_certificate)  # type: ignore[no-untyped-call]
        else:
            return 400, {"error": "unsupported_grant_type"}
        access, refresh = self.secret("access"), self.secret("refresh")
        self.tokens.add(access)
        self.refresh_tokens.add(refresh)
        return 200, {
            "access_token": access,
            "refresh_token": refresh,
            "id_token": self.secret("id"),
            "token_type": "Bearer",
            "expires_in": self.expires_in,
        }

    def _client_fits(self, form: dict[str, str], authorization: str, asked: dict[str, str]) -> bool:
        if form.get("redirect_uri") != asked["redirect_uri"]:
            return False
        if "code_challenge" not in asked:
            return _basic(authorization, CLIENT, CLIENT_SECRET)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == asked["code_challenge"]

    def api(self, headers: Any, query: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Whether a call of the API shows something that is good."""
        scheme, _, value = str(headers.get("Authorization", "")).partition(" ")
        good = scheme.lower() == "bearer" and value in self.tokens
        if scheme.lower() == "basic":
            good = base64.b64decode(value).decode() in self.keys
        good = good or headers.get("X-Key") in self.keys or query.get("key") in self.keys
        return (200, {"sky": "blue"}) if good else (401, {"error": "not signed in"})


def _basic(authorization: str, name: str, secret: str) -> bool:
    return authorization == "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()


@contextmanager
def provider() -> Iterator[Provider]:
    """A provider that serves until the block ends."""
    made = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            if parts.path == "/authorize":
                self.send_response(302)
                self.send_header("Location", made.authorize(query))
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self._json(*made.api(self.headers, query))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            self._json(*made.token(form, self.headers.get("Authorization", "")))

        def _json(self, status: int, data: dict[str, Any]) -> None:
            body = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if status == 401:
                self.send_header("WWW-Authenticate", "Bearer")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Silent: standard error is looked through for secrets."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.url = f"http://localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any) -> None:
        """Go nowhere: the address is what is wanted."""


def sign_in(url: str) -> str:
    """What a browser does with the URL of a question: the address that the person comes back to."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stay)
    try:
        opener.open(url, timeout=5)
    except urllib.error.HTTPError as redirect:
        with redirect:
            location = redirect.headers["Location"]
            assert isinstance(location, str)
            return location
    raise AssertionError("the provider sent nobody back")


def service_account_key(server: Provider) -> dict[str, str]:
    """The JSON of a service account's key, whose assertions ``server`` takes."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "agent")])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start.replace(year=2100))
        .sign(key, hashes.SHA256())
    )
    server.account_certificate = certificate.public_bytes(serialization.Encoding.PEM).decode()
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return {
        "type": "service_account",
        "project_id": "project",
        "private_key_id": "planted-key-id-" + secrets.token_hex(8),
        "private_key": pem,
        "client_email": f"{secrets.token_hex(4)}@project.example",
        "client_id": "1",
        "auth_uri": f"{server.url}/authorize",
        "token_uri": f"{server.url}/token",
        "auth_provider_x509_cert_url": f"{server.url}/certs",
        "client_x509_cert_url": f"{server.url}/cert",
        "universe_domain": "googleapis.com",  # of any other one the key itself signs the calls
    }

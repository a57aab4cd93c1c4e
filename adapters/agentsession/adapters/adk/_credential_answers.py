"""A person's answer to a credential request: whether it can be one, and what it becomes in ADK's form.

Not for: where a credential goes (``_credentials.py``, ``_vault.py``), or questions (``_elicit.py``).
Rules carried: HITL-08, SEC-01, and the credential answers of contract §2.
May import: ``_elicit``, ``_values``, google.adk.

An answer is ``{"credential": {"type": …}}`` or ``{"auth_response_uri": …}`` and nothing else. What is wrong with one is
said without a word of it: receipts are logged and shown.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from google.adk.auth.auth_credential import AuthCredential
from pydantic import ValidationError

from agentsession.adapters.adk._elicit import CREDENTIAL_TYPES
from agentsession.adapters.adk._values import is_mapping

__all__ = ["credential_problem", "credential_response"]

_OAUTH: Final = frozenset({"oauth2", "openIdConnect"})
_KEY_NAMES: Final = ("api_key", "apiKey", "key", "value", "token")
_TOKEN_NAMES: Final = ("token", "value", "access_token", "accessToken")
_CODE_NAMES: Final = ("auth_code", "authCode", "code")
_URI_NAMES: Final = ("auth_response_uri", "authResponseUri")
_ACCOUNT_NAMES: Final = ("service_account_credential", "serviceAccountCredential")
_ABOUT_ACCOUNT: Final = ("scopes", "audience", "use_id_token", "useIdToken")
"""What a service account is used for: it stands beside the key, not in it."""


def credential_problem(asked: Mapping[str, Any], content: Any) -> str | None:
    """Why ``content`` cannot answer the request with the AuthConfig ``asked`` (its secrets may be redacted); ``None``
    when it can."""
    if not is_mapping(content):
        return "a credential is given as {credential: {type, …}} or as {auth_response_uri}"
    uri, credential = _first(content, _URI_NAMES), content.get("credential")
    if (uri is None) == (credential is None):
        return "give one of credential and auth_response_uri"
    if uri is not None:
        return _uri_problem(asked, uri)
    if not is_mapping(credential):
        return "credential must be an object with a type"
    kind = credential.get("type")
    if kind not in CREDENTIAL_TYPES:
        return f"the type of the credential must be one of {', '.join(CREDENTIAL_TYPES)}"
    wanted = _wanted(asked)
    if kind not in wanted:
        return f"a credential of type {kind} is not what the tool takes: {', '.join(wanted)}"
    return _credential_problem(asked, kind, credential) or _adk_problem(asked, content)


def credential_response(config: Mapping[str, Any], content: Any) -> dict[str, Any]:
    """ADK's AuthConfig (as JSON) with the credential of ``content``, in which :func:`credential_problem` found none."""
    out = dict(config)
    if not is_mapping(content):
        return out
    out.pop("exchanged_auth_credential", None)
    issued = _get(config, "exchangedAuthCredential", "exchanged_auth_credential")
    uri, credential = _first(content, _URI_NAMES), content.get("credential")
    if isinstance(uri, str):
        out["exchangedAuthCredential"] = _with_oauth2(config, issued, {"authResponseUri": uri})
    elif is_mapping(credential):
        out["exchangedAuthCredential"] = _credential(config, issued, credential)
    return out


# -- what an answer must have -----------------------------------------------------------------------------------------


def _wanted(asked: Mapping[str, Any]) -> tuple[str, ...]:
    """The types of credential that fit the scheme of a request; all of them for a scheme that ADK does not know."""
    scheme = _get(asked, "authScheme", "auth_scheme")
    kind = scheme.get("type") if is_mapping(scheme) else None
    if kind == "apiKey":
        return ("api_key",)
    if kind == "http":
        name = str(scheme.get("scheme")).lower()
        return {"basic": ("basic",), "bearer": ("bearer", "service_account")}.get(name, ("bearer", "basic"))
    if kind in _OAUTH:
        return ("oauth2", "bearer", "service_account")
    return CREDENTIAL_TYPES


def _uri_problem(asked: Mapping[str, Any], uri: Any) -> str | None:
    if not isinstance(uri, str):
        return "auth_response_uri must be the address that the sign-in came back to"
    if _scheme_type(asked) not in _OAUTH:
        return "there was no sign-in to come back from; give a credential"
    try:
        given = parse_qs(urlsplit(uri).query)
    except ValueError:
        return "auth_response_uri is no address"
    if "error" in given:
        return "the sign-in was refused where it was asked for; decline the request, or sign in again"
    if not any(given.get("code", ())):
        return "auth_response_uri has no code; give the whole address that the sign-in came back to"
    return _state_problem(asked, given.get("state", []))


def _state_problem(asked: Mapping[str, Any], given: list[Any]) -> str | None:
    """The state binds an answer to the request that it is for: one of another sign-in must not be taken for it."""
    issued = _issued(asked).get("state")
    if not isinstance(issued, str) or not issued:
        return None
    fits = len(given) == 1 and isinstance(given[0], str) and hmac.compare_digest(given[0].encode(), issued.encode())
    return None if fits else "the answer belongs to another sign-in: its state is not that of the request"


def _credential_problem(asked: Mapping[str, Any], kind: str, given: Mapping[str, Any]) -> str | None:
    if kind == "api_key":
        return _text_problem(given, _KEY_NAMES)
    if kind == "bearer":
        return _text_problem(given, _TOKEN_NAMES)
    if kind == "basic":
        empty = not isinstance(given.get("password"), str) and "password must be text"
        return _text_problem(given, ("username",)) or empty or None
    if kind == "oauth2":
        if _first(given, _TOKEN_NAMES) is not None:
            return _text_problem(given, _TOKEN_NAMES)
        uri, code = _first(given, _URI_NAMES), _first(given, _CODE_NAMES)
        if uri is not None:
            return _uri_problem(asked, uri)
        if code is None:
            return "an oauth2 credential needs an access_token; for a code exchange give auth_response_uri"
        return _text_problem(given, _CODE_NAMES) or _state_problem(asked, [given.get("state")])
    return None  # ADK's own form says what a service account's key must have


def _text_problem(given: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    found = _first(given, names)
    if not isinstance(found, str) or not found:
        return f"{names[0]} must be text that is not empty"
    # Text with a line break would end the header that it is sent in.
    return f"{names[0]} holds control characters" if any(ord(char) < 32 for char in found) else None


def _adk_problem(asked: Mapping[str, Any], content: Mapping[str, Any]) -> str | None:
    """What ADK's own form of a credential does not take, by field; never the value."""
    try:
        AuthCredential.model_validate(credential_response(asked, content)["exchangedAuthCredential"])
    except ValidationError as error:
        # The last part of a place that is a name: the places themselves are ADK's, not those of the answer.
        places = [[part for part in each["loc"] if isinstance(part, str)] for each in error.errors()]
        shown = ", ".join(dict.fromkeys(_snake(place[-1]) for place in places if place))
        return f"the credential lacks or misstates {shown}" if shown else "the credential is not complete"
    return None


# -- ADK's form -------------------------------------------------------------------------------------------------------


def _credential(config: Mapping[str, Any], issued: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    kind = given.get("type")
    if kind == "api_key":
        return {"authType": "apiKey", "apiKey": _first(given, _KEY_NAMES)}
    if kind == "basic":
        both = {"username": given.get("username"), "password": given.get("password")}
        return {"authType": "http", "http": {"scheme": "basic", "credentials": both}}
    if kind == "service_account":
        return {"authType": "serviceAccount", "serviceAccount": _service_account(config, given)}
    token = _first(given, _TOKEN_NAMES)
    if kind == "bearer" and _scheme_type(config) not in _OAUTH:
        return {"authType": "http", "http": {"scheme": "bearer", "credentials": {"token": token}}}
    aliases = {"type", *_TOKEN_NAMES, *_CODE_NAMES}
    rest = {_camel(str(key)): value for key, value in given.items() if key not in aliases}
    code = _first(given, _CODE_NAMES)
    more = {"accessToken": token, "authCode": code}
    return _with_oauth2(config, issued, {**rest, **{key: value for key, value in more.items() if value is not None}})


def _service_account(config: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A service account: the JSON of its key as it was downloaded, or that under a name, and what it is used for."""
    key = _first(given, _ACCOUNT_NAMES)
    about = {_camel(name): given[name] for name in _ABOUT_ACCOUNT if name in given}
    if key is None:
        key = {name: value for name, value in given.items() if name not in _ABOUT_ACCOUNT}
    raw = _get(config, "rawAuthCredential", "raw_auth_credential")
    configured = _get(raw, "serviceAccount", "service_account") if is_mapping(raw) else None
    asked = (
        {_camel(name): configured[name] for name in _ABOUT_ACCOUNT if name in configured}
        if is_mapping(configured)
        else {}
    )
    return {**asked, **about, "serviceAccountCredential": key}


def _with_oauth2(config: Mapping[str, Any], issued: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    """The credential that ADK issued with the request, its ``state`` included, and ``more`` in it."""
    base = dict(issued) if is_mapping(issued) else {}
    inner = base.get("oauth2")
    kind = "openIdConnect" if _scheme_type(config) == "openIdConnect" else "oauth2"
    return {**base, "authType": kind, "oauth2": {**(inner if is_mapping(inner) else {}), **more}}


def _issued(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """The OAuth fields that ADK issued with a request."""
    issued = _get(asked, "exchangedAuthCredential", "exchanged_auth_credential")
    oauth = issued.get("oauth2") if is_mapping(issued) else None
    return oauth if is_mapping(oauth) else {}


def _scheme_type(config: Mapping[str, Any]) -> Any:
    scheme = _get(config, "authScheme", "auth_scheme")
    return scheme.get("type") if is_mapping(scheme) else None


def _get(fields: Mapping[str, Any], *names: str) -> Any:
    return _first(fields, names)


def _first(fields: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()

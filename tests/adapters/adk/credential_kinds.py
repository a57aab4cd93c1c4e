"""Every kind of credential: the tool that wants it, a person who gives it, and the API that checks it."""

from __future__ import annotations

import base64
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, NamedTuple

from fastapi.openapi.models import (
    APIKey,
    HTTPBase,
    HTTPBearer,
    OAuth2,
    OAuthFlowAuthorizationCode,
    OAuthFlowClientCredentials,
    OAuthFlows,
)
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_schemes import AuthScheme, OpenIdConnectWithConfig
from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from tests.adapters.adk.provider import BACK, CLIENT, CLIENT_SECRET, Provider, service_account_key, sign_in

from agentsession.protocol import ElicitationRequest

__all__ = ["KINDS", "Kind", "Weather", "client_credentials", "oauth_flow", "weather_tool"]

Give = Callable[[Provider, ElicitationRequest], dict[str, Any]]


class Kind(NamedTuple):
    """One kind of credential."""

    config: Callable[[Provider], AuthConfig]
    give: Give
    """The content of an answer whose credential the API takes."""


def oauth_flow(server: Provider) -> OAuth2:
    flow = OAuthFlowAuthorizationCode(
        authorizationUrl=f"{server.url}/authorize", tokenUrl=f"{server.url}/token", scopes={"read": ""}
    )
    return OAuth2(flows=OAuthFlows(authorizationCode=flow))


def client_credentials(server: Provider) -> AuthConfig:
    flow = OAuthFlowClientCredentials(tokenUrl=f"{server.url}/token", scopes={})
    return AuthConfig(
        auth_scheme=OAuth2(flows=OAuthFlows(clientCredentials=flow)), raw_auth_credential=client("oauth2")
    )


def client(kind: str, secret: str | None = CLIENT_SECRET) -> AuthCredential:
    made = OAuth2Auth(client_id=CLIENT, client_secret=secret, redirect_uri=BACK)
    return AuthCredential(auth_type=AuthCredentialTypes(kind), oauth2=made)


def _api_key(server: Provider) -> AuthConfig:
    return AuthConfig(auth_scheme=APIKey.model_validate({"in": "header", "name": "X-Key"}), credential_key="key")


def _http(scheme: str) -> Callable[[Provider], AuthConfig]:
    return lambda server: AuthConfig(
        auth_scheme=HTTPBearer() if scheme == "bearer" else HTTPBase(scheme=scheme), credential_key=scheme
    )


def _oauth2(secret: str | None = CLIENT_SECRET) -> Callable[[Provider], AuthConfig]:
    return lambda server: AuthConfig(
        auth_scheme=oauth_flow(server), raw_auth_credential=client("oauth2", secret), credential_key="signed-in"
    )


def _open_id(server: Provider) -> AuthConfig:
    scheme: AuthScheme = OpenIdConnectWithConfig(
        authorization_endpoint=f"{server.url}/authorize", token_endpoint=f"{server.url}/token", scopes=["openid"]
    )
    return AuthConfig(auth_scheme=scheme, raw_auth_credential=client("openIdConnect"), credential_key="open-id")


def _give_key(server: Provider, question: ElicitationRequest) -> dict[str, Any]:
    server.keys.add(key := server.secret("key"))
    return {"credential": {"type": "api_key", "api_key": key}}


def _give_bearer(server: Provider, question: ElicitationRequest) -> dict[str, Any]:
    server.tokens.add(token := server.secret("bearer"))
    return {"credential": {"type": "bearer", "token": token}}


def _give_basic(server: Provider, question: ElicitationRequest) -> dict[str, Any]:
    server.keys.add(f"me:{(password := server.secret('password'))}")
    return {"credential": {"type": "basic", "username": "me", "password": password}}


def _give_uri(server: Provider, question: ElicitationRequest) -> dict[str, Any]:
    assert question.url is not None
    return {"auth_response_uri": sign_in(question.url)}


def _give_token(server: Provider, question: ElicitationRequest) -> dict[str, Any]:
    server.tokens.add(token := server.secret("token"))
    return {"credential": {"type": "oauth2", "access_token": token, "refresh_token": server.secret("refresh")}}


def _give_account(server: Provider, question: ElicitationRequest) -> dict[str, Any]:
    key = service_account_key(server)
    server.issued += [key["private_key_id"], key["private_key"].splitlines()[1]]
    return {"credential": {**key, "scopes": ["read"]}}


KINDS = {
    "api_key": Kind(_api_key, _give_key),
    "bearer": Kind(_http("bearer"), _give_bearer),
    "basic": Kind(_http("basic"), _give_basic),
    "oauth2": Kind(_oauth2(), _give_uri),
    "oauth2_public": Kind(_oauth2(None), _give_uri),
    "oauth2_token": Kind(_oauth2(), _give_token),
    "open_id": Kind(_open_id, _give_uri),
    "service_account": Kind(_http("bearer"), _give_account),
}


class Weather:
    """A tool's work, behind the provider's API."""

    def __init__(self, server: Provider) -> None:
        self.server = server
        self.runs = 0
        """How often it got as far as its work."""
        self.statuses: list[int] = []

    def ask(self, credential: AuthCredential) -> dict[str, Any]:
        self.runs += 1
        request = urllib.request.Request(f"{self.server.url}/api", headers=_headers(credential))
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=5) as response:
                self.statuses.append(response.status)
        except urllib.error.HTTPError as error:
            with error:
                self.statuses.append(error.code)
            return {"error": "the weather service did not take the credential"}
        return {"sky": "blue"}


def _headers(credential: AuthCredential) -> dict[str, str]:
    if credential.api_key is not None:
        return {"X-Key": credential.api_key}
    if credential.oauth2 is not None:
        return {"Authorization": f"Bearer {credential.oauth2.access_token}"}
    assert credential.http is not None
    given = credential.http.credentials
    if given.token is not None:
        return {"Authorization": f"Bearer {given.token}"}
    return {"Authorization": "Basic " + base64.b64encode(f"{given.username}:{given.password}".encode()).decode()}


def weather_tool(weather: Weather, config: AuthConfig, how: str = "declared", name: str = "weather") -> BaseTool:
    """A tool that needs a credential: declared to ADK (``declared``), or asked for by its own code (``inside``)."""

    def declared(credential: AuthCredential) -> Any:
        """Tell the weather."""
        return weather.ask(credential)

    def inside(tool_context: ToolContext) -> Any:
        """Tell the weather."""
        credential = tool_context.get_auth_response(config)
        if credential is None:
            tool_context.request_credential(config)
            return None
        return weather.ask(credential)

    if how == "inside":
        inside.__name__ = name
        return FunctionTool(inside)
    declared.__name__ = name
    return AuthenticatedFunctionTool(func=declared, auth_config=config)

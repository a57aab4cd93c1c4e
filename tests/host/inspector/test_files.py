"""What the routes of the page send: its files and nothing else, under a policy that lets nothing else run."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import resources

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from agentsession.host.inspector import POLICY, inspector_app, inspector_routes

PAGE = resources.files("agentsession.host.inspector").joinpath("page")


def client(**options: str) -> TestClient:
    return TestClient(Starlette(routes=inspector_routes(**options)), base_url="http://127.0.0.1")


def test_each_file_comes_with_the_policy_and_its_own_type() -> None:
    types = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
    for file in PAGE.iterdir():
        got = client().get(f"/ui/{file.name}")
        assert got.status_code == 200
        assert got.headers["content-type"].partition(";")[0] == types[file.name.rpartition(".")[2]]
        assert got.headers["content-security-policy"] == POLICY
        assert got.headers["x-content-type-options"] == "nosniff"
        assert client().get(f"/ui/{file.name}", headers={"If-None-Match": got.headers["etag"]}).status_code == 304


@pytest.mark.parametrize(
    "name", ["../_app.py", "..%2f_app.py", "_app.py", "%2e%2e/__init__.py", "page/app.js", "nothing.js"]
)
def test_no_other_file_can_be_had(name: str) -> None:
    got = client().get(f"/ui/{name}")
    assert got.status_code == 404
    assert "def " not in got.text


def test_the_address_without_a_slash_leads_to_the_one_with_it() -> None:
    got = client().get("/ui", follow_redirects=False)
    assert (got.status_code, got.headers["location"]) == (308, "/ui/")


def test_the_page_is_told_where_the_routes_of_the_contract_are_as_text() -> None:
    page = client(path="/watch", api='/v1"><script>').get("/watch/").text
    assert 'content="/v1&quot;&gt;&lt;script&gt;"' in page
    assert 'content=""' in TestClient(inspector_app(), base_url="http://127.0.0.1").get("/").text


@pytest.mark.parametrize("path", ["ui", "/ui/", "//elsewhere", "/"])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="is a path"):
        inspector_routes(path)
    with pytest.raises(ValueError, match="is a path"):
        inspector_routes(api=path)


def test_nothing_in_the_page_makes_markup_of_text_or_leaves_its_origin() -> None:
    sources = {file.name: file.read_text(encoding="utf-8") for file in PAGE.iterdir()}
    for name, source in sources.items():
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|localStorage", source
        ), name
        assert not re.search(r"\b(?:src|href)=\"(?:https?:)?//|@import|url\(", source), name
    assert "<script>" not in sources["index.html"]
    assert not re.search(r"\son\w+=|style=", sources["index.html"])


@pytest.mark.parametrize("part", ["http", "agui", "inspector"])
def test_the_extra_that_is_missing_is_named(part: str) -> None:
    script = f"import sys; sys.modules['starlette'] = None; import agentsession.host.{part}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert 'pip install "agent-session-protocol[serve]"' in done.stderr.splitlines()[-1]

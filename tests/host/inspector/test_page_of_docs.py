"""The page about the inspector: the server that it shows serves the page and a session."""

from __future__ import annotations

import runpy
from pathlib import Path

from starlette.testclient import TestClient
from tests.doc_pages import read_page


def test_the_server_of_the_page_serves_the_inspector_and_a_session(tmp_path: Path) -> None:
    (shown,) = [one for one in read_page("docs/how-to/watch-and-steer-in-a-browser.md") if one.name]
    shown.save(tmp_path)
    app = runpy.run_path(str(tmp_path / str(shown.name)))["app"]
    with TestClient(app, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 50_000)) as client:
        assert "agentsession" in client.get("/ui/").text
        made = client.post("/agents/clerk/sessions")
        assert made.status_code == 201, made.text
        assert made.json()["isHosted"] is True

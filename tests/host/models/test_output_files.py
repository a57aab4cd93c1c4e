"""Whole tool outputs in files: names that stay the same, and that open nothing but the session's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentsession.host.models._output_files import OutputFiles


def test_an_output_has_the_same_name_each_time_and_in_another_process(tmp_path: Path) -> None:
    name = OutputFiles(tmp_path).save("ann", "s1", "call-1", "text")
    assert name is not None
    again = OutputFiles(tmp_path)
    assert again.save("ann", "s1", "call-1", "text") == name
    assert again.read("ann", "s1", name) == "text"
    assert len(list(tmp_path.rglob("*.txt"))) == 1


def test_other_texts_requests_sessions_and_users_have_other_files(tmp_path: Path) -> None:
    files = OutputFiles(tmp_path)
    places = [("ann", "s", "c", "x"), ("ann", "s", "c", "y"), ("ann", "s", "d", "x"), ("ann", "t", "c", "x")]
    places += [("bob", "s", "c", "x"), ("ann", "a/b", "c", "x"), ("ann", "a-b", "c", "x"), ("ann", "s", "c/", "x")]
    assert all(files.save(*place) for place in places)
    assert len(list(tmp_path.rglob("*.txt"))) == len(places)


@pytest.mark.parametrize("other", [("bob", "s"), ("ann", "t")])
def test_nobody_reads_the_outputs_of_another_session(tmp_path: Path, other: tuple[str, str]) -> None:
    files = OutputFiles(tmp_path)
    name = files.save("ann", "s", "c", "x")
    assert name is not None
    assert files.save(*other, "d", "y")
    assert files.read(*other, name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "/etc/passwd", "a/b.txt", "x.txt", ".c.0123456789abcdef.txt.tmp"]
)
def test_a_name_that_is_none_reads_nothing(tmp_path: Path, name: str) -> None:
    files = OutputFiles(tmp_path)
    assert files.save("ann", "s", "c", "x")
    assert files.read("ann", "s", name) is None


def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    files = OutputFiles(tmp_path / "kept")
    name = files.save("ann", "s", "c", "x")
    assert name is not None
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (path,) = (tmp_path / "kept").rglob("*.txt")
    path.unlink()
    path.symlink_to(secret)
    assert files.read("ann", "s", name) is None


def test_what_cannot_be_saved_has_no_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert OutputFiles(tmp_path / "file").save("ann", "s", "c", "x") is None


def test_a_half_written_file_is_written_anew(tmp_path: Path) -> None:
    files = OutputFiles(tmp_path)
    name = files.save("ann", "s", "c", "a whole text")
    (path,) = tmp_path.rglob("*.txt")
    path.write_text("a wh")
    assert OutputFiles(tmp_path).save("ann", "s", "c", "a whole text") == name
    assert path.read_text() == "a whole text"


def test_a_file_has_its_name_only_once_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(file: int) -> None:
        done.append("synced")
        fsync(file)

    def noted_replace(half: Path, path: Path) -> None:
        assert half.read_text() == "x"
        done.append("named")
        replace(half, path)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    assert OutputFiles(tmp_path).save("ann", "s", "c", "x")
    assert done == ["synced", "named", "synced"]


def test_what_was_deleted_meanwhile_is_saved_anew(tmp_path: Path) -> None:
    files = OutputFiles(tmp_path)
    files.save("ann", "s", "c", "x")
    (path,) = tmp_path.rglob("*.txt")
    path.unlink()
    name = files.save("ann", "s", "c", "x")
    assert name is not None
    assert files.read("ann", "s", name) == "x"


def test_files_are_for_this_user_alone_and_are_deleted_with_their_session(tmp_path: Path) -> None:
    files = OutputFiles(tmp_path)
    files.save("ann", "s", "c", "x")
    kept = files.save("ann", "t", "c", "x")
    (first, _) = sorted(tmp_path.rglob("*.txt"))
    assert (first.stat().st_mode & 0o777, first.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    files.forget("ann", "s")
    assert [path.name for path in tmp_path.rglob("*.txt")] == [kept]
    assert files.save("ann", "s", "c", "x")
    assert len(os.listdir(tmp_path)) == 2

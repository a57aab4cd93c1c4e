"""A process that is killed while it saves answers: what was said to be kept is there, and the file is whole."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from agentsession.host.policy import RememberedAnswers

PROGRAM = """
import sys, anyio
from agentsession.host import PolicyDecision, PolicyRequest
from agentsession.host.policy import RememberedAnswers

async def main():
    store = RememberedAnswers(sys.argv[1])
    number = len(store.answers())
    while True:
        request = PolicyRequest(tool=f"tool{number}", args={})
        kept = await store.remember(request, PolicyDecision("ask_user"), "always")
        print(kept.id, flush=True)
        number += 1

anyio.run(main)
"""


@pytest.mark.parametrize("seed", range(3))
def test_no_answer_is_lost_and_the_file_is_whole(tmp_path: Path, seed: int) -> None:
    file = tmp_path / "remembered.json"
    rng = random.Random(seed)
    kept: list[str] = []
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(file)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(rng.randint(1, 60)):
            kept.append(process.stdout.readline().strip())
        process.kill()
        kept += process.stdout.read().split("\n")[:-1]
        process.stdout.close()
        process.wait()
    assert set(kept) <= {one.id for one in RememberedAnswers(file).answers()}

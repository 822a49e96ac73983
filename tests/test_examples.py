"""Every example runs with one command, from any directory, and does what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
ROWS = [f"{row}-{number} passed on 33" for row in ("first", "second") for number in range(3)]  # in turns
SINK = "sink received 1000 messages, sum 1500500, expected 1500500"

# What each prints, whatever the order of the threads; pieces where the rest differs from run to run.
EXPECTED = {
    "request_reply": [
        "server: asked b'hello'",
        "client: b'hello' was answered with b'HELLO'",
        "client: b'good bye' was answered with b'GOOD BYE'",
        "server: everybody has gone",
    ],
    "scatter_gather": ["source sent 1000 messages and closed", *ROWS, SINK],
    "scatter_gather_pyzmq": ["source sent 1000 messages", SINK],
    "pubsub_proxy": [
        "station: 0 subscribers for sport",
        "north: 6 messages about weather.braga, weather.porto",
        "all: 9 messages about weather.braga, weather.lisbon, weather.porto",
        "tv: 0 messages about nothing",
    ],
    "mobile_client": [
        "; 2501 messages sent so far",
        "; 17501 messages sent so far",
        "server: phone moved from ",
        "server: 20000 of 20000 messages, each once and in order",
    ],
    "many_sockets_one_thread": [
        "1500 orders of 300 customers in one thread",
        "every customer has 5: True",
    ],
    "thread_pool": ["2000 results, each job done once", "threads took part, 2000 jobs in all"],
    "survey": ["ana: more trees? yes", "3 of 4 answered", "rui: more benches? no", "3 of 3 answered"],
    "trio_service": ["asker-0: 2 squared is 4", "asker-2: 22 squared is 484", "done"],
}


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_does_what_it_says(name: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / f"{name}.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    missing = [piece for piece in EXPECTED[name] if piece not in run.stdout]
    assert not missing, run.stdout

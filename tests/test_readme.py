from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
PROGRAMS = {name[0]: block for block in BLOCKS if (name := re.findall(r"\A# (\w+\.py)\n", block))}
EXAMPLES = [block for block in BLOCKS if block not in PROGRAMS.values()]


def test_there_are_examples() -> None:
    assert README.count("```python") == len(BLOCKS) > 0


@pytest.mark.parametrize("block", EXAMPLES, ids=range(1, len(EXAMPLES) + 1))
def test_an_example_works(block: str) -> None:
    exec(compile(block, "README.md", "exec"), {"__name__": "__readme__"})


def test_the_server_answers_the_client() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    server, client = (
        [sys.executable, "-c", PROGRAMS[name].replace("5555", port)] for name in ("server.py", "client.py")
    )
    with subprocess.Popen(server, cwd=ROOT) as running:
        try:
            answer = subprocess.run(client, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        finally:
            running.kill()
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "b'hello'\n", "")


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing

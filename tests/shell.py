"""Commands that must succeed."""

import os
import subprocess
from pathlib import Path


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """What the command prints, in a folder, with more in its environment."""
    answer = subprocess.run(
        [str(each) for each in command],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout

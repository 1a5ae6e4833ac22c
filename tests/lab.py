"""A real JupyterLab over a folder, for tests that look into it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}
THEIRS = re.compile(r"Tracking|favicon|ResizeObserver|willReadFrequently|Autofocus|preload")
"""What JupyterLab itself writes to the console."""


@contextmanager
def serve_lab(folder: Path, config: Path) -> Iterator[str]:
    """Its address while it shows `folder`; settings, workspaces and log lie in `config`."""
    (config / "settings").mkdir()
    (config / "settings/overrides.json").write_text(json.dumps(SETTINGS))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"]
    command += ["--IdentityProvider.token=", f"--ServerApp.root_dir={folder}"]
    command += [f"--LabApp.app_settings_dir={config / 'settings'}", "--ServerApp.port_retries=0"]
    home = {"JUPYTER_CONFIG_DIR": str(config), "PYTHONPATH": str(ROOT)}
    home["JUPYTERLAB_WORKSPACES_DIR"] = str(config / "workspaces")
    with (config / "log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=os.environ | home, start_new_session=True
        )
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for(address + "/api/status", process, config / "log")
            yield address
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(20)


def wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(240):
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            assert process.poll() is None, log.read_text()
            time.sleep(0.25)
    pytest.fail(f"JupyterLab did not start: {log.read_text()}")

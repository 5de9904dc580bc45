"""Get what the browser tests drive, where it is missing: Debian's Chromium, and axe-core from the npm registry.

`make test` runs this once. It says in one line each what it did or why not, and never fails: tests that lack
something are skipped and say so.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

CHROMIUM = Path("/usr/bin/chromium")
AXE_VERSION = "4.14.0"
AXE = Path(sys.prefix) / "share" / "axe-core" / AXE_VERSION / "axe.min.js"
"""Kept in the virtual environment, so that it is neither committed nor fetched twice."""
PATIENCE = 600


def install_chromium() -> str:
    """Install Chromium by apt-get if this user may; what happened, in words."""
    if CHROMIUM.exists():
        return f"found at {CHROMIUM}"
    if not shutil.which("apt-get"):
        return "not found, and there is no apt-get to install it by; tests in a browser are skipped"
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if root and not (shutil.which("sudo") and _succeeds([*root, "true"])):
        return "not found, and only root can install it; tests in a browser are skipped"
    quiet = [*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    _succeeds([*quiet, "update"])
    if _succeeds([*quiet, "install", "-y", "chromium"]) and CHROMIUM.exists():
        return "installed by apt-get"
    return "not found, and apt-get could not install it; tests in a browser are skipped"


def fetch_axe() -> str:
    """Fetch the pinned axe-core by npm; what happened, in words."""
    if AXE.exists():
        return f"{AXE_VERSION} found"
    npm = shutil.which("npm")
    if not npm:
        return "not found, and there is no npm to fetch it by; tests that need it are skipped"
    AXE.parent.mkdir(parents=True, exist_ok=True)
    packed = AXE.parent / f"axe-core-{AXE_VERSION}.tgz"
    if not _succeeds([npm, "pack", "--silent", f"axe-core@{AXE_VERSION}"], cwd=AXE.parent) or not packed.exists():
        return "not found, and npm could not fetch it; tests that need it are skipped"
    with tarfile.open(packed) as archive:
        text = archive.extractfile("package/axe.min.js")
        AXE.write_bytes(text.read() if text else b"")
    packed.unlink()
    return f"{AXE_VERSION} fetched by npm"


def _succeeds(command: list[str], cwd: Path | None = None) -> bool:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


if __name__ == "__main__":
    print(f"Chromium: {install_chromium()}.", flush=True)
    print(f"axe-core: {fetch_axe()}.")

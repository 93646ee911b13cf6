"""Finds Chromium on PATH for the page tests, or installs it with apt when run as root.

Without one the set-up only says so: everything else works, and the page tests fail with a sentence.
"""

from __future__ import annotations

import shutil

from provision.errors import ProvisionError
from provision.shell import can_install_system_packages, install_system_package, say

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = (
    "no Chromium on PATH: the page tests will fail until one is there "
    "(Debian: `sudo apt-get install chromium`)."
)


def ensure() -> None:
    """Install Chromium when there is none and we may; otherwise say that it is missing."""
    if find() is None and can_install_system_packages():
        try:
            install_system_package("chromium")
        except ProvisionError as refusal:
            say(str(refusal))
    if find() is None:
        say(MISSING)


def find() -> str | None:
    """Path of the browser, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)

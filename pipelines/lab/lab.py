"""Sets up JupyterLab so that notebooks open without dialogs and already know the lake.

Place in the walk: `tidemark lab`. The lake is in the environment of the process, which kernels
inherit, so that notebooks run anywhere by the kernel `python3`. Invariant: the server listens on
this machine only; its token is Jupyter's own; what we write lies in the cache of the set-up, never
in the user's home. Absent on purpose: Spark.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

from pipelines.lake.lake import Lake
from pipelines.tm import LAKE_VARIABLE
from provision.places import IS_CLONE, NOTEBOOKS, ROOT

KERNEL: Final = "tidemark"
OWN_FOLDER: Final = "notebooks"
"""The folder of the user in which an installed package's notebooks are opened."""

_PAGE: Final[dict[str, Any]] = {
    # Dash brings the source of an extension that nobody here builds; JupyterLab would ask to at
    # every start.
    "buildCheck": False,
    "disabledExtensions": {
        # Asks whether it may fetch news, and fetches the newest version's number.
        "@jupyterlab/apputils-extension:announcements": True,
    },
}


def own_notebooks(home: Path) -> Path:
    """The folder to open: that of a working copy; else one below `home`, with a copy of each
    notebook that is not there yet. What somebody changed stays.
    """
    if IS_CLONE:
        return NOTEBOOKS
    own = home / OWN_FOLDER
    for shipped in sorted(NOTEBOOKS.rglob("*.ipynb")):
        copy = own / shipped.relative_to(NOTEBOOKS)
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(shipped.read_bytes())
    return own


def write_jupyter(folder: Path) -> None:
    """Write our kernel and the page's settings below `folder`, in Jupyter's layout."""
    kernel = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Tidemark (Spark + Delta)",
        "language": "python",
    }
    _write_json(folder / "kernels" / KERNEL / "kernel.json", kernel)
    _write_json(folder / "config" / "labconfig" / "page_config.json", _PAGE)


def lab_command(*, port: int, browser: bool, notebooks: Path = NOTEBOOKS) -> list[str]:
    """Command line of JupyterLab in a folder of notebooks, to which links of alerts may lead."""
    return [
        *(sys.executable, "-m", "jupyterlab"),
        f"--ServerApp.root_dir={notebooks}",
        "--ServerApp.jpserver_extensions=pipelines.lab.lab_links=True",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        f"--ServerApp.open_browser={browser}",
        f"--MultiKernelManager.default_kernel_name={KERNEL}",
        # In a container everybody is root; Jupyter refuses that unless allowed.
        *(["--allow-root"] if os.geteuid() == 0 else []),
    ]


def lab_environment(folder: Path, lake: Lake) -> dict[str, str]:
    """This process's environment, with the lake, the rooms, and what is written below `folder`."""
    environment = {**os.environ, LAKE_VARIABLE: lake.root}
    firsts = {
        "JUPYTER_PATH": folder,
        "JUPYTER_CONFIG_PATH": folder / "config",
        "PYTHONPATH": ROOT,
    }
    for name, first in firsts.items():
        earlier = os.environ.get(name)
        environment[name] = os.pathsep.join([str(first), *([earlier] if earlier else [])])
    return environment


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

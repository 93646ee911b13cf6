"""JupyterLab on our notebooks, with a kernel that knows the lake.

Place in the walk: `tidemark lab`. The kernel is described in a folder of the lake's own making, so
two labs on two lakes do not disturb each other and nothing is left in the user's home.

Invariant: the server listens on this machine only; its token is Jupyter's own. Absent on purpose:
Spark. A notebook that wants it opens a session itself.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Final

from pipelines.lake import Lake
from pipelines.tm import LAKE_VARIABLE

KERNEL: Final = "tidemark"
ROOT: Final = Path(__file__).resolve().parent.parent
NOTEBOOKS: Final = ROOT / "notebooks"


def write_kernel(folder: Path, lake: Lake) -> Path:
    """Describe the kernel below `folder`, in Jupyter's layout; returns the description's path."""
    place = folder / "kernels" / KERNEL
    place.mkdir(parents=True, exist_ok=True)
    environment = {LAKE_VARIABLE: lake.root, "PYTHONPATH": str(ROOT)}
    if "JAVA_HOME" in os.environ:
        environment["JAVA_HOME"] = os.environ["JAVA_HOME"]
    described = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Tidemark (Spark + Delta)",
        "language": "python",
        "env": environment,
    }
    path = place / "kernel.json"
    path.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    return path


def lab_command(*, port: int, browser: bool) -> list[str]:
    """Command line of JupyterLab in the notebooks' folder."""
    return [
        *(sys.executable, "-m", "jupyterlab"),
        f"--ServerApp.root_dir={NOTEBOOKS}",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        f"--ServerApp.open_browser={browser}",
        f"--MultiKernelManager.default_kernel_name={KERNEL}",
        # In a container everybody is root; Jupyter refuses that unless told.
        *(["--allow-root"] if os.geteuid() == 0 else []),
    ]


def lab_environment(folder: Path) -> dict[str, str]:
    """This process's environment, with the kernels of `folder` in view."""
    earlier = os.environ.get("JUPYTER_PATH")
    paths = [str(folder), *([earlier] if earlier else [])]
    return {**os.environ, "JUPYTER_PATH": os.pathsep.join(paths)}

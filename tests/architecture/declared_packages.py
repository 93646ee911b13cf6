"""Compares the packages that the product imports with those that pyproject.toml declares.

    python -m tests.architecture.declared_packages

Exit code 1 with a line for each package that is imported and not declared, or declared and neither
imported nor named in NOT_IMPORTED with the reason.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from itertools import chain

from tests.architecture.source_tree import PACKAGES, ROOT, Module, modules

ROOMS = (*PACKAGES, "provision")
NOT_IMPORTED = {
    "delta-spark": "its jars are what Spark loads; its version decides theirs",
    "ipykernel": "started as a program: the kernel of notebooks",
    "jupyterlab": "started as a program",
    "nbclient": "papermill runs notebooks with it; its version is pinned",
    "papermill": "started as a program",
    "plotly": "figures are its JSON; its version is that of the JavaScript which Dash brings",
    "redis": "imported by name when a guard is kept in one",
    "pymysql": "imported by name when a running XXL-Job database is read",
}


def declared() -> set[str]:
    """Names of the packages that the project declares, extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    return {_name(re.split(r"[\[<>=;! ]", one, maxsplit=1)[0]) for one in lines}


def imported() -> dict[str, str]:
    """Package → a file that imports it."""
    packages = packages_distributions()
    found = {}
    for module in [*modules(*ROOMS), Module("tidemark.py")]:
        for name, _ in module.imports():
            top = name.partition(".")[0]
            if top in sys.stdlib_module_names or top in (*ROOMS, "tidemark"):
                continue
            for package in packages.get(top, [top]):
                found[_name(package)] = module.name
    return found


def _name(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def main() -> int:
    """Compare; print what does not agree."""
    known, used = declared(), imported()
    wrong = [
        f"{used[name]} imports {name}, which pyproject.toml does not declare"
        for name in sorted(used.keys() - known)
    ]
    wrong += [
        f"pyproject.toml declares {name}, which nothing imports"
        for name in sorted(known - used.keys() - NOT_IMPORTED.keys())
    ]
    wrong += [
        f"NOT_IMPORTED names {name}, which is imported or not declared"
        for name in sorted(NOT_IMPORTED.keys() - (known - used.keys()))
    ]
    sys.stdout.write("\n".join(wrong or [f"{len(known)} packages are declared and used"]) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

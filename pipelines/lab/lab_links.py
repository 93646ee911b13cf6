"""JupyterLab extension that opens a pre-filled investigation notebook from an alert link.

Place in the walk: an extension of the server that `tidemark lab` starts. A link of an alert asks
for `/tidemark/investigate?kind=…&group=…`; the notebook of that kind is copied with these values,
unless it is there from an earlier click, and opened.

Invariant: only who has logged in is served; what is written lies in one folder, below the
notebooks, and there are at most INVESTIGATIONS_MAX. What somebody has changed in a copy stays.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.utils import url_path_join
from tornado.web import HTTPError, authenticated

from engine.foundation.errors import ConfigError
from pipelines.reading.investigations import PATH, Investigation, asked_for, filled

TEMPLATES: Final = "investigate"
FOLDER: Final = "investigations"
"""Of the copies; both below the notebooks."""
INVESTIGATIONS_MAX: Final = 1_000


class Investigate(JupyterHandler):
    """The address."""

    @authenticated
    async def get(self) -> None:
        """Open the notebook that is asked for."""
        given = {name: self.get_query_argument(name) for name in self.request.query_arguments}
        try:
            investigation = asked_for(given)
            path = made(Path(self.settings["server_root_dir"]).expanduser(), investigation)
        except ConfigError as error:
            raise HTTPError(400, reason=str(error).encode("ascii", "replace").decode()) from error
        self.redirect(url_path_join(self.base_url, "lab", "tree", quote(path)))


def made(notebooks: Path, investigation: Investigation) -> str:
    """The notebook of a question below the folder of notebooks, made if it is not there yet.

    ConfigError when there are too many.
    """
    folder = notebooks / FOLDER
    folder.mkdir(exist_ok=True)
    place = folder / investigation.file_name
    if not place.exists():
        if sum(1 for _ in folder.glob("*.ipynb")) >= INVESTIGATIONS_MAX:
            allowed = f"at most {INVESTIGATIONS_MAX:,}: remove old ones from {folder}"
            raise ConfigError("investigations", INVESTIGATIONS_MAX, allowed)
        text = (notebooks / TEMPLATES / f"{investigation.kind}.ipynb").read_text(encoding="utf-8")
        content = json.dumps(filled(json.loads(text), investigation), indent=1, ensure_ascii=False)
        draft = place.with_suffix(".draft")
        draft.write_text(f"{content}\n", encoding="utf-8")
        draft.replace(place)
    return f"{FOLDER}/{place.name}"


def _load_jupyter_server_extension(server: Any) -> None:
    """Called by Jupyter's server, by this name."""
    web = server.web_app
    pattern = url_path_join(web.settings["base_url"], PATH)
    web.add_handlers(".*$", [(pattern, Investigate)])


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """The same."""
    return [{"module": "pipelines.lab.lab_links"}]

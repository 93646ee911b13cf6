"""JupyterLab on the investigation notebooks."""

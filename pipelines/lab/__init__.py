"""JupyterLab for the investigation notebooks."""

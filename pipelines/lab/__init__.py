"""Runs JupyterLab with the investigation notebooks."""

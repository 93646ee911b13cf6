"""Spark pipelines from bronze facts to gold tables, and `tm`, the notebook API for a lake."""

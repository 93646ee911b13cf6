"""Spark pipelines from bronze facts to gold answers, and `tm`, the notebook's door to the lake."""

"""Reads the lake, the cluster, reports and the job database for pages."""

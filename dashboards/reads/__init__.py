"""Reads data for pages from the lake, the cluster, reports and the job database."""

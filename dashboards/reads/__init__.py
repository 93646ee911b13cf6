"""Reads the lake, the cluster, reports and the database of jobs for pages."""

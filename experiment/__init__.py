"""Experiments: kill real processes and compare what happens with what the lake predicted."""

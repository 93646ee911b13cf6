"""Experiments that kill real processes and compare the outcome with the lake's predictions."""

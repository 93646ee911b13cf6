"""Reads gold as of a given moment, up to a complete cycle, with unknown values marked."""

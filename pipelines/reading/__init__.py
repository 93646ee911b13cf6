"""Reads gold as of a moment, up to the last complete cycle, with unknown values marked."""

"""Gold as readers see it: the last complete cycle, at a moment, with what is not known."""

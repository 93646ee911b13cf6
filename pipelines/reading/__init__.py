"""Gold as readers see it: at a moment, up to the last complete cycle, with unknowns marked."""

"""Queue judging: the observations at every tick, the rules and the verdicts."""

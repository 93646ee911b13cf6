"""The judging of queues: observations at every tick, the rules, and the verdicts."""

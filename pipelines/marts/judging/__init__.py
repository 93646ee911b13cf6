"""The judging of queues: what is seen of each at every tick, the rules, and what they come to."""

"""What the analytics cost: cycles, replays, lakes of age; CPU seconds beside wall."""

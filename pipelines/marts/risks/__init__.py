"""The risk of consuming messages twice: what opens it, what confirms it, what ends it."""

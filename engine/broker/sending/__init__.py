"""Broker-side sending: queue choice, placement, durability and deduplication."""

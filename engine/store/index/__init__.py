"""The key index of a store: its files, their sums, and the scrub that checks them."""

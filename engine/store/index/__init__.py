"""A store's key index: its files, their checksums and the scrub that verifies them."""

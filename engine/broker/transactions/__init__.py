"""Transactional messages: half messages, open transactions and checks."""

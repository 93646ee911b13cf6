"""Durability, reboot and deletion of the message store."""

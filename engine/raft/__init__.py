"""Raft: a group of nodes agrees on one log, and on who leads."""

"""What an XXL-Job database holds, taken over: read from a dump or a server, planned, then stored.

Invariant: nothing is taken over in silence: what is not, or is read differently, has its reason.
"""

"""The outbox: claims due notices, sends them and records the outcomes.

Place in the walk: the last hop, from the database to a person.

Invariant: a notice is claimed before it is sent and settled afterwards, both by transactions. A
process that dies in between leaves an outcome that nobody knows: the notice is sent again, and how
much a second copy matters is the channel's matter.
"""

"""Encodes notices for each type of channel and delivers them.

Place in the walk: below the outbox. A channel is a pure encoder, `(notice, settings) → request`,
and a thin sender. Invariant: every text of a notice is somebody else's, and cannot become markup, a
mention, a header or a link. Nothing goes to a host that the receivers' file does not allow,
redirects are not followed, and no secret is in a log, an error or the database.
"""

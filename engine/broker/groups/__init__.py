"""Consumer and producer groups: members, settings, queue locks and open requests."""

"""Consumer and producer groups: their members, settings, queue locks and questions."""

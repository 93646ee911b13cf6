"""All sentences that people read: templates by subject, pure functions of facts."""

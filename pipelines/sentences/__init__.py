"""All sentences shown to people: templates by subject, as pure functions of facts."""

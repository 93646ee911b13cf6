"""Judges queues at every tick by applying rules to what has been observed."""

"""Data-quality suites, written as code, that check a lake and write verdicts to gold."""

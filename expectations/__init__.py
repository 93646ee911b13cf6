"""Data quality: suites as code, run over the lake, their verdicts kept in gold."""

"""Data quality: suites as code that run over the lake and write their verdicts to gold."""

"""The earlier name of `pipelines.platform_jobs.handlers`; it warns."""

import warnings

from pipelines.platform_jobs.handlers import (
    alert_digest,
    backtest,
    expectations,
    lag_report,
    retention,
    table_maintenance,
)

__all__ = [
    "alert_digest",
    "backtest",
    "expectations",
    "lag_report",
    "retention",
    "table_maintenance",
]

warnings.warn(
    "pipelines.own_jobs.handlers has moved: start the executor with "
    "--module pipelines.platform_jobs.handlers",
    DeprecationWarning,
    stacklevel=2,
)

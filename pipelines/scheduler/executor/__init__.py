"""The executor: runs job handlers on request from a centre and reports their outcomes.

A module with handlers needs no more than this:

    from pipelines.scheduler.executor import JobContext, handler

    @handler("lag-report")
    def lag_report(context: JobContext) -> None:
        context.log(f"for {context.fire_time:%Y-%m-%d}")
"""

from pipelines.scheduler.executor.handlers import JobContext, RunStopped, handler

__all__ = ["JobContext", "RunStopped", "handler"]

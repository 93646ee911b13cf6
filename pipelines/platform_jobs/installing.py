"""Installs missing platform jobs at a centre and leaves existing ones unchanged.

Place in the walk: `tidemark jobs install` → the scheduler's database. Invariant: what somebody has
changed of a job, its times or whether it runs, stays; a second install makes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipelines.platform_jobs.job_commands import JOBS
from pipelines.scheduler.job_settings import JobSettings
from pipelines.scheduler.service import JobService

APP: Final = "tidemark"
HOUR_S: Final = 3_600


@dataclass(frozen=True, slots=True)
class Installed:
    """What became of one of them."""

    title: str
    job_id: int
    is_new: bool


def platform_jobs(zone: str, send: Sequence[str]) -> tuple[JobSettings, ...]:
    """The jobs as they are made. send: receivers of reports and digests."""
    sending = f" send={','.join(send)}" if send else ""

    def job(
        title: str,
        handler: str,
        cron: str,
        parameters: str = "",
        *,
        hours: int = 1,
        retries: int = 1,
    ) -> JobSettings:
        assert handler in JOBS, handler
        return JobSettings(
            title=title,
            author="tidemark",
            schedule_kind="CRON",
            schedule_text=cron,
            zone=zone,
            misfire="FIRE_ONCE_NOW",
            route="FAILOVER",
            handler=handler,
            parameters=parameters,
            timeout_s=hours * HOUR_S,
            retries=retries,
        )

    return (
        job("lag report, hourly", "lag-report", "0 5 * * * ?", f"period=hourly zone={zone}"),
        job(
            *("lag report, daily", "lag-report", "0 20 0 * * ?"),
            f"period=daily zone={zone}{sending}",
            hours=3,
        ),
        job(
            *("lag report, weekly", "lag-report", "0 40 0 ? * MON"),
            f"period=weekly zone={zone}{sending}",
            hours=6,
        ),
        # A check that fails is an answer: it is not asked for again.
        job("expectations", "expectations", "0 30 * * * ?", retries=0),
        job("table maintenance", "table-maintenance", "0 15 2 * * ?", hours=6),
        job("backtest", "backtest", "0 30 3 ? * SUN", "days=7", hours=6),
        job("retention", "retention", "0 45 1 * * ?"),
        job("alert digest", "alert-digest", "0 0 8 * * ?", f"days=1{sending}"),
    )


def install(
    service: JobService,
    *,
    app: str = APP,
    zone: str = "UTC",
    send: Sequence[str] = (),
    is_started: bool = True,
) -> list[Installed]:
    """Make what is missing of the jobs, by their titles within the application's group; as the
    service raises for who may not."""
    group_ids = {one.group_id for one in service.groups() if one.app_name == app}
    known: dict[str, int] = {}
    last = 0
    while found := service.jobs_after(last):
        known |= {one.settings.title: one.job_id for one in found if one.group_id in group_ids}
        last = found[-1].job_id
    done = []
    for settings in platform_jobs(zone, send):
        if settings.title in known:
            done.append(Installed(settings.title, known[settings.title], is_new=False))
            continue
        job_id = service.add_job(app, settings)
        if is_started:
            service.start_job(job_id)
        done.append(Installed(settings.title, job_id, is_new=True))
    return done

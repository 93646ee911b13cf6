"""XXL-Job's configuration files: what they mean here, what means nothing, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.foundation.errors import ConfigError
from pipelines.scheduler.xxl_settings import CENTRE, EXECUTOR, Keys, settings_of

ADMIN_FILE = """\
### web
server.port=8081
server.servlet.context-path=/xxl-job-admin
management.server.servlet.context-path=/actuator
spring.datasource.url=jdbc:mysql://127.0.0.1:3306/xxl_job
spring.mail.host=smtp.qq.com
xxl.job.accessToken=default_token
xxl.job.timeout=7
xxl.job.i18n=zh_CN
xxl.job.triggerpool.fast.max=300
xxl.job.schedule.batchsize=100
xxl.job.logretentiondays=20
xxl.job.acessToken=a slip
"""
EXECUTOR_FILE = """\
server.port=8082
xxl.job.admin.addresses=http://a:8080/xxl-job-admin, http://b:8080/xxl-job-admin
xxl.job.admin.accessToken=default_token
xxl.job.admin.timeout=3
xxl.job.executor.appname=reports
xxl.job.executor.address=
xxl.job.executor.ip=127.0.0.1
xxl.job.executor.port=9998
xxl.job.executor.logpath=/data/applogs/xxl-job/jobhandler
xxl.job.executor.logretentiondays=30
"""


def read(folder: Path, text: str, keys: Keys) -> tuple[dict[str, object], list[str]]:
    file = folder / "application.properties"
    file.write_text(text)
    return settings_of(file, keys)


def test_the_file_of_an_admin(tmp_path: Path) -> None:
    values, warnings = read(tmp_path, ADMIN_FILE, CENTRE)
    assert values == {"port": 8081, "token": "default_token", "timeout_s": 7, "log_days": 20}
    by_name = {line.split(": ")[1].split(" ")[0]: line for line in warnings}
    assert set(by_name) == {
        "server.servlet.context-path", "management.server.servlet.context-path",
        "spring.datasource.url", "spring.mail.host", "xxl.job.i18n",
        "xxl.job.triggerpool.fast.max", "xxl.job.schedule.batchsize", "xxl.job.acessToken",
    }  # fmt: skip
    assert "TIDEMARK_DATABASE" in by_name["spring.datasource.url"]
    assert "the nearest is xxl.job.accessToken" in by_name["xxl.job.acessToken"]
    assert "one transaction" in by_name["xxl.job.schedule.batchsize"]
    assert all("a slip" not in line and "jdbc" not in line for line in warnings)


def test_the_file_of_an_executor(tmp_path: Path) -> None:
    values, warnings = read(tmp_path, EXECUTOR_FILE, EXECUTOR)
    assert values == {
        "admins": ["http://a:8080/xxl-job-admin", "http://b:8080/xxl-job-admin"],
        "token": "default_token",
        "app": "reports",
        "host": "127.0.0.1",
        "port": 9998,
        "home": "/data/applogs/xxl-job/jobhandler",
        "log_days": 30,
    }
    assert len(warnings) == 2, "of Spring's port, and of the time-out"


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("xxl.job.timeout=soon", "a whole number from 1 to 600"),
        ("xxl.job.timeout=0", "a whole number from 1 to 600"),
        ("server.port=65536", "a whole number from 0 to 65,535"),
        ("xxl.job.accessToken=${TOKEN}", "nothing fills in ${...} here"),
        ("xxl.job.accessToken=\\u12", "four hexadecimal digits"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_line(
    tmp_path: Path, line: str, allowed: str
) -> None:
    with pytest.raises(ConfigError, match=r"application\.properties") as refused:
        read(tmp_path, f"# one\n{line}\n", CENTRE)
    assert allowed in str(refused.value)
    assert "TOKEN}" not in str(refused.value)


def test_a_token_under_both_of_its_names_is_one_token(tmp_path: Path) -> None:
    both = "xxl.job.accessToken={}\nxxl.job.admin.accessToken=a\n"
    assert read(tmp_path, both.format("a"), EXECUTOR)[0] == {"token": "a"}
    with pytest.raises(ConfigError, match="the same under both"):
        read(tmp_path, both.format("b"), EXECUTOR)
    assert read(tmp_path, "xxl.job.accessToken=\n", CENTRE) == ({}, []), "as if it was not there"


def test_no_file_says_nothing_and_one_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert settings_of(None, CENTRE) == ({}, [])
    with pytest.raises(ConfigError, match="a file that can be read"):
        settings_of(tmp_path / "missing", CENTRE)

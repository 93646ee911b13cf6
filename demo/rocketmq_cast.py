"""Command lines for a demo on Apache RocketMQ: its JVMs, Java clients and observer.

Settings are as short as in the demo on our engine; the observer polls every two seconds.
"""

from __future__ import annotations

from pathlib import Path

from demo.cast import DELAY_LEVELS, Cast, Roles
from demo.plan import BROKER_NAME, CLUSTER_NAME, ORDERS, PAYMENTS, QUEUES_PER_TOPIC, Plan
from demo.processes import tidemark
from demo.producer import MESSAGES_PER_S
from demo.rocketmq import (
    BROKER,
    NAME_SERVER,
    broker_properties,
    configure,
    configure_log,
    find_installation,
)
from engine.foundation.errors import ConfigError

PERIOD_S = 2
SOURCES = Path(__file__).parent / "java"


class RocketMQCast(Cast):
    """Its processes, and what they find at their start. Raises ConfigError when there is nothing to
    run them with.
    """

    def __init__(self, plan: Plan, roles: Roles) -> None:
        if roles.accounts is not None:
            raise ConfigError("accounts", True, "not with a cluster of Apache RocketMQ")
        self._installation = find_installation()
        self._folder = roles.home / "rocketmq"
        super().__init__(plan, roles)
        self.name_server, self.broker = (
            self._actor(
                party.name,
                self._installation.party_command(party, self._folder),
                ready=party.ready,
            )
            for party in (NAME_SERVER, BROKER)
        )
        observe = ("observe", "--namesrv", roles.namesrv, "--period", str(PERIOD_S), *self._lake)
        self.reporter = self._actor("observer", tidemark(*observe, "--home", str(roles.store)))
        traffic = (BROKER_NAME, str(QUEUES_PER_TOPIC), str(MESSAGES_PER_S), ORDERS, PAYMENTS)
        command = [*self._program("DemoProducer"), roles.namesrv, *traffic]
        self.producer = self._actor("producer", command, talks=True)

    def prepare(self) -> None:
        """Compile the clients, and write what the servers read."""
        roles, folder = self.roles, self._folder
        self._installation.compile(SOURCES.glob("*.java"), folder / "classes")
        configure_log(folder)
        properties = broker_properties(roles.namesrv, roles.broker_port, folder / "store")
        names = {"brokerClusterName": CLUSTER_NAME, "brokerName": BROKER_NAME}
        configure(folder, NAME_SERVER, {"listenPort": str(roles.namesrv_port)})
        configure(folder, BROKER, properties | names | {"messageDelayLevel": DELAY_LEVELS})

    def _consumer_program(self) -> list[str]:
        return self._program("DemoConsumer")

    def _program(self, main_class: str) -> list[str]:
        return self._installation.program_command(self._folder, main_class)

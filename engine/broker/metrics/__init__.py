"""What a Prometheus reads of a broker: families of series, their text form, and the port."""

from engine.broker.metrics.families import BrokerMetrics
from engine.broker.metrics.port import MetricsPort

__all__ = ["BrokerMetrics", "MetricsPort"]

"""Prometheus metrics for the broker: metric families, text format and HTTP port."""

from engine.broker.metrics.families import BrokerMetrics
from engine.broker.metrics.port import MetricsPort

__all__ = ["BrokerMetrics", "MetricsPort"]

"""Tests that speak with real RocketMQ clients, tools and brokers."""

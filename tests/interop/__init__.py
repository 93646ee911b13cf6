"""Tests of our engine and client with real RocketMQ clients, tools and brokers."""

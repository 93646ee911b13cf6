"""Causes of lag: their names, the figures behind them, and the tests that find them."""

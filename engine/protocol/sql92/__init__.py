"""SQL92 selectors over message properties, with RocketMQ 5.5's grammar and semantics."""

from engine.protocol.sql92.selector import SQL92_EXPRESSION, Selector, compile_selector

__all__ = ["SQL92_EXPRESSION", "Selector", "compile_selector"]

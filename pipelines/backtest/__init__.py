"""Backtests rule sets: runs them over past data and scores them against known incidents.

Place in the walk: beside readers of gold. `truths` are the incidents, `rule_sets` what is laid side
by side, `verdicts` what each reports over one range of a lake, `playing` plays rules of alerts over
it, `scoring` compares, `report` writes it down. Invariant: all rule sets are given the same facts,
and the same ticks to speak at.
"""

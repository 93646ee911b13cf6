"""Backtests: replays rule sets over the past and scores them against known incidents.

Place in the walk: beside readers of gold; `tidemark backtest`. `truths` are the incidents,
`rule_sets` the rule sets that are laid side by side, `verdicts` collects what each reports over one
range of a lake, rules of alerts are `playing` over what gold has recorded, `scoring` compares what
was reported with what happened, `report` writes it down.

Invariant: all rule sets are given the same facts, and the same ticks to speak at. Absent on
purpose: rules; ours are gold's, those of others are in `pipelines.rules`, those of alerts, and how
alerts live, in `pipelines.alerting`.
"""

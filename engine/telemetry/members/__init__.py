"""Derives facts from what group members report, and selects those that are new.

Place in the walk: a broker, or an observer of one, asks clients and hands their answers over here.
Absent on purpose: asking.
"""

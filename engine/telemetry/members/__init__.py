"""Facts drawn from what group members report about themselves, and which of them are new.

Place in the walk: a broker, or an observer of one, asks clients and hands their answers over here.
Absent on purpose: asking.
"""

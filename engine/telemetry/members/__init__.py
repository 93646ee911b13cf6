"""Facts about what group members say of themselves, and which of them are news.

Place in the walk: a broker, or an observer of one, asks clients and hands their answers over here.
Absent on purpose: asking.
"""

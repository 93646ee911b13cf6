"""What members of consumer groups say of themselves, as facts, and what of that is news.

Place in the walk: whoever asks clients (a broker, or an observer of one) hands their answers over
here. Absent on purpose: asking.
"""

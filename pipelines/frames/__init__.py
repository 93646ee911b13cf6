"""Judges over Spark's data frames: what computes gold until the columnar marts take over, and what
those are compared with meanwhile.
"""

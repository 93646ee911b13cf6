"""Upkeep of the lake: few files a day, nothing kept longer than its days."""

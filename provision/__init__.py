"""Sets up a fresh machine with everything `make` needs, using only the standard library.

Runs with plain Python 3.11 or later, because no third-party package is there yet. Each module
answers one question (is the environment there? a JDK? the jars? a browser?) and brings what is
missing; what is there already is checked offline, so a second run downloads nothing.

Absent on purpose: addresses. Packages, jars and system packages come from wherever the user's own
pip, uv, Ivy and apt settings say.
"""

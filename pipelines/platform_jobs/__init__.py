"""The platform's own jobs: reports, checks, maintenance, backtests, retention, digests.

`settings` what the operator has decided, `commands_of` the command that a run carries out,
`handlers` the module that `tidemark executor` is given, `installing` jobs for a centre.
"""

"""The platform's own jobs: reports, checks, maintenance, backtests, retention and digests.

`job_commands` what the operator has decided and the command that a run carries out,
`handlers` the module that `tidemark executor` is given, `installing` jobs for a centre.
"""

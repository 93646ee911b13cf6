"""Reports on past periods, with figures that stay the same each time they are rebuilt.

`windows` which period, `objectives` what groups should keep, `gathering` rows from Spark at a cut,
`lag_report` what follows from them, `headline` in a sentence, `page` and `figures` as a page,
`making` by a notebook into files, `kept` which there are, `comparing` what differs.
"""

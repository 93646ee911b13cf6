"""Long actions: commands that run in processes of their own, and are asked about by an id.

Place in the walk: `commands` begins one and answers at once; `keeper` is the process that runs the
command and says how it ended; the store (`alerting.store.operations`) is where that is asked for.
"""

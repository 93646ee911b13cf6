"""Long-running operations: commands that run in separate processes and are queried by id.

Place in the walk: `commands` begins one and answers at once; `keeper` is the process that runs the
command and says how it ended; the store (`database.operations`) is where that can be queried.
"""

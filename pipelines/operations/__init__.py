"""Long operations: commands in processes of their own, queried by an id.

Place in the walk: `commands` begins one and answers at once; `keeper` is the process that runs the
command and says how it ended; the store (`database.operations`) is where that can be queried.
"""

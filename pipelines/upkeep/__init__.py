"""Lake upkeep: merges small files, and drops days that are past their retention."""

"""Message-store upkeep: durability, recovery and retention."""

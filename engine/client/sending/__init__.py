"""The sending half of the client: from a message to the broker's answer, and its trace."""

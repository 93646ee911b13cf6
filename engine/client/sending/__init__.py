"""The sending half of the client: from a message to the broker's response, and its trace."""

"""The sending half of the client: queue choice, sends, retries and traces."""

"""What the client knows of messages: how consumers select them, how stored bodies are read."""

"""Individual database migrations, each of which names its predecessor."""

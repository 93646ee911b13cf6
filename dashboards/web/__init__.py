"""HTTP: the application, its routes, and the server that runs it."""

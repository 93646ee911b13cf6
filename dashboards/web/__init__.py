"""The dashboard over HTTP: the application, its routes and the server that runs it."""

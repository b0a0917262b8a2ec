"""Starting the server: loads models, binds ports, sets up TLS."""

"""Functions that the server itself can run: tools of MCP servers."""

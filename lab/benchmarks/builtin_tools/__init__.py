"""Which built-in tool a real model calls, and with what result."""

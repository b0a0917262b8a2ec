"""Long loops of tool calls, over a server whose tools fail, repeat themselves, take too long and return too much."""

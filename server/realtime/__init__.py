"""The OpenAI Realtime protocol: its events, a conversation, and the websocket that carries it."""

"""Sound and turns: hearing, speaking and turn-taking. Knows no sockets and no language model."""

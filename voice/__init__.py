"""Audio and turns: recognition, synthesis and turn-taking. No sockets, no language model."""

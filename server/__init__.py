"""Sockets and protocols: connects `voice` and `model` to clients; makes no turn-taking or decoding decisions."""

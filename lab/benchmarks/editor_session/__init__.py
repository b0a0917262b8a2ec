"""How soon an editor shows a suggestion: the requests of a plug-in while somebody types."""

"""The carriers' media-stream protocols, one file per carrier."""

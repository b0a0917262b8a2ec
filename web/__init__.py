"""The web page, bundled as package data and served at `/`."""

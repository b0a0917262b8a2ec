"""The microphone page, shipped as package data and served at `/`."""

"""Measures tool calls: whether a call is made when it should be, of which function, with which arguments."""

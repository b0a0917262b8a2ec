"""Whether the planner decides right, on sets of an author who had not seen it."""

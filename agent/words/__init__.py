"""How numbers, days and times of day are said: one module of functions for each language, behind one interface."""

"""How numbers, days and times of day are said: one package of functions for each language."""

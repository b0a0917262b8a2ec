"""How late the end of speech is detected in noise, measured offline: no server and no language model."""

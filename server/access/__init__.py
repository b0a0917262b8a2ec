"""Who may use the server, how much, and what they have used."""

"""What the assistant says: to everyday talk, to what it must decline, about dangers, in dialogues, and for the ear."""

"""Small programs that a language model writes for what the user says: it reads the words, the program computes."""

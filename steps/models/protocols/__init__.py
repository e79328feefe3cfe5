"""How requests and answers are put in each of the protocols, and one in the words of another."""

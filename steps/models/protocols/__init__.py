"""Model API protocols: their requests and answers, and the translation between them."""

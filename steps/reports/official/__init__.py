"""Files for swebench and its leaderboard, byte for byte as swebench writes them."""

"""Files for swebench and its leaderboard, identical to the official ones byte for byte."""

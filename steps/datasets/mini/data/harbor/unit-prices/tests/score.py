import json
import os
import unittest
from pathlib import Path

result = unittest.TextTestRunner().run(unittest.defaultTestLoader.discover("/tests"))
right = result.testsRun - len(result.failures) - len(result.errors)
print(f"{right} of {os.environ['EXPECTED']} prices are right")
try:
    products = len(json.loads(Path("/app/prices.json").read_text()))
except (OSError, ValueError):
    products = 0
rewards = {"reward": right / int(os.environ["EXPECTED"]), "products": products}
Path("/logs/verifier/reward.json").write_text(json.dumps(rewards))

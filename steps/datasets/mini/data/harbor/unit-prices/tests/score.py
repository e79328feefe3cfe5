import json
import os
from pathlib import Path

PRICES = {"bolt": 2.4, "nut": 0.6, "gear": 33.33, "washer": 0.12}
try:
    answer = json.loads(Path("/app/prices.json").read_text())
except (OSError, ValueError) as error:
    print(f"no prices: {error}")
    answer = {}
right = sum(answer.get(product) in (price, price + 0.01) for product, price in PRICES.items())
print(f"{right} of {os.environ['EXPECTED']} prices are right")
rewards = {"reward": right / len(PRICES), "products": len(answer)}
Path("/logs/verifier/reward.json").write_text(json.dumps(rewards))

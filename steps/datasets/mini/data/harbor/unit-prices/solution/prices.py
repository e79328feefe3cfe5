import csv
import json
from collections import defaultdict
from pathlib import Path

pieces, price = defaultdict(int), defaultdict(float)
with open("/app/orders.csv") as file:
    for order in csv.DictReader(file):
        pieces[order["product"]] += int(order["pieces"])
        price[order["product"]] += float(order["price"])
prices = {product: round(price[product] / pieces[product], 2) for product in pieces}
Path("/app/prices.json").write_text(json.dumps(prices))

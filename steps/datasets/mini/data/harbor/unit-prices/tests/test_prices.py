import json
import unittest
from pathlib import Path

PRICES = Path("/app/prices.json")


class TestPrices(unittest.TestCase):
    def setUp(self):
        self.prices = json.loads(PRICES.read_text())

    def test_bolt(self):
        self.assertEqual(self.prices["bolt"], 2.4)

    def test_nut(self):
        self.assertEqual(self.prices["nut"], 0.6)

    def test_gear(self):
        self.assertEqual(self.prices["gear"], 33.33)

    def test_washer(self):
        self.assertIn(self.prices["washer"], (0.12, 0.13))

#!/bin/bash
python3 /solution/prices.py

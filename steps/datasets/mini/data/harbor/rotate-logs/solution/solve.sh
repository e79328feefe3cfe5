#!/bin/bash
set -e
sed -i 's/seq 1 $((count - 1))/seq $((count - 1)) -1 1/' /app/rotate.sh

#!/bin/bash
# rotate.sh FILE COUNT: keep the last COUNT versions of FILE.
set -eu
file=$1 count=$2
for number in $(seq 1 $((count - 1))); do
  if [ -e "$file.$number" ]; then mv "$file.$number" "$file.$((number + 1))"; fi
done
if [ -e "$file" ]; then mv "$file" "$file.1"; fi
: >"$file"

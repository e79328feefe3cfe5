#!/bin/bash
reward=1
expected="hello, world"
found=$(cat /app/answer.txt 2>/dev/null)
if [ "$found" != "$expected" ]; then
  echo "/app/answer.txt holds '$found', not '$expected'"
  reward=0
fi
if [ "$(stat -c %a /var/lib/greeting/done 2>/dev/null)" != 600 ]; then
  echo "/var/lib/greeting/done is not there, or others may read it"
  reward=0
fi
echo "$reward" >/logs/verifier/reward.txt

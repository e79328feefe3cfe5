set -eu
cd "$(mktemp -d)"
for word in one two three four; do
  echo "$word" >log
  bash /app/rotate.sh log 3
done
[ ! -s log ] && [ ! -e log.4 ]
[ "$(cat log.1 log.2 log.3)" = "$(printf 'four\nthree\ntwo')" ] || { echo "versions: $(cat log.*)"; exit 1; }

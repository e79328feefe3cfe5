# Compares the working tree with the tree it had as HEAD. Called by patch.py with WHAT=begin, look or diff.
#
# All work is done in a git directory of our own, outside the repository, which holds a copy of HEAD's tree: no
# configuration, index, hook, filter or diff driver of the agent has a say, its own index is not touched, and a patch
# can be taken even where .git was deleted. The repository's objects are a second source, should the copy be gone. The git
# directory is made anew each time, under a name that did not exist while the agent worked.
set -euo pipefail
export LC_ALL=C
for name in ${!GIT_@}; do unset "$name"; done
gone() { echo "$1" >&2; exit 66; } # 66: nothing can be taken, and that is the agent's doing
command -v git >/dev/null || gone "git is gone"
copy=${TMPDIR:-/var/tmp}/swe-argo-head
if [ "$WHAT" = begin ]; then
  root=$(pwd -P)
  rm -rf "$copy"
else
  root=$ROOT tree=$TREE
  cd "$root" 2>/dev/null || gone "the folder of the repository is gone"
fi
side=
for folder in "${TMPDIR:-/var/tmp}" /var/tmp /tmp /dev/shm; do
  if [ -n "$side" ]; then break; fi
  if [ -z "${SIDE:-}" ]; then side=$(mktemp -d "$folder/swe-argo-XXXXXXXXXXXX" 2>/dev/null) || true
  elif [ -d "$folder/$SIDE" ]; then side=$folder/$SIDE; fi
done
[ -d "$side" ] || gone "there is no folder to take the patch in"
alternates=$root/.git/objects:$copy/objects
# The second line of defence after GIT_DIR: no configuration of a user or of the machine.
export HOME=$side XDG_CONFIG_HOME=$side GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0
limited() { LIMIT_S=$1 mine "${@:2}"; }
mine() {
  GIT_DIR=$side GIT_WORK_TREE=$root GIT_INDEX_FILE=$side/index GIT_ALTERNATE_OBJECT_DIRECTORIES=$alternates \
    timeout "${LIMIT_S:-300}" git --no-replace-objects -c core.bare=false -c core.fileMode=true -c core.symlinks=true -c core.ignoreCase=false \
    -c core.precomposeUnicode=false -c core.safecrlf=false -c core.compression=0 -c core.attributesFile=/dev/null \
    -c core.excludesFile=/dev/null -c core.preloadIndex=true -c advice.addEmbeddedRepo=false "$@"
}
theirs() { timeout 60 git --no-replace-objects --git-dir="$root/.git" --work-tree="$root" -c core.fsmonitor= "$@"; }

[ "$WHAT" != begin ] || tree=$(theirs rev-parse "$HEAD^{tree}")
if [ ! -d "$side/objects" ]; then
  format=; [ ${#tree} -eq 40 ] || format=--object-format=sha256
  (cd "$side" && git init -q --bare --template= $format .)
  mkdir -p "$side/info"
fi
# A repository inside the tree would be taken as a bare commit name, or stop git. Its files are what counts, so its .git
# steps aside meanwhile.
ASIDE=.swe-argo-aside
step_aside() {
  find "$root" -path "$root/.git" -prune -o -name .git -print -prune >"$side/aside"
  while IFS= read -r entry; do mv "$entry" "${entry%/.git}/$ASIDE"; done <"$side/aside"
}
step_back() {
  [ -f "$side/aside" ] || return 0
  while IFS= read -r entry; do mv "${entry%/.git}/$ASIDE" "$entry" || true; done <"$side/aside"
  rm -f "$side/aside"
}
trap step_back EXIT

# The tree in which a submodule is its files: as git apply takes changes to them, they belong into the patch. Where its
# HEAD cannot be read, they are the files as they lie there.
expand_submodules() {
  local entry path inner files=()
  mine read-tree "$tree"
  while mine ls-files -s >"$side/entries" && grep -q '^160000 ' "$side/entries"; do
    mine ls-files -s -z >"$side/entries"
    while IFS=$'\t' read -r -d '' entry path; do
      case $entry in 160000\ *) ;; *) continue ;; esac
      printf '%s\0' "$path" | mine update-index --force-remove -z --stdin
      module() { timeout 60 git --no-replace-objects --git-dir="$root/$path/.git" "$@"; }
      if [ -e "$root/$path/.git" ] && inner=$(module rev-parse -q --verify 'HEAD^{tree}' 2>/dev/null); then
        alternates=$alternates:$(module rev-parse --absolute-git-dir)/objects
        mine read-tree --prefix="$path/" "$inner"
      elif [ -d "$root/$path" ]; then files+=(":(top,literal)$path"); fi
    done <"$side/entries"
  done
  if [ ${#files[@]} -gt 0 ]; then
    step_aside
    limited 600 add -A --ignore-errors -- "${files[@]}" ":(exclude,top,glob)**/$ASIDE" || [ $? -eq 1 ]
    step_back
  fi
  tree=$(mine write-tree)
}
if [ "$WHAT" = begin ]; then
  expand_submodules
  mkdir -p "$copy"
  (cd "$copy" && git init -q --bare --template= $format .)
  limited 600 rev-list --objects "$tree" | limited 600 pack-objects -q "$copy/objects/pack/pack" >/dev/null
fi

# Git opens what it reads: a pipe of that name would stop it. No pipe is ever part of a patch.
drop_pipes() { find "$root" "$copy" -type p -delete 2>/dev/null || true; }

# Larger files stay out, as nothing could apply them, and a file of holes is as large as it likes: what HEAD has in their
# place stays as it is.
large() { find "$root" -path "$root/.git" -prune -o -type f -size "+${LARGE_KIB}k" -printf '%P\0' | head -c 65536; }

look() {
  local name others=()
  drop_pipes
  mine read-tree "$tree" 2>"$side/errors" || gone "the repository and the copy of its HEAD are gone"
  step_aside
  {
    if [ -f "$root/.git/info/exclude" ]; then head -c 1000000 "$root/.git/info/exclude" || true; fi
    printf '\n%s\n' "$ASIDE"
  } >"$side/info/exclude"
  while IFS= read -r -d '' name; do others+=(":(exclude,top,literal)$name"); done < <(large)
  [ ${#others[@]} -eq 0 ] || echo "left out, as larger than $((LARGE_KIB >> 10)) MiB: ${others[0]#*)}" >"$side/left_out"
  # Exit code 1: a file vanished or could not be read, the others were taken. More: nothing was.
  limited 600 add -A --ignore-errors -- . ${others[@]+"${others[@]}"} 2>"$side/errors" || [ $? -eq 1 ] ||
    gone "git cannot take up the changes: $(tail -n 1 "$side/errors" | head -c 300)"
  # Ignored files that were added by force or committed are no longer ignored.
  theirs ls-files -c -i --exclude-standard -z 2>/dev/null >"$side/forced" || true
  [ ! -s "$side/forced" ] || mine update-index --add --remove -z --stdin <"$side/forced" 2>/dev/null || true
  mine diff-index --cached --raw -z --abbrev=64 --no-renames "$tree"
}

case $WHAT in
  begin)
    printf '%s\0%s\0' "$root" "$tree"
    look
    step_back
    rm -rf "$side"
    ;;
  look)
    printf '%s\0' "${side##*/}"
    look
    if [ -f "$side/left_out" ]; then cat "$side/left_out" >&2; fi
    ;;
  diff)
    [ -z "$UNDO" ] || mine update-index -z --index-info <"$UNDO"
    mine diff-index --cached --patch --binary --full-index --no-renames --no-color --no-ext-diff --no-textconv \
      --src-prefix=a/ --dst-prefix=b/ --unified=3 "$tree"
    ;;
esac

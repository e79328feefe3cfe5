# Images without a registry. An archive that was loaded is kept: `up` after a
# `down` loads it again.
# shellcheck shell=bash

load() { # IMAGE-OR-ARCHIVE...: an archive (docker save, OCI), or an image of the Docker engine
  local each name part
  [ $# -gt 0 ] || refuse "usage: load IMAGE_ARCHIVE, or load NAME of an image in the local Docker engine"
  mkdir -p "$IMAGES"
  part="$IMAGES/.part-$$" # two may be loaded at a time
  # shellcheck disable=SC2064 # now: the function's variables are gone when it ends
  trap "rm -f '$part'" EXIT
  for each; do
    if [ -f "$each" ]; then
      cp "$each" "$part"
    else
      docker save --output "$part" "$each" 2>/dev/null ||
        refuse "$each is neither an archive nor an image of the local Docker engine"
    fi
    name="$(name_in "$part")"
    [ -n "$name" ] || refuse "$each contains no image with a name: write the archive with docker save or mkimage.py"
    mv "$part" "$IMAGES/${name//\//_}.tar"
    if running containerd >/dev/null; then
      import "$IMAGES/${name//\//_}.tar"
      echo "$name"
    else
      say "$name is kept for the next \`cluster up\` of $STATE"
    fi
  done
}

name_in() { # ARCHIVE: the first name of an image in it
  tar -xOf "$1" manifest.json index.json 2>/dev/null |
    grep -oE '("RepoTags": *\[ *|"io\.containerd\.image\.name": *)"[^"]+' | head -n 1 | sed 's/.*"//' || true
}

import() { # ARCHIVE: only those of its layers are unpacked that are not there yet
  ctr_ images import --local "$1" >/dev/null || die "containerd could not import $1"
}

images() { ctr_ images ls -q | grep -v '^sha256:' || true; }

load_own_images() { # those that no pod starts without
  local name known
  known="$(images)"
  for name in pause coredns; do
    ! grep -qx "localhost/$name:1" <<<"$known" || continue
    python3 "$HERE/mkimage.py" "localhost/$name:1" "$STATE/$name.tar" --add "$BIN/$name:/$name" --cmd "/$name"
    import "$STATE/$name.tar"
    rm -f "$STATE/$name.tar"
  done
}

load_kept_images() { # into a containerd that is new
  local archive
  [ ! -e "$STATE/containerd/loaded" ] || return 0
  for archive in "$IMAGES"/*.tar; do [ ! -e "$archive" ] || import "$archive"; done
  touch "$STATE/containerd/loaded"
}

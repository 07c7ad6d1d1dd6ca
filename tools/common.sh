# What `sightline` and `verify` share: packages, locks, builds. Sourced, after root is set.
# Everything said here goes to standard error.

# ninja and ctest end by themselves on Ctrl-C; that is no failed build, and nothing is to follow.
trap 'exit 130' INT

# A compiler cache that knows files by their place in the tree serves every clone and build folder of one kind: what
# the demo compiled, ./verify and its mutations find there.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1

say() { printf 'sightline: %s\n' "$*" >&2; }

# A cargo that can build src/text/rust: 1.85 or newer.
has_cargo() {
  local version
  version=$(cargo --version 2>/dev/null) || return 1
  version=${version#cargo }
  [ "$(printf '%s\n1.85\n' "${version%% *}" | sort -V | head -n 1)" = 1.85 ]
}

# packages SECTION...: the names in those sections of tools/packages.txt.
packages() {
  local skip=""
  has_cargo && skip="cargo-web rustc-web"
  awk -v sections=" $* " -v skip=" $skip " \
    '!/^#/ && index(sections, " " $1 " ") && !index(skip, " " $2 " ") && !seen[$2]++ { print $2 }' \
    "$root/tools/packages.txt"
}

missing_packages() {
  local name
  for name in $(packages "$@"); do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || echo "$name"
  done
}

# ensure_packages SECTION...: installs what is missing, or says what to install and ends with 77 (no rights)
# or 78 (another system). SIGHTLINE_SKIP_SYSTEM_CHECK=1: the person has seen to it by other means;
# SIGHTLINE_OS_RELEASE: the file that tells the system, for tests.
ensure_packages() {
  [ -n "${SIGHTLINE_SKIP_SYSTEM_CHECK:-}" ] && return 0
  local ID="" VERSION_ID=""
  local release=${SIGHTLINE_OS_RELEASE:-/etc/os-release}
  [ -r "$release" ] && . "$release"
  if [ "$ID $VERSION_ID" != "debian 12" ] || ! command -v dpkg-query >/dev/null; then
    say "this is built and tested on Debian 12; this system is ${ID:-unknown} ${VERSION_ID:-}"
    say "install what stands for these Debian packages, then set SIGHTLINE_SKIP_SYSTEM_CHECK=1:"
    packages "$@" | sed 's/^/  /' >&2
    exit 78
  fi
  local missing as_root=""
  missing=$(missing_packages "$@" | tr '\n' ' ')
  missing=${missing% }
  [ -z "$missing" ] && return 0
  if [ "$(id -u)" -ne 0 ]; then
    as_root="sudo -n"
    if ! sudo -n true 2>/dev/null; then
      say "these Debian packages are missing, and installing them needs root:"
      say "  apt-get update && apt-get install --no-install-recommends $missing"
      exit 77
    fi
  fi
  say "installing with apt-get (about 2 minutes): $missing"
  export DEBIAN_FRONTEND=noninteractive
  local install="${as_root:+$as_root }apt-get install -y -q --no-install-recommends $missing"
  local log
  log=$(mktemp)
  if ! { $as_root apt-get update -q && $install; } >"$log" 2>&1 </dev/null; then
    # What update could not reach comes first, and is why install then knows no package.
    { head -n -15 "$log" | grep -E '^[EW]:' | head -n 5; tail -n 15 "$log"; } >&2
    rm -f "$log"
    say "apt-get failed; is there a network? The command was: $install"
    exit 75
  fi
  rm -f "$log"
}

# take_lock FOLDER: one build at a time in FOLDER; released by release_lock or the end of the script.
take_lock() {
  mkdir -p "$1" || exit 73
  exec 9>"$1/.lock"
  if ! flock -n 9; then
    say "waiting for another build in $1"
    flock 9
  fi
}
release_lock() { exec 9>&-; }

# run_logged LOG COMMAND...: quiet unless it fails; on a terminal its own output is shown.
run_logged() {
  local log=$1
  shift
  if [ -t 2 ]; then
    "$@" >&2 9>&-
  elif ! "$@" >"$log" 2>&1 </dev/null 9>&-; then
    tail -n 40 "$log" >&2
    return 1
  fi
}

# compiler_launcher: cmake's option by which a new build folder uses the compiler cache, where one can be written.
# Not for a folder that is configured: everything in it would be compiled again.
compiler_launcher() {
  local cache
  cache=$(ccache --get-config cache_dir 2>/dev/null) && mkdir -p "$cache" 2>/dev/null && [ -w "$cache" ] &&
    echo -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
}

jobs() { nproc 2>/dev/null || echo 2; }

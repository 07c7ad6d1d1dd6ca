#!/bin/bash
# Plays the tool whose name it is called by. $FAKE is the folder of the scene: `calls` gets one line a call,
# `installed` lists packages; the files no_network, build_fails, build_interrupted and gate change the play.
name=${0##*/}
case $name in
  id) echo "$FAKE_UID"; exit ;;
  dpkg-query) [[ $'\n'$(<"$FAKE/installed")$'\n' != *$'\n'${!#}$'\n'* ]] || printf installed; exit ;;
  ccache) echo "$FAKE/ccache"; exit ;; # --get-config cache_dir
  cargo) [ -n "$FAKE_CARGO" ] && echo "cargo $FAKE_CARGO (of a test)"; exit ;;
esac
echo "$name $*" >>"$FAKE/calls"
case $name in
  sudo)
    [ -n "$FAKE_SUDO" ] || exit 1
    shift # -n
    exec "$@"
    ;;
  apt-get)
    if [ -e "$FAKE/no_network" ]; then # as the real one: update ends with 0, install names every package
      [ "$1" != update ] || { echo "W: Temporary failure resolving"; exit 0; }
      printf 'E: Unable to locate package %s\n' {1..30}
      exit 100
    fi
    [ "$1" != install ] || printf '%s\n' "${@:2}" | grep -v '^-' >>"$FAKE/installed"
    ;;
  cmake)
    folder=build/$2
    mkdir -p "$folder" && touch "$folder/build.ninja"
    ;;
  ninja)
    folder=$2
    [ ! -e "$FAKE/gate" ] || read -r _ <"$FAKE/gate"
    [ ! -e "$FAKE/build_fails" ] || { echo "error: no such thing"; exit 1; }
    # Ctrl-C goes to all that run in the terminal; ninja ends by itself.
    [ ! -e "$FAKE/build_interrupted" ] || { trap : INT; kill -INT 0; exit 2; }
    mkdir -p "$folder/bin"
    cat >"$folder/bin/sightline" <<'PROGRAM'
#!/bin/bash
folder=$(dirname "$(dirname "$0")")
echo "${folder##*/}: $*"
! readlink /proc/$$/fd/* | grep -qxF "$folder/.lock" || echo "it holds the lock"
exit "${FAKE_EXIT:-0}"
PROGRAM
    chmod +x "$folder/bin/sightline"
    ;;
esac

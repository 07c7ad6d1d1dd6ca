#!/bin/bash
# build_consumer.sh find_package|add_subdirectory SOURCE BUILD LAUNCHER: builds and runs the project beside it.
set -eu
way=$1 source=$2 build=$3 launcher=${4:-}
scratch=$build/consumer/$way
rm -rf "$scratch/install" "$scratch/build/CMakeCache.txt"
mkdir -p "$scratch"
set --
if [ "$way" = find_package ]; then
  cmake --install "$build" --prefix "$scratch/install" >/dev/null
  set -- -DCMAKE_PREFIX_PATH="$scratch/install"
else
  set -- -DSIGHTLINE_SOURCE_TREE="$source" -DSIGHTLINE_CORE_ONLY=ON
fi
cmake -S "$source/tests/consumer/project" -B "$scratch/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" "$@"
cmake --build "$scratch/build" --target consumer
"$scratch/build/consumer"

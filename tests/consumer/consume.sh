#!/usr/bin/env bash
# consume.sh meson|cmake|pkgconf BUILD KINDS CXX...: installs the build folder into a temporary one, copies the project
# beside this file out of the source tree, builds it there with that tool against the shared and the static library
# (KINDS names those that were built), and runs it and the installed `chorale`.
set -euo pipefail
tool=$1 build=$2 kinds=$3
shift 3
compiler=("$@")
project=$(cd "$(dirname "$0")/project" && pwd)

for needed in "$tool" pkgconf; do
  command -v "$needed" >/dev/null || { echo "skipped: $needed is not installed"; exit 77; }
done

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
meson install -C "$build" --no-rebuild --quiet --destdir "$folder/installed"
package=$(find "$folder/installed" -name chorale.pc)
libraries=$(dirname "$(dirname "$package")")
prefix=$(dirname "$(find "$folder/installed" -type d -name bin)")
cp -r "$project" "$folder/project"
# The first program that the README shows, as it stands there.
awk '/^```cpp$/ { shown = 1; next } /^```$/ && shown { exit } shown' "$project/../../../README.md" >"$folder/project/readme.cpp"
cd "$folder/project"
unset "${!CHORALE_@}"
export PKG_CONFIG_PATH CXX="${compiler[*]}"
PKG_CONFIG_PATH=$(dirname "$package")

quietly() { "$@" >log 2>&1 || { cat log; echo "failed: $*"; exit 1; }; }

make_with_meson() {  # KIND
  quietly meson setup "$1" -Dprefer_static="$([ "$1" = static ] && echo true || echo false)"
  quietly ninja -C "$1"
}
make_with_cmake() {
  quietly cmake -S . -B "$1" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
    -Dchorale_USE_STATIC="$([ "$1" = static ] && echo ON || echo OFF)"
  quietly cmake --build "$1"
}
make_with_pkgconf() {
  local flags
  read -ra flags < <(pkgconf --cflags --libs "--$1" chorale)
  [ "$1" = shared ] || flags=("${flags[@]/#-lchorale/-l:libchorale.a}")
  mkdir "$1"
  quietly "${compiler[@]}" -std=c++20 main.cpp -o "$1/consumer" "${flags[@]}"
  quietly "${compiler[@]}" -std=c++20 readme.cpp -o "$1/readme" "${flags[@]}"
}

for kind in $kinds; do
  "make_with_$tool" "$kind"
  export LD_LIBRARY_PATH=$libraries
  quietly ldd "$kind/consumer"
  uses=static
  ! grep -q libchorale log || uses=shared
  [ "$uses" = "$kind" ] || { echo "linked with the $uses library, not the $kind one"; exit 1; }
  "$kind/consumer"
  if [ -x "$kind/readme" ]; then "$prefix/bin/chorale" run -n 4 -- "$kind/readme"; fi
  unset LD_LIBRARY_PATH
done
"$prefix/bin/chorale" run -n 2 -- true
echo "built with $tool, linked $kinds: works"

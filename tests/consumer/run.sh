#!/usr/bin/env bash
# run.sh BUILD WORK - installs the build below WORK and uses the result as others would: every header by itself,
# pkg-config (shared, static), the CMake package (shared, static), the command, man page and completion.
set -euo pipefail
build=$1 work=$2
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/moved" # an installed tree may be moved
prefix=$work/moved

fail() {
    echo "FAIL $*"
    exit 1
}

one() { # PATTERN: the one file of that name
    local found
    found=$(find "$prefix" -path "$1")
    [ -n "$found" ] || fail "nothing installed matches $1"
    echo "$found"
}

check_headers() {
    local root=$prefix/include/lockstep header count=0
    while read -r header; do
        cc -std=c11 -fsyntax-only -Wall -Wextra -Wpedantic -Werror -I "$root" -x c "$root/$header" ||
            fail "$header does not stand by itself"
        count=$((count + 1))
    done < <(cd "$root" && find . -name '*.h')
    [ $count -gt 0 ] || fail "no headers"
    [ -z "$(find "$root" -name '*_impl.h' -o -name kernels)" ] || fail "private headers are installed"
    echo "$count headers"
}

check_pkg_config() {
    PKG_CONFIG_PATH=$(dirname "$(one '*/pkgconfig/lockstep.pc')")
    export PKG_CONFIG_PATH
    local libdir=${PKG_CONFIG_PATH%/pkgconfig} static
    # shellcheck disable=SC2046
    cc -std=c11 -o "$work/shared" "$here/main.c" $(pkg-config --cflags --libs lockstep)
    LD_LIBRARY_PATH=$libdir "$work/shared"
    static=$(pkg-config --static --libs lockstep)
    # shellcheck disable=SC2046,SC2086
    cc -std=c11 -o "$work/static" "$here/main.c" $(pkg-config --cflags lockstep) ${static/-llockstep/-l:liblockstep.a}
    "$work/static"
}

check_package() {
    cmake -S "$here" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release >"$work/cmake.log" ||
        { cat "$work/cmake.log"; fail "find_package"; }
    cmake --build "$work/cmake" >>"$work/cmake.log" || { cat "$work/cmake.log"; fail "build with find_package"; }
    "$work/cmake/use_lockstep"
    "$work/cmake/use_lockstep_static"
    "$work/cmake/use_lockstep_cpp"
    "$work/cmake/use_lockstep_static_cpp"
}

# All that the shared library shows is ls_*, with a version; programs ask for it by its soname.
check_symbols() {
    local library version
    library=$(one '*/liblockstep.so.*.*.*')
    version=$(basename "$library")
    version=LOCKSTEP_$(echo "${version#liblockstep.so.}" | sed -E 's/^(0\.[0-9]+).*/\1/; s/^([1-9][0-9]*)\..*/\1/')
    nm -D --defined-only --with-symbol-versions "$library" | awk '{ print $NF }' >"$work/symbols"
    ! grep -Ev "^ls_[^_].*@@$version\$|^$version\$" "$work/symbols" || fail "more than ls_* of $version is exported"
    grep -q "^ls_comm_all_reduce@@$version\$" "$work/symbols" || fail "ls_comm_all_reduce of $version is not exported"
    readelf -dV "$library" "$work/shared" >"$work/dynamic"
    grep -q "soname: \[liblockstep.so.${version#LOCKSTEP_}\]" "$work/dynamic" || fail "the soname is another"
    grep -q "NEEDED.*\[liblockstep.so.${version#LOCKSTEP_}\]" "$work/dynamic" || fail "a program needs another soname"
    echo "$(wc -l <"$work/symbols") symbols of $version"
}

check_command() {
    [ -x "$build/lockstep" ] || return 0
    "$(one '*/bin/lockstep')" --help >/dev/null || fail "lockstep --help"
}

check_headers
check_pkg_config
check_symbols
check_package
check_command
for page in lockstep lockstep-train lockstep-bench-collectives; do
    one "*/man1/$page.1" >/dev/null
done
bash -n "$(one '*/completions/lockstep')"
echo "consumer: done"

#!/usr/bin/env bash
# check.sh format|tidy|cppcheck|doxygen [FILE...] - the sources against one tool; all of the project's C by default.
# Exit 77 when the tool is missing or not of the version whose opinions the house follows (Debian 12's): others
# lay out differently and know other checks.  LOCKSTEP_ANY_TOOL=1 takes any.  Two processes at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
LAYERS=(core autograd nn optim data dist checkpoint cli examples)

tool_or_skip() { # TOOL VERSION
    local found
    command -v "$1" >/dev/null || { echo "skipped: $1 is not installed"; exit 77; }
    found=$("$1" --version | grep -Eo '[0-9]+\.[0-9.]+' | head -n1)
    case ${LOCKSTEP_ANY_TOOL:+$2.}$found. in
    "$2".*) ;;
    *) echo "skipped: $1 is $found, the house's is $2"; exit 77 ;;
    esac
}

# sources PATTERN...: the files of the layers that exist, and of the folders named in EXTRA.
sources() {
    local folder pattern
    for folder in "${LAYERS[@]}" "${EXTRA[@]}"; do
        [ -d "$folder" ] || continue
        for pattern in "$@"; do
            find "$folder" -name "$pattern"
        done
    done | sort
}

# As the build compiles them; cmake/sources.cmake has no other definitions.
compile_flags() {
    echo "-std=c11 -I. -Itests -D_POSIX_C_SOURCE=200809L -DLS_VERSION=\"0\""
    pkg-config --cflags openblas libcjson zlib libcrypto
    pkg-config --cflags mpi-c 2>/dev/null | sed 's/-I/-isystem /g' || true
}

# Without the files that do not compile here: MPI's, and those of a oneDNN that is not the installed one.
that_compile() {
    local version=/usr/include/oneapi/dnnl/dnnl_version.h major=none leave='^$'
    pkg-config --exists mpi-c || leave='^dist/comm/transport_mpi(_process)?\.c$'
    [ ! -e "$version" ] || major=$(grep -Eo 'DNNL_VERSION_MAJOR [0-9]+' "$version" | grep -Eo '[0-9]+')
    grep -Ev "$leave" | if [ "$major" = none ]; then grep -v '_onednn'; else grep -Ev "_onednn[^${major}_.]"; fi
}

check_format() {
    tool_or_skip clang-format 14
    EXTRA=(tests) FILES=("$@")
    [ ${#FILES[@]} -gt 0 ] || mapfile -t FILES < <(sources '*.c' '*.h')
    clang-format --dry-run --Werror "${FILES[@]}"
    echo "format: ${#FILES[@]} files"
}

check_tidy() {
    tool_or_skip clang-tidy 14
    EXTRA=() FILES=("$@")
    [ ${#FILES[@]} -gt 0 ] || mapfile -t FILES < <(sources '*.c' | that_compile)
    # shellcheck disable=SC2046
    printf '%s\0' "${FILES[@]}" | xargs -0 -n 4 -P 2 sh -c '
        flags=$1; shift
        clang-tidy --quiet "$@" -- $flags 2>&1' sh "$(compile_flags | tr '\n' ' ')" |
        { grep -Ev '^[0-9]+ warnings( and [0-9]+ errors)? generated\.$' || true; }
    echo "tidy: ${#FILES[@]} files"
}

check_cppcheck() {
    tool_or_skip cppcheck 2.10
    EXTRA=() FILES=("$@")
    [ ${#FILES[@]} -gt 0 ] || mapfile -t FILES < <(sources '*.c')
    cppcheck -q -j 2 --std=c11 --language=c -I. --enable=warning,performance --inline-suppr \
        --error-exitcode=1 --suppress=missingIncludeSystem --suppress=invalidFunctionArg -D_POSIX_C_SOURCE=200809L "${FILES[@]}"
    echo "cppcheck: ${#FILES[@]} files"
}

# The API reference without a warning; of what Doxygen takes as text nothing can be wrong but names, so it is also
# looked whether functions came out with their sentences.
check_doxygen() {
    local out=build/doxygen page
    tool_or_skip doxygen 1.9
    rm -rf "$out"
    mkdir -p build
    doxygen docs/Doxyfile
    for page in comm_8h tensor_8h ddp_8h; do
        [ -s "$out/html/$page.html" ] || { echo "no page $page"; exit 1; }
    done
    grep -q 'The public interface\|the whole public interface' "$out/html/lockstep_8h.html" || { echo "lockstep.h says nothing"; exit 1; }
    echo "doxygen: $(find "$out/html" -name '*_8h.html' | wc -l) headers"
}

what=$1
shift
"check_$what" "$@"

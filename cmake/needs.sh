# shellcheck shell=bash
# needs.sh - what Lockstep needs from the system, and how the scripts get it; sourced by
# examples/quickstart.sh, tests/run.sh and .ci/run.
#
# A need is PACKAGE, or WHAT=PACKAGE where WHAT is a command or an absolute path that may come from
# elsewhere.  What is there is left alone; what is missing is installed with apt-get (sudo when not root)
# after saying so.  LOCKSTEP_NO_INSTALL=1 installs nothing.

JARGON=/usr/share/doc/jargon-text/jargon.txt.gz
FASHION=/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz
BUILD_NEEDS=(cmake=cmake ninja=ninja-build cc=gcc libc6-dev pkg-config=pkg-config libopenblas-dev libcjson-dev
             zlib1g-dev libssl-dev)
BUILD_WANTS=(libdnnl-dev) # products of bf16
TEXT_WANTS=("$JARGON=jargon-text")
TEST_NEEDS=(python3=python3)
TEST_WANTS=(python3-venv strace=strace clang-format=clang-format clang-tidy=clang-tidy cppcheck=cppcheck
            "$FASHION=dataset-fashion-mnist" "g++=g++" libgloo-dev libopenmpi-dev mpirun=openmpi-bin ip=iproute2
            doxygen=doxygen chromium=chromium dpkg-shlibdeps=dpkg-dev clang=clang libclang-rt-dev) # clang: libFuzzer

is_there() { # NEED
    local what=${1%%=*}
    case $1 in
    /*) [ -e "$what" ] ;;
    *=*) command -v "$what" >/dev/null ;;
    *) dpkg-query -W -f='${Status}' "$what" 2>/dev/null | grep -q 'ok installed' ;;
    esac
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Slim images tell dpkg to drop /usr/share/doc: the Jargon File is let through, and a package that lost it
# is installed again.
apt_install() { # PACKAGE...
    echo "installing with apt-get: $*"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends --reinstall \
        -o 'Dpkg::Options::=--path-include=/usr/share/doc/jargon-text/*' "$@"
}

APT_UPDATED=
missing_packages() { # NEED...
    local need
    for need in "$@"; do
        is_there "$need" || echo "${need#*=}"
    done
}

install_missing() { # NEED...
    local missing
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "${LOCKSTEP_NO_INSTALL:-}" = 1 ] || ! command -v apt-get >/dev/null; then
        echo "missing, not installed: ${missing[*]}"
        return 1
    fi
    if [ -z "$APT_UPDATED" ]; then
        as_root apt-get update -qq
        APT_UPDATED=1
    fi
    apt_install "${missing[@]}"
}

# Without these nothing works, but a system without dpkg may have them under other names: cmake judges.
needs() { install_missing "$@" || echo "going on without; the build will tell"; }

# Without these something is left out, which says so itself.
wants() {
    local want
    for want in "$@"; do
        install_missing "$want" || echo "going on without ${want#*=}"
    done
}

install_build_needs() { needs "${BUILD_NEEDS[@]}"; wants "${BUILD_WANTS[@]}" "${TEXT_WANTS[@]}"; }
install_test_needs() { needs "${BUILD_NEEDS[@]}" "${TEST_NEEDS[@]}"; wants "${BUILD_WANTS[@]}" "${TEXT_WANTS[@]}" "${TEST_WANTS[@]}"; }

has_mpi() { command -v mpicc && command -v mpiexec; } >/dev/null

# configure PRESET FOLDER [CMAKE OPTIONS]: Ninja where it is found, unless the folder has a generator already.
configure() {
    local preset=$1 folder=$2 generator=()
    shift 2
    if command -v ninja >/dev/null && [ ! -e "$folder/CMakeCache.txt" ]; then
        generator=(-G Ninja)
    fi
    cmake --preset "$preset" "${generator[@]}" "$@"
}

#!/usr/bin/env bash
# deb.sh BUILD WORK [clean] - the package that cpack makes: what is in it, what it depends on, and that its command
# trains from where it is unpacked.
#
# With `clean` it is installed by apt into a root that debootstrap has just made, of this system's release, and
# trains there; exit 77, saying why, where that cannot be done.
set -euo pipefail
build=$1 work=$2 where=${3:-here}
rm -rf "$work"
mkdir -p "$work"

fail() {
    echo "FAIL $*"
    exit 1
}

skip() {
    echo "skipped: $*"
    if [ "${LOCKSTEP_REQUIRE_REFERENCES:-}" = 1 ]; then exit 1; fi
    exit 77
}

command -v dpkg-shlibdeps >/dev/null || skip "no dpkg-shlibdeps (package dpkg-dev) on this system"

write_config() { # FOLDER
    seq 1 400 >"$1/text.txt"
    cat >"$1/config.json" <<'JSON'
{"run": {"steps": 3, "dir": "r", "threads": 1},
 "model": {"type": "gpt", "n_layer": 1, "n_head": 2, "d_model": 16, "context": 16},
 "data": {"train": "text.txt"}, "batch": {"global": 4}, "optim": {"lr": 1e-3}}
JSON
}

make_package() {
    cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work/package" >"$work/cpack.log" 2>&1 ||
        { cat "$work/cpack.log"; fail "cpack"; }
    package=$(echo "$work"/package/*.deb)
    [ -f "$package" ] || fail "no package: $package"
}

check_contents() {
    local path
    dpkg-deb -c "$package" | awk '{ print $6 }' >"$work/contents"
    for path in bin/lockstep 'lib/liblockstep\.a' 'lib/liblockstep\.so' 'lib/liblockstep\.so\.[0-9.]*' \
        include/lockstep/lockstep.h include/lockstep/dist/ddp.h lib/pkgconfig/lockstep.pc \
        lib/cmake/lockstep/lockstep-config.cmake share/man/man1/lockstep.1 share/man/man1/lockstep-train.1 \
        share/bash-completion/completions/lockstep share/doc/lockstep/LICENSE; do
        grep -qx "\./usr/$path" "$work/contents" || fail "the package lacks $path"
    done
    ! grep -Ev '^\./usr/(bin|lib|include|share)?' "$work/contents" || fail "the package has files outside /usr"
    dpkg-deb -f "$package" Depends >"$work/depends"
    for path in libc6 libopenblas libcjson1 libssl zlib1g; do
        grep -q "$path" "$work/depends" || fail "the package does not depend on $path"
    done
}

try_here() {
    dpkg-deb -x "$package" "$work/root"
    write_config "$work"
    (cd "$work" && root/usr/bin/lockstep train config.json 2>log.txt) || { cat "$work/log.txt"; fail "train"; }
    grep -q '"steps":3' "$work/r/summary.json" || fail "the run has no summary"
}

make_root() {
    local release=/etc/os-release mirror
    [ "$(id -u)" = 0 ] || skip "debootstrap needs root"
    command -v debootstrap >/dev/null || skip "no debootstrap on this system"
    # shellcheck disable=SC2016 # the expression is apt's
    mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -n1)
    [ -n "$mirror" ] || skip "apt knows no mirror"
    # shellcheck source=/dev/null disable=SC2153
    . $release
    debootstrap --variant=minbase "$VERSION_CODENAME" "$work/root" "$mirror" >"$work/debootstrap.log" 2>&1 || {
        tail -n 3 "$work/debootstrap.log"
        skip "debootstrap of $VERSION_CODENAME failed"
    }
}

in_root() { chroot "$work/root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }

drop_root() {
    ! mountpoint -q "$work/root/proc" || umount "$work/root/proc"
    rm -rf --one-file-system "$work/root"
}

# Several ranks need /proc; where it cannot be mounted two runs of one rank are compared.
try_root() {
    local ranks=(--nproc 2)
    trap drop_root EXIT
    make_root
    mountpoint -q "$work/root/proc" || mount -t proc proc "$work/root/proc" 2>/dev/null || ranks=()
    cp "$package" "$work/root/lockstep.deb"
    in_root apt-get install -y --no-install-recommends /lockstep.deb >"$work/install.log" 2>&1 ||
        { tail -n 20 "$work/install.log"; fail "apt-get install"; }
    in_root lockstep --version || fail "lockstep --version"
    in_root ldconfig -p >"$work/ldconfig"
    grep -q 'liblockstep\.so\.' "$work/ldconfig" || fail "the linker does not know the library"
    mkdir "$work/root/run"/lockstep
    write_config "$work/root/run/lockstep"
    in_root sh -c 'cd /run/lockstep && lockstep train config.json --set run.dir=one &&
        lockstep train config.json --set run.dir=two "$@" && lockstep diff one two' run "${ranks[@]}" >"$work/run.log" 2>&1 ||
        { cat "$work/run.log"; fail "a run in the clean root"; }
    tail -n 1 "$work/run.log"
    in_root apt-get remove -y lockstep >"$work/remove.log" 2>&1 || { cat "$work/remove.log"; fail "apt-get remove"; }
    ! in_root sh -c 'command -v lockstep' || fail "the command is still there"
}

make_package
check_contents
if [ "$where" = clean ]; then try_root; else try_here; fi
echo "deb: done"

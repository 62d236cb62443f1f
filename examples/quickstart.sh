#!/usr/bin/env bash
# quickstart.sh - from a fresh machine to a trained Transformer: installs what is missing, builds, trains
# examples/gpt_tiny.json on real text: half of the steps on two ranks that each have the whole model (DDP),
# the other half, from the checkpoint, on two that have some rows of it each (FSDP).  Then lets it write, and
# trains once more in one process: the same bits.  Under three minutes on two cores, apt aside.
# LOCKSTEP_NO_INSTALL=1 installs nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=cmake/needs.sh
. cmake/needs.sh

RUN=runs/quickstart
STEPS=${LOCKSTEP_QUICKSTART_STEPS:-1200}

# The Jargon File, else the licence texts that every Debian carries.
corpus_setting() {
    if [ -r "$JARGON" ]; then
        echo "data.train=\"$JARGON\""
        return
    fi
    local file list=
    for file in /usr/share/common-licenses/*; do
        [ -L "$file" ] || [ ! -r "$file" ] || list="$list${list:+,}\"$file\""
    done
    [ -n "$list" ] || { echo "no text to train on: neither $JARGON nor /usr/share/common-licenses" >&2; exit 2; }
    echo "data.train=[$list]"
}

number() { # KEY LINE
    sed -n "s/.*\"$1\": *\([-+.0-9e]*\).*/\1/p" <<<"$2"
}

show_losses() {
    local first last
    first=$(grep -m1 '"loss"' "$RUN/metrics.jsonl")
    last=$(grep '"loss"' "$RUN/metrics.jsonl" | tail -n1)
    echo "loss: $(number loss "$first") at step $(number step "$first")," \
        "$(number loss "$last") at step $(number step "$last")"
}

install_build_needs
configure release build
cmake --build build --parallel "$(nproc)" --target lockstep_command

setting=$(corpus_setting)
train() { # RUN_DIR [OPTION]...
    build/lockstep train examples/gpt_tiny.json --set "run.dir=$1" --set "$setting" --set run.steps="$STEPS" "${@:2}"
}
hash_of() { # RUN_DIR
    sed -n 's/.*"state_sha256":"\([0-9a-f]*\)".*/\1/p' "$1/summary.json"
}

echo "== training on ${setting#data.train=}: to step $((STEPS / 2)) on 2 ranks, DDP"
train "$RUN" --resume never --nproc 2 --set parallel.strategy=ddp --stop-at $((STEPS / 2))
echo "== on from its checkpoint: to step $STEPS on 2 ranks, FSDP"
train "$RUN" --nproc 2 --set parallel.strategy=fsdp
show_losses
echo "== the loss over the validation data, in nats a byte"
build/lockstep eval "$RUN"
echo "== what it writes"
build/lockstep generate "$RUN" --prompt "The hacker " --tokens 200
echo
echo "== the same steps in one process"
train "$RUN-one" --resume never --set parallel.strategy=single
echo "parameters and optimizer, SHA-256:"
echo "  DDP, then FSDP  $(hash_of "$RUN")"
echo "  one process     $(hash_of "$RUN-one")"
[ "$(hash_of "$RUN")" = "$(hash_of "$RUN-one")" ] || { echo "they differ" >&2; exit 1; }
echo "== done; your own: build/lockstep train CONFIG.json, with the config described in docs/config.md"

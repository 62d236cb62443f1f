#!/usr/bin/env bash
# quickstart.sh - from a fresh machine to a trained Transformer: installs what is missing, builds, trains
# examples/gpt_tiny.json on real text, evaluates the result and looks into it.  Under three minutes on two
# cores, apt aside.  LOCKSTEP_NO_INSTALL=1 installs nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=cmake/needs.sh
. cmake/needs.sh

RUN=runs/quickstart

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
echo "== training on ${setting#data.train=}"
build/lockstep train examples/gpt_tiny.json --resume never --set "run.dir=$RUN" \
    --set "$setting"
show_losses
echo "== the loss over the validation data, in nats a byte"
build/lockstep eval "$RUN"
echo "== what the run left"
build/lockstep inspect "$RUN" | sed -n 1,12p
echo "   (all tensors: build/lockstep inspect $RUN)"
echo "== done; your own: build/lockstep train CONFIG.json, with the config described in docs/config.md"

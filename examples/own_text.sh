#!/usr/bin/env bash
# own_text.sh FILE... - a small GPT on your own text: a vocabulary for it, training, and what it writes then.
#
#     examples/own_text.sh notes.txt letters.txt
#
# examples/own_text.json has the model; some 10,000 words are enough to see it learn.  STEPS=n, VOCAB=n [1024],
# RUNS=folder: other ones.  Started again it goes on where it ended; a larger STEPS trains on.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: examples/own_text.sh FILE..." >&2; exit 2; }
mapfile -t FILES < <(realpath -e "$@")
cd "$(dirname "$0")/.."
LOCKSTEP=${LOCKSTEP:-build/lockstep} RUN=${RUNS:-runs}/own_text

mkdir -p "$RUN"
[ -e "$RUN/tokenizer.json" ] ||
    "$LOCKSTEP" tokenize "${FILES[@]}" --vocab-size "${VOCAB:-1024}" -o "$RUN/tokenizer.json"
files=$(printf ',"%s"' "${FILES[@]}")
"$LOCKSTEP" train examples/own_text.json --set run.dir="$RUN/run" --set data.train="[${files#,}]" \
    --set data.tokenizer="$RUN/tokenizer.json" ${STEPS:+--set run.steps="$STEPS" --set optim.schedule.warmup=5}

echo "== validation loss, in nats a token, by step"
grep -h '"val_loss"' "$RUN/run/metrics.jsonl"
echo "== what it writes"
"$LOCKSTEP" generate "$RUN/run" --tokens 120 --temperature 0.8
echo
echo "look at: val_loss; while it falls the model learns what holds beyond what it has seen, and when it rises again fewer" \
    "steps, a smaller model or more text are better"

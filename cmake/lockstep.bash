# bash completion for lockstep
_lockstep_options() {
    case $1 in
    train) echo "--nproc --set --resume --stop-at --allow-change --new-data --dry-run --help" ;;
    collectives) echo "-n --op --bytes --transport --algorithm --memory --dtype --redop --root --compare --json --help" ;;
    bench) echo "--set --nproc --steps --json --help" ;;
    init) echo "-o --set --help" ;;
    eval) echo "--data --help" ;;
    tokenize) echo "--vocab-size --special -o --tokenizer --tokens --format --help" ;;
    inspect) echo "--json --help" ;;
    diff) echo "--json --help" ;;
    run) echo "-n --max-restarts --min-nproc --nnodes --node-rank --rdzv --help" ;;
    *) echo "--help --version" ;;
    esac
}

_lockstep() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
    COMPREPLY=()
    if [ "$COMP_CWORD" = 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "train init eval inspect diff repair tokenize bench run --help --version" -- "$current")
        return
    fi
    if [ "$command" = run ]; then # behind -- the program, and then files
        local i
        for ((i = 2; i < COMP_CWORD; i++)); do
            [ "${COMP_WORDS[i]}" = -- ] || continue
            if [ $((i + 1)) = "$COMP_CWORD" ]; then
                mapfile -t COMPREPLY < <(compgen -c -f -- "$current")
            else
                mapfile -t COMPREPLY < <(compgen -f -- "$current")
            fi
            return
        done
    fi
    case $previous in
    --resume)
        mapfile -t COMPREPLY < <(compgen -W "auto never" -f -- "$current")
        return
        ;;
    --op)
        mapfile -t COMPREPLY < <(compgen -W "all all_reduce all_gather reduce_scatter broadcast reduce gather scatter
            all_to_all send_recv barrier" -- "$current")
        return
        ;;
    --transport)
        mapfile -t COMPREPLY < <(compgen -W "shm tcp threads" -- "$current")
        return
        ;;
    --format)
        mapfile -t COMPREPLY < <(compgen -W "tokens_u16 llmc" -- "$current")
        return
        ;;
    --algorithm)
        mapfile -t COMPREPLY < <(compgen -W "auto direct tree halving ring" -- "$current")
        return
        ;;
    --memory)
        mapfile -t COMPREPLY < <(compgen -W "heap ordinary" -- "$current")
        return
        ;;
    --set | --nproc | --stop-at | --allow-change | --bytes | --compare | --vocab-size | --special | -n | --max-restarts | --min-nproc | --nnodes | \
        --node-rank | --rdzv)
        return
        ;;
    esac
    if [ "$command" = bench ] && [ "$COMP_CWORD" = 2 ]; then
        mapfile -t COMPREPLY < <(compgen -W "train gemm collectives --help" -- "$current")
        return
    fi
    [ "$command ${COMP_WORDS[2]}" = "bench collectives" ] && command=collectives
    case $current in
    -*) mapfile -t COMPREPLY < <(compgen -W "$(_lockstep_options "$command")" -- "$current") ;;
    *) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    esac
}

complete -o filenames -F _lockstep lockstep

# bash completion for lockstep
_lockstep_options() {
    case $1 in
    train) echo "--nproc --set --resume --stop-at --dry-run --allow-change --new-data --json --help" ;;
    init) echo "-o --set --help" ;;
    eval) echo "--data --help" ;;
    inspect) echo "--json --help" ;;
    diff) echo "--help" ;;
    *) echo "--help --version" ;;
    esac
}

_lockstep() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
    COMPREPLY=()
    if [ "$COMP_CWORD" = 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "train init eval inspect diff --help --version" -- "$current")
        return
    fi
    case $previous in
    --resume)
        mapfile -t COMPREPLY < <(compgen -W "auto never" -f -- "$current")
        return
        ;;
    --set | --nproc | --stop-at | --allow-change)
        return
        ;;
    esac
    case $current in
    -*) mapfile -t COMPREPLY < <(compgen -W "$(_lockstep_options "$command")" -- "$current") ;;
    *) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    esac
}

complete -o filenames -F _lockstep lockstep

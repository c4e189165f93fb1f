# SPDX-License-Identifier: MIT
# Completion of pawl for bash. Commands, options and states come from `pawl help`, names of queues
# from the broker in force, so nothing here has to be kept in step.
# shellcheck shell=bash

_pawl_queues() {
    pawl "${_pawl_globals[@]}" --timeout 200ms list --names 2>/dev/null
}

_pawl_tables() {
    pawl "${_pawl_globals[@]}" --timeout 200ms list --names --tables 2>/dev/null
}

_pawl() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
    local commands word command="" words="" i
    local _pawl_globals=()
    COMPREPLY=()
    commands=$(pawl help --names 2>/dev/null)

    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        case $word in
        --dir | --socket)
            _pawl_globals+=("$word" "${COMP_WORDS[i+1]}")
            ((i++))
            ;;
        --timeout) ((i++)) ;;
        -*) ;;
        *)
            if [[ -z $command ]]; then
                command=$word
            elif [[ $command == log || $command == state ]]; then
                command="$command $word"
            fi
            ;;
        esac
    done

    case $previous in
    --dir) mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
    --socket | --file) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    --mode) words="durable relaxed memory" ;;
    --state) words="scheduled ready leased dead acked expired cancelled purged live all" ;;
    --owner) mapfile -t COMPREPLY < <(compgen -u -- "$current"); return ;;
    --group) mapfile -t COMPREPLY < <(compgen -g -- "$current"); return ;;
    --queue | --dead-forward) words=$(_pawl_queues) ;;
    esac

    if [[ -z $words ]]; then
        if [[ $current == -* ]]; then
            # shellcheck disable=SC2086 # "log list" is two words
            words=$(pawl $command --help 2>/dev/null | grep -o -E '^  --[a-z-]+')
            [[ -n $command ]] || words="--dir --socket --json --timeout --help --version"
        elif [[ -z $command ]]; then
            words=$(cut -d ' ' -f 1 <<<"$commands" | sort -u)
        elif [[ $command == log || $command == state ]]; then
            words=$(sed -n "s/^$command //p" <<<"$commands")
        elif [[ $command == "state "* ]]; then
            words=$(_pawl_tables)
        elif [[ $command == "log "* || $command == doctor ]]; then
            mapfile -t COMPREPLY < <(compgen -d -- "$current")
            return
        elif [[ $command == help ]]; then
            words=$commands
        else
            case $command in
            create | top | metrics | list | version | explain | nack | release | renew | reject | defer | ack) ;;
            *) words=$(_pawl_queues) ;;
            esac
        fi
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

complete -F _pawl pawl

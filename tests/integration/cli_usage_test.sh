#!/bin/bash
# SPDX-License-Identifier: MIT
# The command line without a broker: usage, help, suggestions, and that help, manual and completion
# know the same commands and options.
# shellcheck source=tests/integration/cli_lib.sh
. "$(dirname "$0")/cli_lib.sh"

say "mistakes are exit code 2 and say what was meant"
expect 2 'which command' pawl
expect 2 'did you mean: pawl send' pawl snd q x
expect 2 'did you mean: pawl receive' pawl recieve q
expect 2 'no command "xyzzy"' pawl xyzzy
for pair in delete:drop rm:drop remove:drop set:alter ls:list get:receive put:send publish:send \
    acknowledge:ack done:ack clear:purge stop:pause start:resume dlq:dead status:stat redrive:restore; do
    expect 2 "no command \"${pair%:*}\"; did you mean: pawl ${pair#*:}\$" pawl "${pair%:*}" q
done
expect 2 'did you mean: pawl log verify' pawl fsck
expect 2 'one of these is missing: list, verify, dump, repair' pawl log
expect 2 'did you mean --delay' pawl send q x --dleay 5s
expect 2 'is no duration' pawl send q x --delay 5
expect 2 'is no time' pawl send q x --at tomorrow
expect 2 'delay or --at, not both' pawl send q x --at +5m --delay 5m
expect 2 'one of them' pawl send q x --lines
expect 2 'is not NAME=VALUE' pawl send q x --header novalue
expect 2 'go with --lines' pawl send q x --from 3
expect 2 "needs --key-from" pawl send q --lines --key k
expect 2 'lines are counted from 1' pawl send q --lines --from 0
expect 2 'is no size' pawl create q --max-bytes many
expect 2 'none of durable' pawl create q --mode solid
expect 2 'in octal' pawl create q --perm 888
expect 2 'is no duration' pawl create q --retry 1s,,2s
expect 2 'max-inflight: 0 would' pawl create q --max-inflight 0
expect 2 'max-message: 0 would' pawl create q --max-message 0
expect 2 'max-hold: 0 would' pawl alter q --max-hold 0
expect 2 'no user "no-such-user-here"' pawl create q --owner no-such-user-here
expect 2 'is no token' pawl ack 1234
expect 2 'delay is missing' pawl defer 000000000000000000000000000000000000000000000000
expect 2 'is none of scheduled' pawl query q --state tired
expect 2 'is no message id' pawl query q --id one
expect 2 'which\?' pawl cancel q
expect 2 'at-most-once, not both' pawl receive q --ack --at-most-once
expect 2 'something is missing; usage: pawl send Q' pawl send
expect 2 'is too much' pawl drop a b
expect 2 'unknown option -x' pawl list -x

say "without a broker it says what to start"
expect 1 "PAWL_E_BROKER_DOWN: no broker at $D/pawl.sock; start one with: pawld --dir $D\$" pawl list
expect 1 'PAWL_E_BROKER_DOWN' env PAWL_DIR="$D" "$BUILD/pawl" send q x
expect 1 "no broker at $T/s; start one with: pawld --dir $D --socket $T/s" pawl --socket "$T/s" list
expect 1 "$T/state/pawl" env HOME="$T" XDG_STATE_HOME="$T/state" PAWL_DIR="$T/state/pawl" "$BUILD/pawl" list

say "a name that is given and empty is a mistake, not the default"
bare() { env -u PAWL_DIR -u PAWL_SOCKET "$@"; }
expect 2 '^pawl: --dir is empty' bare "$BUILD/pawl" --dir '' list
expect 2 '^pawl list: --dir is empty' bare "$BUILD/pawl" list --dir=
expect 2 'socket is empty' bare "$BUILD/pawl" --socket '' list
for c in list 'log list' doctor; do
    # shellcheck disable=SC2086 # two words
    expect 2 'PAWL_DIR is set and empty' bare env PAWL_DIR= "$BUILD/pawl" $c
done
expect 2 'PAWL_SOCKET is set and empty' bare env PAWL_SOCKET= "$BUILD/pawl" list
expect 2 'DIR is empty' bare "$BUILD/pawl" log verify ''
expect 2 'DIR is empty' bare "$BUILD/pawl" log repair '' --accept-loss
expect 2 'DIR is empty' bare "$BUILD/pawl" doctor ''
expect 2 'pawld: dir: a path of 1' bare "$BUILD/pawld" --dir ''
expect 2 'pawld: socket: a path of 1' bare "$BUILD/pawld" --dir "$D" --socket ''
# the impossible size: a broker that starts all the same is not to make anything
expect 2 'pawld: .PAWL_DIR is set and empty' bare env PAWL_DIR= "$BUILD/pawld" --segment-size 3MiB
expect 2 'pawld: .PAWL_SOCKET: a path of 1' bare env PAWL_SOCKET= PAWL_DIR="$D" "$BUILD/pawld" --segment-size 3MiB
[[ -e $D ]] && fail "a refused start made $D"

say "the broker makes its own directory, and none above it but in the home of a user"
expect 1 "pawld: $T/no/such/d: cannot be made, as there is no $T/no: make it, or correct --dir" \
    timeout 20 "$BUILD/pawld" --dir "$T/no/such/d"
[[ -e $T/no ]] && fail "$T/no was made"
if (($(id -u) == 0)) && command -v setpriv >/dev/null; then
    mkdir -m 755 "$T/home" && chown 65533:65533 "$T/home" && chmod 711 "$T"
    env -i PATH="$PATH" HOME="$T/home" setpriv --reuid 65533 --regid 65533 --clear-groups -- \
        "$BUILD/pawld" --segment-size 1MiB --memory 64MiB 2>"$T/home.log" &
    until grep -q 'ready on' "$T/home.log"; do
        kill -0 $! 2>/dev/null || { fail "no broker in a fresh home: $(cat "$T/home.log")"; break; }
        sleep 0.01
    done
    [[ -S $T/home/.local/state/pawl/pawl.sock ]] || fail "no socket in a fresh home"
    kill -TERM $!
    wait $! || fail "the broker of a fresh home stopped with $?"
    grep -E -q '^pawld: stopped cleanly: the last [0-9]+ bytes flushed in [0-9]+ ms, the log ends at [0-9]+$' \
        "$T/home.log" || fail "no word at the stop: $(cat "$T/home.log")"
    chmod 700 "$T"
fi

say "versions and help"
expect 0 '^pawl [0-9]+\.[0-9]+\.[0-9]+$' pawl version
expect 0 '^pawl [0-9]' pawl --version
expect 0 '"version":"' pawl --json version
expect 0 '"version":"' pawl --version --json
expect 0 '"version":"' pawl --json --version
expect 0 '"version":"' pawl list --version --json
expect 0 'Exit codes' pawl help
expect 0 'Exit codes' pawl --help
expect 0 'Usage: pawl send' pawl help send
expect 0 'log verify' pawl log --help

say "every command: help with an example, and all of it in the manual and in the contract"
man=$(sed 's/\\-/-/g; s/\\fB//g; s/\\fI//g; s/\\fR//g' "$CLI_ROOT/tools/man/pawl.1")
[[ -n $man ]] || die "no manual"
pawl help --names >"$T/names"
(($(wc -l <"$T/names") >= 30)) || fail "only $(wc -l <"$T/names") commands"
while read -r name; do
    # shellcheck disable=SC2086 # two words
    expect 0 '^Example:$' pawl $name --help
    cp "$T/out" "$T/help"
    grep -q "Usage: pawl $name" "$T/help" || fail "$name: no usage"
    grep -q "^  pawl .*" "$T/help" || fail "$name: no example"
    grep -F -q "pawl $name" <<<"$man" || fail "$name is not in the manual"
    grep -o -E '^  --[a-z-]+' "$T/help" | while read -r option; do
        grep -F -q -e "$option" <<<"$man" || echo "$name $option" >>"$T/missing"
    done
    awk 'length > 80' "$T/help" | grep -q . && fail "$name: help wider than 80"
done <"$T/names"
[[ -e $T/missing ]] && fail "not in the manual: $(sort -u "$T/missing" | tr '\n' ' ')"

say "completion"
# shellcheck disable=SC1091
complete_with() {
    PATH="$BUILD:$PATH" bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _pawl; echo "${COMPREPLY[*]}"' \
        bash "$CLI_ROOT/tools/pawl.bash" "$@"
}
equal "completion of a command" "$(complete_with pawl rel)" "release"
equal "completion of a family" "$(complete_with pawl log ve)" "verify"
equal "completion of an option" "$(complete_with pawl send q --pri)" "--priority"
equal "completion of a state" "$(complete_with pawl query q --state de)" "dead"

say "what cannot be written is not done"
expect 1 'standard output: No space left' bash -c '"$1" help >/dev/full' bash "$BUILD/pawl"

finish

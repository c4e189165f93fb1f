#!/bin/bash
# SPDX-License-Identifier: MIT
# log list, verify, dump on a live and on a dead directory (B-P12): nothing is changed, damage is
# named; repair is a deliberate act. doctor on directories of several kinds.
# shellcheck source-path=SCRIPTDIR source=cli_lib.sh
. "$(dirname "$0")/cli_lib.sh"

# Bytes, times of change and names of all files. A file's last change of state is not looked at:
# reading changes none of these.
fingerprint() { (cd "$D" && find . -type f -printf '%p %s %T@ %C@\n' | sort; find . -type f -exec md5sum {} + | sort); }
# Until two looks agree: an idle broker writes its marker a little later.
settled() {
    local before
    for (( ; ; )); do
        before=$(fingerprint)
        sleep 0.3
        [[ $before == "$(fingerprint)" ]] && break
    done
    echo "$before"
}
messages() { grep -c '"type":"SEND"' "$1"; }

broker_start --segment-size 1M
pawl create q >/dev/null
for i in {1..3000}; do echo "line $i of the log with some more text behind it"; done | pawl send q --lines || fail send
id=$(pawl send q 'look for me')
token=$(lease q)
pawl nack "$token" --reason 'a reason to be found' >/dev/null

look() {
    expect 0 '' pawl log list "$D"
    expect 0 '' pawl log list "$D" --json
    expect 0 '' pawl log verify "$D"
    expect 0 '' pawl log verify "$D" --json
    expect 0 'look for me' pawl log dump "$D" --id "$id" --bodies
    expect 0 'a reason to be found' pawl log dump "$D"
    expect 0 '' pawl log dump "$D" --json
    equal "messages in the dump" "$(messages "$T/out")" 3001
    grep -q 'line 1 of the log' "$T/out" && fail "bodies without --bodies"
    return 0
}

say "a live directory: read, and not touched"
before=$(settled)
look
equal "the live directory" "$(fingerprint)" "$before"
expect 0 'look for me' pawl log dump "$D/log" --id "$id" --bodies
expect 0 '' pawl log dump --id "$id"
expect 1 '.' pawl log repair "$D" --accept-loss
equal "the live directory after a refused repair" "$(fingerprint)" "$before"

say "a dead directory, killed and stopped"
broker_kill
before=$(fingerprint)
look
equal "the killed directory" "$(fingerprint)" "$before"
broker_start
broker_stop
before=$(fingerprint)
look
expect 2 'accept-loss' pawl log repair "$D"
expect 0 '' pawl log repair "$D" --accept-loss
equal "a whole log after repair" "$(fingerprint | grep -v ./lock)" "$(grep -v ./lock <<<"$before")"

say "what is no log"
mkdir "$T/empty"
expect 1 "$T/empty" pawl log verify "$T/empty"
expect 1 "No such file" pawl log list "$T/nowhere"

say "damage is named, refused by the broker, and cut when that is asked for"
segment=$(find "$D/log" -name '*.seg' | sort | head -1)
at=$(LC_ALL=C grep -abo -m 1 'line 1500 of the log' "$segment" | head -1 | cut -d : -f 1)
printf LINE | dd of="$segment" bs=1 seek="$at" conv=notrunc status=none
before=$(fingerprint)
expect 1 "$(basename "$segment")" pawl log verify "$D"
grep -E -q '[0-9]{4,}' "$T/out" "$T/err" || fail "no offset named"
expect 1 '' pawl log dump "$D"
equal "the damaged directory" "$(fingerprint)" "$before"
"$BUILD/pawld" --dir "$D" 2>"$T/err"
equal "exit code of the broker on damage" $? 3
grep -q 'pawl log repair' "$T/err" || fail "the broker does not name the repair: $(cat "$T/err")"
equal "the damaged directory after a start" "$(fingerprint | grep -v ./lock)" "$(grep -v ./lock <<<"$before")"
expect 2 'accept-loss' pawl log repair "$D"
expect 0 '' pawl log repair "$D" --accept-loss
expect 0 '' pawl log verify "$D"
broker_start --segment-size 1M
pawl receive q --ack --count 0 >"$T/out" || fail "nothing is left"
count=$(wc -l <"$T/out")
((count > 0 && count < 1500)) || fail "$count lines are left of those before line 1500"
for ((i = 1; i <= count; i++)); do echo "line $i of the log with some more text behind it"; done | cmp - "$T/out" || fail "what is left is not the beginning"

say "doctor"
expect 0 'ok +broker +pid' pawl doctor
expect 0 'ok +filesystem|warn +filesystem' pawl doctor
broker_stop
expect 0 'warn +broker .*none answers' pawl doctor
expect 0 'is not there yet' pawl doctor "$T/nowhere"
expect 0 '"level":"ok"' pawl doctor --json
chmod 777 "$T/empty"
expect 1 'bad +directory' pawl doctor "$T/empty"
expect 1 'bad +socket' pawl --socket "$T/$(printf 's%.0s' {1..108})" doctor
(ulimit -n 80; pawl doctor >"$T/out" 2>&1)
equal "exit code with few descriptors" $? 1
grep -q 'bad  *nofile' "$T/out" || fail "nofile: $(cat "$T/out")"
left=$(find "$T/empty" -mindepth 1)
equal "what doctor leaves behind" "$left" ""

finish

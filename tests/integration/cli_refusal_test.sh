#!/bin/bash
# SPDX-License-Identifier: MIT
# Every answer of the contract that the command line can provoke, by its name, and the way out that
# it shows. What needs no wait is not waited for; where a lease has to end, its end is looked for.
# shellcheck source-path=SCRIPTDIR source=cli_lib.sh
. "$(dirname "$0")/cli_lib.sh"

broker_start --memory 1G

# until_state Q ID STATE: the watchdog bounds it
until_state() { until [[ $(state "$1" "$2") == "$3" ]]; do sleep 0.01; done; }

say "queues"
expect 1 'PAWL_E_NOT_FOUND: no queue "x"; create it with: pawl create x' pawl send x hello
expect 1 'PAWL_E_NOT_FOUND: no queue "x"; create it with: pawl create x' pawl receive x
for c in stat drop query dead peek pause resume purge alter; do
    expect 1 'PAWL_E_NOT_FOUND: no queue "x", or not yours to see; those that there are: pawl list' pawl $c x
done
for c in query cancel restore; do
    expect 1 'PAWL_E_NOT_FOUND: no queue or table x, or not yours to see: `pawl list`' pawl $c x --id 7
done
expect 1 'PAWL_E_NOT_FOUND: no queue or table x' pawl ack --queue x --id 7
expect 0 'created "q"' pawl create q
expect 0 'there already' pawl create q
expect 1 'PAWL_E_EXISTS' pawl create q --lease 1m
expect 1 'PAWL_E_INVALID' pawl create 'bad name'
expect 1 'PAWL_E_INVALID' pawl create "$(printf 'n%.0s' {1..128})"
expect 0 'created' pawl create "$(printf 'n%.0s' {1..127})"
expect 1 'PAWL_E_INVALID' pawl create l0 --lease 0
expect 1 'PAWL_E_INVALID' pawl create l0 --lease 999us
expect 1 'PAWL_E_INVALID' pawl create l0 --lease 12h1ms
expect 1 'PAWL_E_(INVALID|TOO_BIG)' pawl create l0 --max-message 16385k
expect 0 'created' pawl create l0 --lease 1ms --max-message 16M
expect 0 'created' pawl create d --mode direct
expect 0 'altered' pawl alter q --lease 20s
expect 0 '^lease +20s' pawl stat q
expect 0 'altered' pawl alter q --ttl 1d
expect 0 '^lease +20s' pawl stat q
expect 1 'PAWL_E_NOT_FOUND' pawl alter nobody --ttl 1d

say "what is not limited is null, what is 0 is said"
expect 0 '"max_messages":null' pawl stat q --json
expect 0 '"max_bytes":null' pawl stat q --json
expect 0 '"max_failed":16' pawl stat q --json
expect 0 'altered' pawl alter q --max-failed 0 --max-crashed 0 --ttl 0
expect 0 '"ttl_ns":null' pawl stat q --json
expect 0 '"max_crashed":null' pawl stat q --json
expect 0 '^max-failed +no limit' pawl stat q
expect 0 '^oldest-ready +-$' pawl stat q
expect 0 'altered' pawl alter q --max-failed 16 --max-crashed 5 --ttl 1d

say "limits of a send"
expect 0 '' pawl create small --max-messages 2 --max-message 10 --max-bytes 15
expect 0 '^[0-9]+$' pawl send small 0123456789
expect 1 'PAWL_E_TOO_BIG.*10' pawl send small 0123456789a
expect 1 'PAWL_E_FULL.*max_bytes' pawl send small 012345
expect 0 '^[0-9]+$' pawl send small 01234
expect 1 'PAWL_E_FULL.*max_messages' pawl send small ''
expect 1 'PAWL_E_FULL' pawl send small '' --wait-room 50ms
expect 0 '^[0-9]+$' pawl send q x --ordering-key k
expect 0 '^x$' pawl receive q --ack
expect 1 'PAWL_E_INVALID' pawl send q x --priority 8
expect 1 'PAWL_E_INVALID' pawl send q x --delay 3654d
expect 0 '^[0-9]+$' pawl send q x --priority 7 --delay 3653d
big=$T/big
head -c 16777217 /dev/zero >"$big"
expect 1 'PAWL_E_TOO_BIG' pawl send l0 --file "$big"
truncate -s 16777216 "$big"
expect 0 '^[0-9]+$' pawl send l0 --file "$big"
pawl receive l0 --ack >"$T/back" || fail "the largest message did not come"
head -c 16777216 "$T/back" | cmp - "$big" || fail "the largest message came back as another"
expect 1 'PAWL_E_(TOO_BIG|INVALID)' pawl send q x --header "a=$(printf 'h%.0s' {1..17000})"

say "receive"
expect 3 '' pawl receive q
expect 3 '' pawl receive q --wait 20ms
expect 1 'PAWL_E_INVALID' pawl receive q --lease 0
expect 0 '' pawl create one --max-inflight 1
expect 0 '' pawl send one a
expect 0 '' pawl send one b
token=$(lease one)
expect 1 'PAWL_E_INFLIGHT_LIMIT' pawl receive one
expect 0 'acked' pawl ack "$token"
expect 0 '^b$' pawl receive one --ack
expect 0 'paused' pawl pause q
expect 0 '' pawl send q while-paused
expect 1 'PAWL_E_PAUSED.*pawl resume' pawl receive q
expect 3 'nothing came: "q" is paused; let it go on with: pawl resume q' pawl receive q --wait 20ms
expect 0 'resumed' pawl resume q
expect 0 'while-paused' pawl receive q --ack

say "acknowledgement: the table of the contract"
id=$(pawl send q first)
token=$(lease q)
expect 0 "acked $token" pawl ack "$token"
expect 1 'PAWL_E_ALREADY_ACKED' pawl ack "$token"
expect 0 'nothing there' pawl ack "${token:0:16}ffffffffffffffff${token:32}" --ignore-missing
expect 1 'PAWL_E_(NOT_FOUND|LEASE_LOST|ALREADY_ACKED)' pawl ack "${token:0:32}0000000000000000"
expect 1 'PAWL_E_NOT_FOUND' pawl ack 000000000000000000000000000000000000000000000001
equal "state" "$(state q "$id")" ACKED

expect 0 '' pawl create short --lease 5ms --retry 0 --max-failed 0
# On a busy machine the lease may be over before it could be handed out.
lease_short() { until pawl receive short --json >"$T/out"; do sleep 0.01; done; field token; }
id=$(pawl send short s)
token=$(lease_short)
until_state short "$id" READY
expect 1 'PAWL_E_LEASE_LOST.*--if-unclaimed' pawl ack "$token"
for c in nack release reject 'renew --lease 1s' 'defer --delay 1s'; do
    # shellcheck disable=SC2086 # command and option
    expect 1 'PAWL_E_LEASE_LOST.*nobody has it now' pawl $c "$token"
    grep -q -e --if-unclaimed "$T/err" && fail "pawl $c has no --if-unclaimed: $(cat "$T/err")"
done
expect 0 'acked' pawl ack "$token" --if-unclaimed
id=$(pawl send short t)
old=$(lease_short)
until_state short "$id" READY
new=$(lease short --lease 10s)
expect 1 'PAWL_E_LEASE_LOST' pawl ack "$old"
expect 1 'PAWL_E_LEASE_LOST' pawl ack "$old" --if-unclaimed
grep -q -e --if-unclaimed "$T/err" && fail "advice that was followed already: $(cat "$T/err")"
expect 1 'PAWL_E_LEASE_LOST' pawl nack "$old"
expect 1 'PAWL_E_LEASE_LOST' pawl renew "$old"
expect 1 'PAWL_E_LEASE_LOST' pawl release "$old"
expect 0 'acked' pawl ack "$new"

id=$(pawl send q p)
token=$(lease q)
expect 0 'purged' pawl purge q
equal "state" "$(state q "$id")" PURGED
expect 1 'PAWL_E_STATE.*PURGED' pawl ack "$token"
expect 0 'nothing there' pawl ack "$token" --ignore-missing

id=$(pawl send q r)
token=$(lease q)
expect 0 'rejected' pawl reject "$token" --reason 'never works'
expect 1 'PAWL_E_STATE.*DEAD' pawl ack "$token"
expect 0 'rejected +never works' pawl dead q
expect 0 'a receiver rejected it' pawl explain "$id"
expect 0 'pawl restore q --id' pawl explain "$token"
expect 0 'delivery +number [0-9]+: the token is of this one' pawl explain "$token"
expect 1 'PAWL_E_STATE' pawl cancel q --id "$id"
expect 0 'restored 1 message' pawl restore q
expect 0 'never works' pawl query q --id "$id" --json
equal "acquired after restore" "$(field acquired)" 0
equal "failed after restore" "$(field failed)" 0
equal "state after restore" "$(field state)" READY
expect 1 'PAWL_E_STATE' pawl restore q --id "$id"
expect 0 'cancelled 1' pawl cancel q --id "$id"
expect 1 'PAWL_E_STATE' pawl cancel q --id "$id"
expect 1 'PAWL_E_NOT_FOUND' pawl cancel q --id 1
expect 1 'PAWL_E_NOT_FOUND' pawl query q --id 1
expect 1 'PAWL_E_NOT_FOUND' pawl explain 1

say "the holder of a lease, whose output nobody reads"
expect 0 'created' pawl create held
for i in {1..200}; do printf '%01000d\n' "$i"; done | pawl send held --lines >"$T/sent"
id=$(pawl query held --limit 200 --json | tail -n 1 | sed 's/.*"id":\([0-9]*\).*/\1/')
mkfifo "$T/unread"
"$BUILD/pawl" --dir "$D" receive held --ack --count 0 --wait 60s --lease 60s >"$T/unread" &
holder=$!
exec 7<"$T/unread"
until_state held "$id" LEASED
session=$(pawl explain "$id" --json | sed 's/.*"session":\([0-9]*\).*/\1/')
expect 0 "session +$session of process $holder, user $(id -u)" pawl explain --session "$session"
expect 0 'state +attached' pawl explain --session "$session"
expect 0 "\"leases\":[1-9].*" pawl explain --session "$session" --json
expect 1 'PAWL_E_NOT_FOUND.*no such session' pawl explain --session $((session + 1000000))
expect 2 'does not go with --session' pawl explain --session "$session" --queue held
expect 2 'no id of a session' pawl explain --session none
kill -KILL $holder
wait $holder 2>/dev/null
exec 7<&-
until_state held "$id" READY
expect 1 'PAWL_E_NOT_FOUND' pawl explain --session "$session"

id=$(pawl send q byid)
expect 0 'acked' pawl ack --queue q --id "$id"
expect 1 'PAWL_E_ALREADY_ACKED' pawl ack --queue q --id "$id"

expect 0 '' pawl create forget --retain 1ms
id=$(pawl send forget f)
token=$(lease forget)
expect 0 'acked' pawl ack "$token"
until pawl query forget --id "$id" 2>&1 | grep -q PAWL_E_FORGOTTEN; do sleep 0.01; done
expect 1 'PAWL_E_FORGOTTEN' pawl ack "$token"
expect 0 'nothing there' pawl ack "$token" --ignore-missing

say "plain output: numbers without units"
expect 0 '' pawl create age
expect 0 '' pawl send age a
until [[ $(pawl list | awk '$1 == "age" && $9 >= 20 { print "old" }') == old ]]; do sleep 0.01; done
expect 0 '^age +durable +1 +0 +0 +0 +0 +1 +[0-9]+ +0$' pawl list
expect 0 '^oldest-ready +[0-9]+$' pawl stat age

say "settling otherwise"
id=$(pawl send q n)
token=$(lease q)
expect 0 'nacked' pawl nack "$token" --delay 0 --reason 'no stock'
expect 0 'READY.*no stock' pawl query q --id "$id"
token=$(lease q)
equal "nacked" "$(field nacked)" 1
expect 0 'released' pawl release "$token"
token=$(lease q)
equal "failed" "$(field failed)" 1
equal "acquired" "$(field acquired)" 3
expect 0 'deferred' pawl defer "$token" --delay 1h
equal "state" "$(state q "$id")" SCHEDULED
expect 0 'acked' pawl ack "$token" --if-unclaimed
expect 0 '' pawl create cap --lease 1s --max-hold 2s
expect 0 '' pawl send cap h
token=$(lease cap)
expect 0 'renewed' pawl renew "$token" --lease 1s
expect 1 'PAWL_E_HOLD_CAP' pawl renew "$token" --lease 10s
expect 1 'PAWL_E_INVALID' pawl renew "$token" --lease 0
expect 0 '' pawl ack "$token"

say "at the limit a message is DEAD, with its reason"
expect 0 '' pawl create frail --max-failed 2 --retry 0
id=$(pawl send frail f)
for i in 1 2; do
    token=$(lease frail)
    expect 0 'nacked' pawl nack "$token" --reason "try $i"
done
equal "state" "$(state frail "$id")" DEAD
expect 0 'failed +try 2' pawl dead frail
expect 3 '' pawl receive frail

say "dead messages and the queue they should go to"
expect 1 'PAWL_E_INVALID.*dead_forward names the queue itself' pawl create loop --dead-forward loop
expect 0 'warning: --dead-forward "graves": no such queue' pawl create yard --retry 0 --dead-forward graves
expect 1 'PAWL_E_INVALID.*circle.*"yard"' pawl create graves --dead-forward yard
expect 1 'PAWL_E_INVALID.*dead_forward names the queue itself' pawl alter yard --dead-forward yard
expect 0 'warning: --dead-forward "graves"' pawl alter yard --max-failed 1
expect 0 '^dead-forward +graves: no such queue' pawl stat yard
expect 0 '"dead_forward_trouble":"no such queue' pawl stat yard --json
expect 0 '' pawl send yard y
expect 0 '' pawl nack "$(lease yard)"
expect 0 'are not forwarded to "graves": no such queue' pawl dead yard
grep -q 'failed' "$T/out" || fail "the dead message is not listed"
expect 0 '' pawl create graves --mode memory
expect 0 '^dead-forward +graves: its mode promises less' pawl stat yard
expect 0 '' pawl drop graves
expect 0 '' pawl create graves
expect 0 '^dead-forward +graves$' pawl stat yard
expect 0 '' pawl alter yard --ttl 0
[[ -s $T/err ]] && fail "a warning without need: $(cat "$T/err")"
expect 0 '' pawl dead yard
[[ -s $T/err ]] && fail "a note without need: $(cat "$T/err")"
expect 0 '' pawl send yard z
expect 0 '' pawl nack "$(lease yard)"
expect 0 '^z$' pawl receive graves --ack

say "a queue that is gone"
expect 0 '' pawl create gone
expect 0 '' pawl send gone g
token=$(lease gone)
expect 0 'dropped' pawl drop gone
expect 1 'PAWL_E_QUEUE_GONE' pawl ack "$token"
expect 0 '' pawl create gone
expect 1 'PAWL_E_QUEUE_GONE' pawl ack "$token"
pawl receive gone --wait 1m >"$T/waiter" 2>&1 &
waiter=$!
until [[ $(member waiting <(pawl stat gone --json)) == 1 ]]; do sleep 0.01; done
expect 0 'dropped' pawl drop gone
wait $waiter
equal "exit code of the waiter" $? 1
grep -q PAWL_E_QUEUE_GONE "$T/waiter" || fail "the waiter said $(cat "$T/waiter")"

if (($(id -u) == 0)) && command -v setpriv >/dev/null; then
    say "another user"
    chmod 755 "$T" "$D"
    other() { setpriv --reuid 65533 --regid 65533 --clear-groups -- "$BUILD/pawl" --dir "$D" "$@"; }
    expect 1 'PAWL_E_(PERM|BROKER_DOWN)' other list
    chmod 666 "$D/pawl.sock"
    expect 0 '' pawl create closed
    expect 0 '' pawl create open --perm 0772
    expect 1 'PAWL_E_(PERM|NOT_FOUND)' other send closed x
    expect 0 '' other send open x
    expect 1 'PAWL_E_PERM' other receive open
    expect 1 'PAWL_E_PERM' other drop open
    token=$(lease open)
    expect 1 'PAWL_E_NOT_FOUND' other ack "$token"
    expect 0 'acked' pawl ack "$token"
else
    echo "skipped: another user (needs root and setpriv)"
fi

say "a broker that does not answer"
kill -STOP "$BROKER"
expect 1 "PAWL_E_BROKER_DOWN: pid $BROKER holds $D and does not answer.*stopped" pawl --timeout 200ms list
kill -CONT "$BROKER"
expect 0 '' pawl list
expect 0 '^pawl_|^[a-z_]+ [0-9]+' pawl metrics
expect 0 'SENT/s' pawl top --interval 20ms
expect 0 'ok +broker +pid' pawl doctor

broker_stop
[[ $(tail -n 1 "$T/broker.log") == 'pawld: stopped cleanly: the last '* ]] ||
    fail "the last line is $(tail -n 1 "$T/broker.log")"
expect 1 'PAWL_E_BROKER_DOWN.*start one with: pawld' pawl list
finish

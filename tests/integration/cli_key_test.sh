#!/bin/bash
# SPDX-License-Identifier: MIT
# Dedup keys on the command line, over kills of the broker.
# shellcheck source=tests/integration/cli_lib.sh
. "$(dirname "$0")/cli_lib.sh"

broker_start

say "a repeat makes no second message"
expect 0 'created' pawl create orders
expect 0 '^[0-9]+$' pawl send orders body --key k
id=$(pawl send orders body --key k)
expect 0 "\"result\":\"PAWL_OK_DUPLICATE\".*\"id\":\"?$id.*\"state\":\"READY\"" pawl --json send orders body --key k
expect 1 "PAWL_E_KEY_MISMATCH.*$id" pawl send orders other --key k
expect 0 'ready +1' pawl stat orders

say "nor after a kill, nor after its end"
broker_kill
broker_start
expect 0 "^$id\$" pawl send orders body --key k
expect 0 '"key":"k"' pawl --json receive orders --ack
expect 0 '"state":"ACKED"' pawl --json send orders body --key k
broker_kill
broker_start
expect 0 "\"result\":\"PAWL_OK_DUPLICATE\".*\"id\":\"?$id.*\"state\":\"ACKED\"" pawl --json send orders body --key k
expect 1 'PAWL_E_KEY_MISMATCH' pawl send orders other --key k
expect 1 'PAWL_E_INVALID.*key has 1..255' pawl send orders body --key ''
expect 1 'PAWL_E_INVALID.*key has 1..255' pawl send orders body --ordering-key ''
expect 3 '' pawl receive orders
expect 0 "^ *$id +ACKED" pawl query orders --key k
expect 0 "\"id\":\"?$id.*\"state\":\"ACKED\"" pawl --json query orders --key k
expect 1 'PAWL_E_NOT_FOUND' pawl query orders --key unknown k
expect 2 'do not go together' pawl query orders --key k --id 5

say "until its window is over"
expect 0 'created' pawl create short --dedup-window 1ms
expect 0 'dedup-window +1ms' pawl stat short
expect 0 '"dedup_window_ns":1000000' pawl --json stat short
expect 1 'dedup_window_ns is at most 7 days' pawl create long --dedup-window 8d
expect 0 . pawl send short body --key k
expect 0 . pawl receive short --ack
sleep 0.1
expect 0 '"result":"PAWL_OK"' pawl --json send short other --key k

say "lines have keys of their own"
expect 0 'created' pawl create lines
CLI_PAWL=$BUILD/pawl
expect 0 '' bash -c "printf 'a,1,x\nb,2,y\na,1,x' | $CLI_PAWL --dir $D send lines --lines --key-from hash"
expect 0 'ready +2' pawl stat lines
expect 0 '' bash -c "printf 'b,2,y\nc,3,z\n' | $CLI_PAWL --dir $D send lines --lines --key-from hash"
expect 0 'ready +3' pawl stat lines
expect 0 '' bash -c "printf 'a,1,x\nb,2,y\na,1,x' | $CLI_PAWL --dir $D send lines --lines --key-from 2 --separator ,"
expect 0 'ready +5' pawl stat lines
for i in 1 2; do
    expect 0 duplicates bash -c "printf 'x\nx\nx\n' | $CLI_PAWL --dir $D --json send lines --lines --key-from number --key input-7"
done
expect 0 'ready +8' pawl stat lines
expect 0 'READY' pawl query lines --key input-7:3
expect 1 'no such field.*' bash -c "printf 'a,1\nb\n' | $CLI_PAWL --dir $D send lines --lines --key-from 2 --separator ,"
expect 2 'wants --key K' bash -c "echo | $CLI_PAWL --dir $D send lines --lines --key-from number"
expect 2 'none of hash, number' bash -c "echo | $CLI_PAWL --dir $D send lines --lines --key-from colour"
expect 2 'needs --key-from' bash -c "echo | $CLI_PAWL --dir $D send lines --lines --key k"
expect 2 'go with --lines' pawl send lines text --key-from hash
expect 2 'goes with --key-from' bash -c "echo | $CLI_PAWL --dir $D send lines --lines --separator ,"

say "and what has a key is taken back, or acknowledged, by it"
expect 0 'cancelled input-7:1' pawl cancel lines --key input-7:1
expect 0 'CANCELLED' pawl query lines --key input-7:1
expect 1 'PAWL_E_STATE.*' pawl cancel lines --key input-7:1
expect 1 'PAWL_E_NOT_FOUND' pawl cancel lines --key none
expect 0 . pawl send lines later --key tomorrow --delay 1h
expect 0 'acked tomorrow' pawl ack --queue lines --key tomorrow
expect 1 'PAWL_E_ALREADY_ACKED.*process' pawl ack --queue lines --key tomorrow
expect 0 '"key": ?"input-7:2"' pawl --json ack --queue lines --key input-7:2
expect 2 'do not go together' pawl cancel lines --key k --id 5
expect 2 'go together' pawl ack --key k

say "the log says what it keeps"
broker_stop
expect 0 '"key":"k"' pawl --json log dump "$D"
finish

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

say "the log says what it keeps"
broker_stop
expect 0 '"key":"k"' pawl --json log dump "$D"
finish

#!/bin/bash
# SPDX-License-Identifier: MIT
# Tables and reservations on the command line, through a broker that is killed.
# shellcheck source=tests/integration/cli_lib.sh
. "$(dirname "$0")/cli_lib.sh"

version() { pawl --json state get "$1" "$2" | sed -n 's/.*"version":\([0-9]*\).*/\1/p'; }

broker_start

say "a table"
expect 1 'PAWL_E_NOT_FOUND: no table "t"; create it with: pawl create t --table' pawl state get t k
expect 2 'has no mode' pawl create t --table --mode memory
expect 0 'created "t"' pawl create t --table
expect 0 'there already' pawl create t --table
expect 1 'PAWL_E_EXISTS' pawl create t
expect 0 '^t +table ' pawl list
expect 0 '"mode":"table"' pawl --json list
expect 0 'created' pawl create q
expect 0 '^t$' pawl list --tables --names
expect 1 'PAWL_E_NOT_SUPPORTED.*queues' pawl send t hello
expect 1 'PAWL_E_NOT_SUPPORTED.*tables' pawl state put q k v
expect 1 'PAWL_E_NOT_SUPPORTED' pawl purge t

say "put, get, delete"
expect 3 'no key "k" in table "t"' pawl state get t k
expect 0 'put "k"' pawl state put t k 'some value' --if-absent
expect 0 '^some value$' pawl state get t k
expect 1 'PAWL_E_PRECONDITION' pawl state put t k other --if-absent
v=$(version t k)
expect 0 'put' pawl state put t k second --if-version "$v"
expect 1 'PAWL_E_PRECONDITION' pawl state put t k third --if-version "$v"
broker_kill
broker_start
expect 0 '^second$' pawl state get t k
[[ $(printf 'from stdin' | pawl state put t in && pawl state get t in) == *'from stdin' ]] || fail "stdin"
head -c 65536 /dev/zero | tr '\0' z >"$T/large"
expect 0 'put' pawl state put t large --file "$T/large"
cmp -s <(pawl state get t large) <(cat "$T/large"; echo) || fail "64 KiB"
echo >>"$T/large"
expect 1 'PAWL_E_TOO_BIG' pawl state put t large --file "$T/large"
expect 0 'deleted "k"' pawl state delete t k
expect 0 'there was no key' pawl state delete t k
expect 0 '"result":"PAWL_OK_MISSING"' pawl --json state delete t k

say "numbers"
expect 0 '^5$' pawl state add t n 5 --max 9
expect 1 'PAWL_E_PRECONDITION.*5' pawl state add t n 5 --max 9
expect 0 '^2$' pawl state add t n --min 0 -- -3
expect 1 'PAWL_E_PRECONDITION' pawl state add t n --min 0 -- -3
expect 2 'is no number' pawl state add t n much
expect 1 'PAWL_E_STATE' pawl state add t in 1
expect 0 'put' pawl state put t m --number -- -7
expect 0 '^-7$' pawl state get t m
expect 0 '"number":-7' pawl --json state get t m

say "list"
expect 0 'put' pawl state put t a/1 x
expect 0 'put' pawl state put t a/2 xx
expect 0 '^a/1 +[0-9]+ +1 +- +- +-$' pawl state list t
[[ $(pawl state list t --prefix a/ | wc -l) == 3 ]] || fail "two keys and the heads"
[[ $(pawl --json state list t --prefix a/ --after a/1 | grep -c '"key":"a/2"') == 1 ]] || fail "after"
[[ $(pawl --json state list t --limit 1 | wc -l) == 1 ]] || fail "limit"
expect 0 '^keys +6$' pawl stat t

say "reservations"
id=00112233-4455-6677-8899-aabbccddeeff
expect 0 '^100$' pawl state add t cups 100
expect 0 '^90$' pawl state reserve t cups $id 10
expect 0 '^90$' pawl state reserve t cups $id 10
expect 1 'PAWL_E_RES_DIFFERENT_AMOUNT' pawl state reserve t cups $id 11
expect 1 'PAWL_E_RES_SHORT.*90' pawl state reserve t cups 1 91
expect 2 'hexadecimal' pawl state reserve t cups nothing 1
expect 0 '^open: amount 10, posted 0$' pawl state reservation t $id
broker_kill
broker_start
expect 0 'posted' pawl state post t $id 4
expect 1 'PAWL_E_RES_ALREADY_POSTED.*4' pawl state post t $id
expect 1 'PAWL_E_RES_ALREADY_POSTED' pawl state void t $id
expect 0 '^posted: amount 10, posted 4$' pawl state reservation t $id
expect 0 '"number":96,"reserved":0,"posted":4' pawl --json state get t cups
expect 0 '^95$' pawl state reserve t cups a1 1 --ttl 10ms
until pawl state reservation t a1 | grep -q expired; do sleep 0.01; done
expect 1 'PAWL_E_RES_EXPIRED' pawl state post t a1
expect 0 '^96$' pawl state get t cups
expect 0 '^95$' pawl state reserve t cups a2 1
expect 0 'voided' pawl state void t a2
expect 1 'PAWL_E_RES_ALREADY_VOIDED' pawl state void t a2
expect 1 'PAWL_E_RES_NOT_FOUND' pawl state void t a3

say "the log says it"
expect 0 'STATE .*key="m" .*kind="number".* number=-7 ' pawl log dump
expect 0 'RESERVATION .*state="voided" .*amount=1 ' pawl log dump
expect 0 '^pawl_table_keys.queue="t".' pawl metrics

say "the table goes"
expect 0 'dropped' pawl drop t
expect 1 'PAWL_E_NOT_FOUND: no table' pawl state list t

broker_stop
finish

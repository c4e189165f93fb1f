/* SPDX-License-Identifier: MIT */
/* PostgreSQL: DELETE ... FOR UPDATE SKIP LOCKED ... RETURNING is the lease, COMMIT the
 * acknowledgement. A batch is one statement. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "peer.h"

struct client {
    PGconn *c;
    char *array; /* the bodies of a batch */
};

static int server;

static const char *program(const char *name, char out[128])
{
    char command[160];
    snprintf(command, sizeof(command), "ls /usr/lib/postgresql/*/bin/%s 2>/dev/null | tail -1",
             name);
    if (!peer_command_line(command, out, 128))
        snprintf(out, 128, "%s", name);
    return out;
}

static void version(char *out, size_t bytes)
{
    char command[192], path[128];
    snprintf(command, sizeof(command), "%s --version | sed 's/[^0-9]*\\([0-9.]*\\).*/\\1/'",
             program("postgres", path));
    peer_command_line(command, out, bytes);
}

static PGresult *checked(PGconn *c, PGresult *r)
{
    ExecStatusType s = PQresultStatus(r);
    if (s != PGRES_COMMAND_OK && s != PGRES_TUPLES_OK)
        bench_fail("PostgreSQL: %s", PQerrorMessage(c));
    return r;
}

static void run(PGconn *c, const char *sql) { PQclear(checked(c, PQexec(c, sql))); }

static void *open_client(const char *dir, bool durable)
{
    char where[600];
    struct client *k = calloc(1, sizeof(*k));
    if (k == NULL || (k->array = malloc(PEER_BATCH_MAX * (PEER_BODY_MAX + 1u) + 3)) == NULL)
        bench_fail("no memory");
    snprintf(where, sizeof(where), "host=%s dbname=postgres user=postgres", dir);
    for (int i = 0;; i++) {
        k->c = PQconnectdb(where);
        if (PQstatus(k->c) == CONNECTION_OK)
            break;
        if (i == 300)
            bench_fail("PostgreSQL: %s", PQerrorMessage(k->c));
        PQfinish(k->c);
        usleep(100000);
    }
    run(k->c, durable ? "SET synchronous_commit=on" : "SET synchronous_commit=off");
    run(k->c, "SET client_min_messages=error");
    char sql[256];
    snprintf(sql, sizeof(sql),
             "CREATE %s TABLE IF NOT EXISTS q(id bigserial PRIMARY KEY, body text)",
             durable ? "" : "UNLOGGED");
    run(k->c, "SELECT pg_advisory_lock(1)");
    run(k->c, sql);
    run(k->c, "SELECT pg_advisory_unlock(1)");
    PQclear(checked(
        k->c, PQprepare(k->c, "send", "INSERT INTO q(body) SELECT unnest($1::text[])", 1, NULL)));
    PQclear(checked(
        k->c, PQprepare(k->c, "take",
                        "DELETE FROM q WHERE id = ANY(ARRAY(SELECT id FROM q ORDER BY id LIMIT $1 "
                        "FOR UPDATE SKIP LOCKED)) RETURNING id, body",
                        1, NULL)));
    return k;
}

static void close_client(void *h)
{
    struct client *k = h;
    PQfinish(k->c);
    free(k->array);
    free(k);
}

static void start(const char *dir, bool durable, int core)
{
    char log[512], data[512], path[128], initdb[128];
    snprintf(log, sizeof(log), "%s/log", dir);
    snprintf(data, sizeof(data), "%s/d", dir);
    const char *make[] = {
        program("initdb", initdb), "-D", data, "-A", "trust", "-U", "postgres", "--no-sync", NULL
    };
    if (peer_wait(peer_spawn(-1, "postgres", log, make)) != 0)
        bench_fail("PostgreSQL: initdb failed, see %s", log);
    const char *argv[] = { program("postgres", path),
                           "-D",
                           data,
                           "-k",
                           dir,
                           "-c",
                           "listen_addresses=",
                           "-c",
                           durable ? "fsync=on" : "fsync=off",
                           "-c",
                           durable ? "full_page_writes=on" : "full_page_writes=off",
                           "-c",
                           "shared_buffers=256MB",
                           NULL };
    server = peer_spawn(core, "postgres", log, argv);
    close_client(open_client(dir, durable));
}

static void send_some(void *h, const void *body, size_t bytes, uint32_t n)
{
    struct client *k = h;
    char *at = k->array;
    *at++ = '{';
    for (uint32_t i = 0; i < n; i++) {
        memcpy(at, body, bytes); /* letters, no quotes needed */
        at += bytes;
        *at++ = i + 1 < n ? ',' : '}';
    }
    *at = 0;
    const char *values[] = { k->array };
    PQclear(checked(k->c, PQexecPrepared(k->c, "send", 1, values, NULL, NULL, 0)));
}

static uint32_t take(void *h, uint32_t max)
{
    struct client *k = h;
    char number[16];
    const char *values[] = { number };
    snprintf(number, sizeof(number), "%u", max);
    run(k->c, "BEGIN");
    PGresult *r = checked(k->c, PQexecPrepared(k->c, "take", 1, values, NULL, NULL, 0));
    uint32_t n = (uint32_t)PQntuples(r);
    PQclear(r);
    if (n == 0) {
        run(k->c, "COMMIT");
        usleep(1000); /* it wakes nobody up */
    }
    return n;
}

static void ack(void *h)
{
    struct client *k = h;
    run(k->c, "COMMIT");
}

static void stop(void) { peer_end(server, SIGQUIT); }

const struct peer_queue queue_postgres = {
    .name = "PostgreSQL SKIP LOCKED",
    .has_volatile = true,
    .has_durable = true,
    .real = "fdatasync of the WAL for each commit, shared by those that wait",
    .settings = "unlogged table, `synchronous_commit=off fsync=off full_page_writes=off`; all on. "
                "Unix socket, libpq, prepared; a batch is one INSERT of an array, one DELETE with "
                "SKIP LOCKED; a consumer without messages looks every millisecond",
    .version = version,
    .start = start,
    .open = open_client,
    .send = send_some,
    .take = take,
    .ack = ack,
    .close = close_client,
    .stop = stop,
};

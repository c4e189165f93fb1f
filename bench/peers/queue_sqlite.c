/* SPDX-License-Identifier: MIT */
/* SQLite: a table in a file in WAL mode, no server. A lease is an UPDATE, so a second consumer
 * would leave it alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "peer.h"

struct client {
    sqlite3 *db;
    sqlite3_stmt *insert, *lease, *remove, *begin, *commit;
    sqlite3_int64 ids[PEER_BATCH_MAX];
    uint32_t count;
};

static void version(char *out, size_t bytes) { snprintf(out, bytes, "%s", sqlite3_libversion()); }

static void must(struct client *c, int rc, const char *what)
{
    if (rc != SQLITE_OK && rc != SQLITE_DONE && rc != SQLITE_ROW)
        bench_fail("SQLite: %s: %s", what, sqlite3_errmsg(c->db));
}

static void step(struct client *c, sqlite3_stmt *s, const char *what)
{
    must(c, sqlite3_step(s), what);
    sqlite3_reset(s);
}

static void *open_client(const char *dir, bool durable)
{
    char path[512];
    struct client *c = calloc(1, sizeof(*c));
    if (c == NULL)
        bench_fail("no memory");
    snprintf(path, sizeof(path), "%s/q.db", dir);
    must(c, sqlite3_open(path, &c->db), "open");
    sqlite3_busy_timeout(c->db, 30000);
    must(c, sqlite3_exec(c->db, "PRAGMA journal_mode=WAL", NULL, NULL, NULL), "WAL");
    must(c,
         sqlite3_exec(c->db, durable ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=OFF", NULL,
                      NULL, NULL),
         "synchronous");
    must(c,
         sqlite3_exec(c->db,
                      "CREATE TABLE IF NOT EXISTS q(id INTEGER PRIMARY KEY, body BLOB, "
                      "lease INTEGER NOT NULL DEFAULT 0)",
                      NULL, NULL, NULL),
         "table");
    must(c, sqlite3_prepare_v2(c->db, "INSERT INTO q(body) VALUES(?)", -1, &c->insert, NULL),
         "prepare");
    must(c,
         sqlite3_prepare_v2(c->db,
                            "UPDATE q SET lease=1 WHERE id IN (SELECT id FROM q WHERE lease=0 "
                            "ORDER BY id LIMIT ?) RETURNING id, body",
                            -1, &c->lease, NULL),
         "prepare");
    must(c, sqlite3_prepare_v2(c->db, "DELETE FROM q WHERE id=?", -1, &c->remove, NULL), "prepare");
    must(c, sqlite3_prepare_v2(c->db, "BEGIN IMMEDIATE", -1, &c->begin, NULL), "prepare");
    must(c, sqlite3_prepare_v2(c->db, "COMMIT", -1, &c->commit, NULL), "prepare");
    return c;
}

static void close_client(void *h)
{
    struct client *c = h;
    sqlite3_finalize(c->insert);
    sqlite3_finalize(c->lease);
    sqlite3_finalize(c->remove);
    sqlite3_finalize(c->begin);
    sqlite3_finalize(c->commit);
    sqlite3_close(c->db);
    free(c);
}

static void start(const char *dir, bool durable, int core)
{
    (void)core;
    close_client(open_client(dir, durable));
}

static void send_some(void *h, const void *body, size_t bytes, uint32_t n)
{
    struct client *c = h;
    step(c, c->begin, "begin");
    for (uint32_t i = 0; i < n; i++) {
        sqlite3_bind_blob(c->insert, 1, body, (int)bytes, SQLITE_STATIC);
        step(c, c->insert, "insert");
    }
    step(c, c->commit, "commit");
}

static uint32_t take(void *h, uint32_t max)
{
    struct client *c = h;
    int rc;
    c->count = 0;
    step(c, c->begin, "begin");
    sqlite3_bind_int64(c->lease, 1, max);
    while ((rc = sqlite3_step(c->lease)) == SQLITE_ROW)
        c->ids[c->count++] = sqlite3_column_int64(c->lease, 0);
    must(c, rc, "lease");
    sqlite3_reset(c->lease);
    step(c, c->commit, "commit");
    if (c->count == 0)
        sqlite3_sleep(1); /* it wakes nobody up */
    return c->count;
}

static void ack(void *h)
{
    struct client *c = h;
    step(c, c->begin, "begin");
    for (uint32_t i = 0; i < c->count; i++) {
        sqlite3_bind_int64(c->remove, 1, c->ids[i]);
        step(c, c->remove, "delete");
    }
    step(c, c->commit, "commit");
}

static void stop(void) {}

const struct peer_queue queue_sqlite = {
    .name = "SQLite",
    .has_volatile = true,
    .has_durable = true,
    .real = "fsync of the WAL for each commit (send, lease, ack), one writer at a time",
    .settings =
        "WAL; `synchronous=OFF`; `synchronous=FULL`. Within the clients, no server; a batch "
        "is one transaction; a consumer without messages looks every millisecond",
    .version = version,
    .start = start,
    .open = open_client,
    .send = send_some,
    .take = take,
    .ack = ack,
    .close = close_client,
    .stop = stop,
};

/* SPDX-License-Identifier: MIT */
/* Counters and gauges as text, one "name value" a line. */
#include "core/core_inner.h"

static void put(struct pawl_core_text *t, char c)
{
    if (t->length >= t->skip && t->length - t->skip < t->bytes)
        t->out[t->length - t->skip] = c;
    t->length++;
}

static void put_text(struct pawl_core_text *t, const char *s)
{
    while (*s)
        put(t, *s++);
}

static void put_number(struct pawl_core_text *t, uint64_t n)
{
    char digits[20];
    uint32_t i = 0;
    do
        digits[i++] = (char)('0' + n % 10);
    while (n /= 10);
    while (i)
        put(t, digits[--i]);
}

static void line(struct pawl_core_text *t, const char *name, const char *queue, uint64_t n)
{
    put_text(t, "pawl_");
    put_text(t, name);
    if (queue) {
        put_text(t, "{queue=\"");
        put_text(t, queue);
        put_text(t, "\"}");
    }
    put(t, ' ');
    put_number(t, n);
    put(t, '\n');
}

static void queue_lines(struct pawl_core_text *t, const struct pawl_core_queue *q)
{
    const struct pawl_queue_counters *c = &q->counters;
    if (q->options.mode == PAWL_TABLE) {
        line(t, "table_keys", q->name, q->keys);
        line(t, "table_bytes", q->name, q->state_bytes);
        line(t, "table_reservations", q->name, q->reservations);
        line(t, "table_operations", q->name, q->idems);
        return;
    }
    line(t, "queue_ready", q->name, q->ready_count);
    line(t, "queue_scheduled", q->name, q->scheduled.count);
    line(t, "queue_leased", q->name, q->leased.count);
    line(t, "queue_dead", q->name, q->dead.count);
    line(t, "queue_done", q->name, q->done.count);
    line(t, "queue_bytes", q->name, q->bytes);
    line(t, "queue_waiting", q->name, q->waiting_count);
    line(t, "queue_sent_total", q->name, c->sent);
    line(t, "queue_delivered_total", q->name, c->delivered);
    line(t, "queue_acked_total", q->name, c->acked);
    line(t, "queue_nacked_total", q->name, c->nacked);
    line(t, "queue_expired_leases_total", q->name, c->expired_leases);
    line(t, "queue_crashed_total", q->name, c->crashed);
    line(t, "queue_expired_total", q->name, c->expired);
}

void pawl_core_metrics_text(const struct pawl_core *core, struct pawl_core_text *t,
                            const struct pawl_core_peer *peer)
{
    struct pawl_core_stats s;
    pawl_core_stats(core, &s);
    line(t, "messages", NULL, s.messages);
    line(t, "memory_bytes", NULL, s.memory_bytes);
    line(t, "memory_limit_bytes", NULL, core->options.memory_bytes);
    line(t, "payload_bytes", NULL, core->payload.bytes);
    line(t, "live_log_bytes", NULL, core->live);
    line(t, "sessions", NULL, s.sessions);
    line(t, "queues", NULL, s.queues);
    line(t, "leases", NULL, s.leases);
    line(t, "ordering_keys", NULL, core->orders.used);
    line(t, "keys_of_tables", NULL, core->cells.used);
    line(t, "reservations", NULL, core->reservations.used);
    line(t, "operations", NULL, core->idems.used); /* idempotent ones, by key */
    line(t, "timers", NULL, s.timers);
    line(t, "sends_total", NULL, s.sends);
    line(t, "deliveries_total", NULL, s.deliveries);
    line(t, "acks_total", NULL, s.acks);
    line(t, "refused_total", NULL, s.refused);
    line(t, "refusing_sends", NULL, core->refuse);
    line(t, "ledger_keys", NULL, core->ledger.count[PAWL_LEDGER_KEY]);
    line(t, "ledger_operations", NULL, core->ledger.count[PAWL_LEDGER_OP]);
    line(t, "ledger_limit", NULL, core->ledger.max);
    line(t, "duplicates_total", NULL, core->ledger.duplicates);
    line(t, "key_mismatches_total", NULL, core->ledger.mismatches);
    for (uint32_t i = 0; i < core->names_count; i++) {
        const struct pawl_core_queue *q = pawl_core_queue_at(core, core->names[i]);
        if (!peer || pawl_core_queue_allows(core, q, peer->uid, peer->gid, PAWL_RIGHT_QUERY))
            queue_lines(t, q);
    }
}

size_t pawl_core_metrics(const struct pawl_core *core, char *text, size_t bytes)
{
    struct pawl_core_text t = { .out = text, .bytes = bytes ? bytes - 1 : 0 };
    pawl_core_metrics_text(core, &t, NULL);
    if (bytes)
        text[pawl_min_u64(t.length, bytes - 1)] = 0;
    return t.length;
}

void pawl_core_stats(const struct pawl_core *core, struct pawl_core_stats *out)
{
    *out = (struct pawl_core_stats){
        .messages = core->messages_live,
        .memory_bytes = core->budget.used,
        .sessions = core->sessions.used,
        .queues = core->names_count,
        .leases = core->leases_current,
        .timers = core->wheel.armed,
        .sends = core->sends,
        .deliveries = core->deliveries,
        .acks = core->acks,
        .refused = core->refused,
    };
}

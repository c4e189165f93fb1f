/* SPDX-License-Identifier: MIT */
#include "fill.h"

#include <stdlib.h>

enum { BATCH = 256 };

static void take(struct pawl *lane, uint32_t least, uint32_t *open, uint64_t *lsn)
{
    struct pawl_answer answers[BATCH];
    int n = bench_must(lane, pawl_poll(lane, answers, BATCH, least, 60 * PAWL_NS_S), "poll");
    for (int i = 0; i < n; i++) {
        bench_must(lane, answers[i].result, "answer to a send");
        if (answers[i].lsn > *lsn)
            *lsn = answers[i].lsn;
    }
    *open -= (uint32_t)n;
}

void bench_fill(struct pawl *lane, struct bench_fill *f)
{
    uint64_t *body = calloc(1, f->body_bytes + 8);
    struct pawl_send_options o = PAWL_SEND_OPTIONS_INIT;
    uint64_t start = bench_now();
    uint32_t open = 0;
    if (body == NULL)
        bench_fail("no memory");
    memset(body, 0x5a, f->body_bytes);
    f->lsn = 0;
    for (f->sent = 0; f->sent < f->count && f->lsn < f->lsn_max; f->sent++) {
        bool plain = f->options == NULL;
        if (!plain)
            f->options(f->ctx, f->sent, &o);
        if (f->body_bytes >= 8)
            body[0] = f->sent;
        pawl_ticket ticket;
        bench_must(
            lane, pawl_submit_send(lane, f->queue, body, f->body_bytes, plain ? NULL : &o, &ticket),
            "send");
        if (++open >= f->window)
            take(lane, f->window / 4 > BATCH ? BATCH : f->window / 4, &open, &f->lsn);
    }
    while (open > 0)
        take(lane, 1, &open, &f->lsn);
    f->took_ns = bench_now() - start;
    free(body);
}

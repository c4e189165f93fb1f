/* SPDX-License-Identifier: MIT */
/* Bytes of the other side, in two readings:
 *
 *   first byte even   a producer's memory: the ring's consumer takes what it can, and every record
 *                     it hands out lies inside the mapping
 *   first byte odd    a broker's completion ring: the library reads it with calls open, hands out
 *                     deliveries and answers, and every byte it hands out can be read
 *
 * Without libFuzzer it replays its corpus: tests/fuzz/corpus/ring_fuzz, or the files it is given.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "abi/region.h"
#include "abi/ring.h"
#include "base/hash.h"
#include "client/lane.h"
#include "client/session.h"
#include "pawl.h"

#define SIZE PAWL_RING_BYTES_MIN

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* What was reached: a corpus that reaches none of it proves nothing. */
static struct {
    uint64_t records, messages, answers, breaches;
} reached;

static void need(bool true_of_it, const char *what)
{
    if (true_of_it)
        return;
    fprintf(stderr, "ring_fuzz: %s\n", what);
    abort();
}

static void region_open(struct pawl_region *r)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    need(fd >= 0 && ftruncate(fd, (off_t)pawl_region_file_bytes(SIZE)) == 0 &&
             pawl_region_map(fd, SIZE, PAWL_REGION_WRITE, r) == 0,
         "no memory");
    (void)close(fd);
}

/* Takes `n` bytes of the input as a number, little endian; 0 past its end. */
static uint64_t take(const uint8_t **at, const uint8_t *end, unsigned n)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < n && *at < end; i++)
        v |= (uint64_t) * (*at)++ << (8 * i);
    return v;
}

/* --- the ring -------------------------------------------------------------------------------- */

static void consume(const uint8_t *at, const uint8_t *end)
{
    static struct pawl_region region;
    static uint64_t words[2];
    if (!region.header)
        region_open(&region);
    uint64_t start = take(&at, end, 8) & ~7ull;
    words[0] = words[1] = start;
    struct pawl_ring_consumer c = { .data = region.data,
                                    .size = SIZE,
                                    .next = start,
                                    .tail = start,
                                    .tail_shm = &words[0],
                                    .head_shm = &words[1] };
    size_t n = (size_t)(end - at);
    if (n > SIZE)
        n = SIZE;
    /* The same bytes again and again from where the ring begins; small tails in between. */
    for (size_t i = 0; i < n; i++)
        region.data[(start + i) & (SIZE - 1)] = at[i];
    uint64_t fed = 0;
    for (int round = 0; round < 64; round++) {
        words[0] =
            start + (fed += take(&at, end, round % 8 == 7 ? 8 : 1) * (round % 8 == 7 ? 1 : 8));
        const void *record;
        uint32_t size;
        enum pawl_ring_result r;
        while ((r = pawl_ring_next(&c, &record, &size)) == PAWL_RING_RECORD) {
            const uint8_t *p = record;
            need(size >= 8 && size % 8 == 0 && size <= SIZE, "a record of impossible size");
            need(p >= region.data && p + size <= region.data + 2 * (uint64_t)SIZE, "outside");
            static uint8_t copy[SIZE];
            memcpy(copy, p, size);
            reached.records++;
        }
        if (r == PAWL_RING_BREACH)
            return;
        need(c.next == c.tail && c.tail == words[0], "not read to its end");
        pawl_ring_release(&c, c.next);
        need(words[1] == c.next, "released to elsewhere");
    }
}

/* --- the library ----------------------------------------------------------------------------- */

/* An attached lane without a broker: queue 1 is "q", calls end at once. */
static struct pawl *lane_open(void)
{
    struct pawl_session *s = calloc(1, sizeof *s);
    struct pawl_mapping *m = calloc(1, sizeof *m);
    need(s && m, "no memory");
    s->options.window = PAWL_WINDOW_MIN;
    s->options.ring_bytes = SIZE;
    s->options.timeout_ns = 1;
    s->references = 1;
    s->socket = -1;
    memcpy(s->path, "/nowhere", 9);
    s->process = pawl_process_page(&s->process_mark);
    need(pthread_mutex_init(&s->lock, NULL) == 0, "no mutex");
    struct pawl *l = pawl_client_lane_create(s);
    need(l != NULL, "no lane");
    region_open(&m->sub);
    region_open(&m->comp);
    l->mapping = m;
    l->sub_shm = m->sub.header;
    l->comp_shm = m->comp.header;
    l->sub = (struct pawl_ring_producer){ .data = m->sub.data,
                                          .size = SIZE,
                                          .tail_shm = &l->sub_shm->tail,
                                          .head_shm = &l->comp_shm->sub_head };
    l->comp = (struct pawl_ring_consumer){ .data = m->comp.data,
                                           .size = SIZE,
                                           .tail_shm = &l->comp_shm->tail,
                                           .head_shm = &l->sub_shm->comp_head };
    l->attached = true;
    l->number = 0;
    l->binding = 1;
    l->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct pawl_queue_ref *q = pawl_queue_by_id(l, 1);
    need(q != NULL, "no queue");
    memcpy(q->name, "q", 2);
    q->hash = pawl_hash64("q", 1, 0);
    struct pawl_queue_ref **bucket = &l->names_table[q->hash & (PAWL_REF_BUCKETS - 1)];
    q->by_name = *bucket;
    *bucket = q;
    return l;
}

/* Every byte that was handed out is read. */
static void read_message(const struct pawl_message *m)
{
    static uint8_t copy[SIZE];
    struct pawl_header h;
    reached.messages++;
    need(m->bytes <= SIZE, "a body larger than the ring");
    memcpy(copy, m->body, m->bytes);
    if (m->key_bytes)
        memcpy(copy, m->key, m->key_bytes);
    if (m->ordering_key_bytes)
        memcpy(copy, m->ordering_key, m->ordering_key_bytes);
    for (uint32_t i = 0; pawl_message_header(m, i, &h) == PAWL_OK; i++)
        need(strlen(h.name) <= UINT8_MAX && strlen(h.value) <= UINT16_MAX, "a header's length");
    need(m->lease_left_ns > 0 || m->deadline_ns == 0, "a lease that is over");
}

static void answer(const uint8_t *at, const uint8_t *end)
{
    struct pawl *l = lane_open();
    uint8_t *comp = l->mapping->comp.header;
    uint8_t open = (uint8_t)take(&at, end, 1);
    uint8_t state = (uint8_t)take(&at, end, 1);
    for (unsigned i = 0; i < open % 8u; i++)
        need(pawl_submit_send(l, "q", "x", 1, NULL, NULL) == PAWL_OK, "a submit");
    uint64_t tail = 0;
    for (int round = 0; round < 8 && at < end; round++) {
        /* u16 bytes, then so many: appended to the ring. */
        uint64_t n = take(&at, end, 2);
        if (n > (uint64_t)(end - at))
            n = (uint64_t)(end - at);
        for (uint64_t i = 0; i < n; i++)
            l->mapping->comp.data[(tail + i) & (SIZE - 1)] = at[i];
        at += n;
        tail += state & 1 ? (n + 7) & ~7ull : n;
        memcpy(comp + offsetof(struct pawl_comp_shm, tail), &tail, sizeof tail);
        if (state & 2)
            memcpy(comp + offsetof(struct pawl_comp_shm, sub_head), &n, sizeof n);
        struct pawl_message m[4];
        struct pawl_answer a[8];
        const char *const q = "q";
        uint32_t count;
        int rc = pawl_receive_batch(l, &q, 1, NULL, m, 4, &count);
        for (uint32_t i = 0; rc == PAWL_OK && i < count; i++)
            read_message(&m[i]);
        rc = pawl_poll(l, a, 8, 0, 0);
        reached.breaches += rc == PAWL_E_PROTOCOL;
        for (int i = 0; i < rc; i++, reached.answers++)
            need(a[i].ticket >= 1 && a[i].ticket < l->next, "a ticket that was not given");
        char text[32];
        (void)!pawl_metrics(l, text, sizeof text);
        (void)!pawl_wait(l, 1, 0, a);
    }
    pawl_close(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2 || bytes > 2 * SIZE)
        return 0;
    if (data[0] & 1)
        answer(data + 1, data + bytes);
    else
        consume(data + 1, data + bytes);
    return 0;
}

#ifndef PAWL_FUZZ
static bool replay(const char *path)
{
    static uint8_t bytes[2 * SIZE + 1];
    FILE *f = fopen(path, "rb");
    if (!f)
        return false;
    size_t n = fread(bytes, 1, sizeof bytes, f);
    (void)fclose(f);
    /* In memory of exactly its size, so that a sanitizer sees the end. */
    uint8_t *exact = malloc(n ? n : 1);
    need(exact != NULL, "no memory");
    memcpy(exact, bytes, n);
    (void)LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    return true;
}

int main(int argc, char **argv)
{
    const char *corpus = "tests/fuzz/corpus/ring_fuzz";
    unsigned files = 0;
    (void)alarm(120);
    for (int i = 1; i < argc; i++)
        files += replay(argv[i]);
    DIR *dir = argc > 1 ? NULL : opendir(corpus);
    for (struct dirent *e = NULL; dir && (e = readdir(dir));) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", corpus, e->d_name);
        if (e->d_name[0] != '.')
            files += replay(path);
    }
    if (dir)
        (void)closedir(dir);
    printf("%u inputs replayed: %llu records, %llu messages, %llu answers, %llu breaches\n", files,
           (unsigned long long)reached.records, (unsigned long long)reached.messages,
           (unsigned long long)reached.answers, (unsigned long long)reached.breaches);
    if (argc == 1)
        need(reached.records && reached.messages && reached.answers && reached.breaches,
             "the corpus does not reach what it is for");
    return files > 0 ? 0 : 1;
}
#endif

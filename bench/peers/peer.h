/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BENCH_PEER_H
#define PAWL_BENCH_PEER_H

/* What a program beside pawl has to bring to be measured as it is. One file each; every function
 * fails the benchmark (bench_fail) where the peer refuses. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The part of the harness that a file in C++ may use too. */
void bench_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#define PEER_BODY_MAX 1024u
#define PEER_BATCH_MAX 1024u

/* A hop: a channel between two processes, both ways, without leases. */
struct peer_hop {
    const char *name;
    const char *idle;                           /* what a waiting side does */
    void (*version)(char *out, size_t bytes);   /* NULL: the kernel's */
    void (*prepare)(const char *dir, int core); /* before the two processes are forked; NULL */
    void *(*open)(const char *dir, int end);    /* in each of them; end 0 or 1 */
    void (*send)(void *h, const void *body, size_t n); /* may wait while the channel is full */
    void (*receive)(void *h, void *body, size_t n);    /* the next message, of n bytes */
    void (*close)(void *h);
    void (*done)(const char *dir); /* after both have ended; NULL */
};

/* A queue with leases and acknowledgements. */
struct peer_queue {
    const char *name;
    bool has_volatile, has_durable;
    const char *real; /* what an answered send of its strictest setting survives */
    const char *settings;
    void (*version)(char *out, size_t bytes);
    /* A fresh server (or file) in `dir`, pinned to `core`; an empty queue. */
    void (*start)(const char *dir, bool durable, int core);
    void *(*open)(const char *dir, bool durable);
    /* Sends n equal messages; returns when each is answered. */
    void (*send)(void *h, const void *body, size_t bytes, uint32_t n);
    /* Leases 1..max messages, waiting a second at most for the first; returns how many. */
    uint32_t (*take)(void *h, uint32_t max);
    void (*ack)(void *h); /* all that were taken; answered, where the peer answers that */
    void (*close)(void *h);
    void (*stop)(void);
};

/* serve.c: servers, which die with the benchmark. */
int peer_spawn(int core, const char *user, const char *log, const char *const *argv); /* a pid */
int peer_wait(int pid); /* until it ends; its exit code, -1 for a signal */
int peer_pid(void);
void peer_end(int pid, int signal);                      /* and waits for it */
int peer_port(void);                                     /* a free one on 127.0.0.1 */
int peer_connect_unix(const char *path, double seconds); /* tries until then; a descriptor */
int peer_connect_port(int port, double seconds);
bool peer_command_line(const char *command, char *out, size_t bytes); /* its first line */

/* A name of this run in name spaces of the host, for the channel of that way; `done` removes it. */
void peer_name(int way, char *out, size_t bytes);

/* A connection with lines, buffered both ways. */
struct peer_stream {
    int fd;
    size_t from, to, out;
    char in[1 << 18], output[1 << 21];
};
void peer_put(struct peer_stream *s, const void *bytes, size_t n);
void peer_print(struct peer_stream *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void peer_stream_close(struct peer_stream *s);
void peer_flush(struct peer_stream *s);
char *peer_line(struct peer_stream *s); /* without its end; valid until the next read */
void peer_copy(struct peer_stream *s, void *to, size_t n); /* reads n bytes, at most 4,096 */
void peer_skip(struct peer_stream *s, size_t n);           /* reads over n bytes */

#ifdef __cplusplus
}
#endif
#endif

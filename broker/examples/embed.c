/* SPDX-License-Identifier: MIT */
/* A program with its broker inside: one thread runs the broker, another is its client. Other
 * processes may connect to DIR/pawl.sock meanwhile.    embed DIR */
#include <pawl.h>
#include <pawld.h>
#include <pthread.h>
#include <stdio.h>

static void *run(void *broker)
{
    pthread_setname_np(pthread_self(), "app-broker"); /* the thread is ours: name it, pin it */
    return (void *)(intptr_t)pawld_run(broker);
}

static int say_hello(const char *dir)
{
    struct pawl_options options = PAWL_OPTIONS_INIT;
    struct pawl *lane;
    struct pawl_message m;
    options.dir = dir;
    int rc = pawl_open(&options, &lane);
    if (rc == PAWL_OK)
        rc = pawl_queue_create(lane, "hello", NULL);
    if (rc >= 0)
        rc = pawl_send(lane, "hello", "Hello, inside", 13, NULL, NULL);
    if (rc == PAWL_OK)
        rc = pawl_receive(lane, "hello", NULL, &m);
    if (rc == PAWL_OK) {
        printf("%.*s\n", (int)m.bytes, (const char *)m.body);
        rc = pawl_ack(lane, &m.token, 0);
    }
    if (rc != PAWL_OK)
        fprintf(stderr, "%s: %s\n", pawl_strname(rc), pawl_last_text(lane));
    pawl_close(lane);
    return rc;
}

int main(int argc, char **argv)
{
    struct pawld_options options = PAWLD_OPTIONS_INIT;
    char why[PAWLD_TEXT_BYTES];
    struct pawld *broker;
    pthread_t thread;
    if (argc != 2) {
        fprintf(stderr, "usage: embed DIR\n");
        return 2;
    }
    options.dir = argv[1];
    int rc = pawld_create(&options, &broker, why);
    if (rc != PAWLD_OK) {
        fprintf(stderr, "%s\n", why);
        return rc;
    }
    if (pthread_create(&thread, NULL, run, broker) != 0) {
        pawld_destroy(broker);
        return 1;
    }
    int client = say_hello(argv[1]);
    void *result;
    pawld_stop(broker);
    pthread_join(thread, &result);
    pawld_destroy(broker);
    return client != PAWL_OK ? 1 : (int)(intptr_t)result;
}

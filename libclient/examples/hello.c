/* SPDX-License-Identifier: MIT */
/* A message goes into a durable queue and comes out again. */
#include <pawl.h>
#include <stdio.h>

int main(void)
{
    struct pawl *lane;
    struct pawl_message m;
    int rc = pawl_open(NULL, &lane); /* finds the broker by $PAWL_DIR or the default directory */
    if (rc == PAWL_OK)
        rc = pawl_queue_create(lane, "hello", NULL); /* again with the same options: fine */
    if (rc >= 0)
        rc = pawl_send(lane, "hello", "Hello, world", 12, NULL, NULL); /* OK: it is on disk */
    if (rc == PAWL_OK)
        rc = pawl_receive(lane, "hello", NULL, &m); /* leased to this process for 10 s */
    if (rc == PAWL_OK) {
        printf("%.*s\n", (int)m.bytes, (const char *)m.body);
        rc = pawl_ack(lane, &m.token, 0); /* OK: nobody will see it again */
    }
    if (rc != PAWL_OK)
        fprintf(stderr, "%s: %s %s\n", pawl_strname(rc), pawl_strerror(rc), pawl_last_text(lane));
    pawl_close(lane);
    return rc != PAWL_OK;
}

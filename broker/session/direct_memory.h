/* SPDX-License-Identifier: MIT */
#ifndef PAWL_BROKER_DIRECT_MEMORY_H
#define PAWL_BROKER_DIRECT_MEMORY_H

/* The memory of a direct queue as the kernel knows it, and what is kept of it for the next broker.
 *
 * Seals: its size is fixed (SHRINK, GROW) and so are the seals (SEAL). F_SEAL_WRITE and
 * FUTURE_WRITE cannot be: those who attach write. So a peer can punch holes in it; that harms the
 * queue, whose slots then read as zeros, and takes nobody down: a fault on a hole makes a new page.
 * pawl_direct_memory_whole() tells.
 *
 * DIR/direct/ID (16 hexadecimal digits, 0600) says which memory it is, and which processes have a
 * lane in it. It is written without a flush: the memory itself does not outlive the machine, and
 * what a killed process has written stays. A file of another boot, or one that was torn, is none.
 *
 *   0     struct pawl_direct_facts
 *   4096  struct pawl_direct_holder, of lane 1, 2, ... */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAWL_DIRECT_FACTS_MAGIC 0x7463657269647770ull /* "pwdirect" */

struct pawl_direct_facts {
    uint64_t magic, id, incarnation;
    uint64_t device, inode, bytes;
    uint8_t boot_id[16];
    uint64_t secret[2]; /* is in the memory too */
    uint64_t check;     /* XXH3 of all before */
};

/* Who has a lane. pid 0: nobody; UINT32_MAX: somebody whose number is not to be seen. */
struct pawl_direct_holder {
    uint64_t start_time;
    uint32_t pid;
    uint32_t check; /* of the two before: half an entry is none */
};
#define PAWL_DIRECT_HOLDER_UNKNOWN UINT32_MAX

/* A sealed memfd, allocated whole. The descriptor, or -errno: -ENOMEM, -ENOSPC; -EMFILE. */
int pawl_direct_memory_make(uint64_t bytes) __attribute__((warn_unused_result));
/* device and inode of it into *facts. 0 or -errno. */
int pawl_direct_memory_identify(int fd, struct pawl_direct_facts *facts)
    __attribute__((warn_unused_result));
/* A descriptor that came from a client: is it the memory that *facts names, with all its seals? In
 * this order: that it is a memory file at all (asked from no file system that could let us wait),
 * its seals, then what they guard. 0; -EBADF: no memory file, whose close may block; -EPERM: a seal
 * is missing; -EBADMSG: another one. */
int pawl_direct_memory_prove(int fd, const struct pawl_direct_facts *facts)
    __attribute__((warn_unused_result));
/* Readable and writable, not inherited by a child, in no core dump. NULL: no address space. */
void *pawl_direct_memory_map(int fd, uint64_t bytes);
/* No page of it was given back since it was made. */
bool pawl_direct_memory_whole(int fd, uint64_t bytes);

/* dir: of DIR/direct. Each 0 or -errno. */
int pawl_direct_facts_open(int dir, uint64_t id, bool create, int *fd)
    __attribute__((warn_unused_result));
int pawl_direct_facts_write(int fd, struct pawl_direct_facts *facts)
    __attribute__((warn_unused_result));
/* False: no valid facts of this queue and this boot. */
bool pawl_direct_facts_read(int fd, uint64_t id, const uint8_t boot_id[16],
                            struct pawl_direct_facts *out);
int pawl_direct_holder_write(int fd, uint32_t lane, uint32_t pid, uint64_t start_time)
    __attribute__((warn_unused_result));
/* Of lanes 1..count into out[0..]; those that were never written have pid 0. */
int pawl_direct_holders_read(int fd, struct pawl_direct_holder *out, uint32_t count)
    __attribute__((warn_unused_result));
void pawl_direct_facts_remove(int dir, uint64_t id);
/* Removes the files of queues that keep() does not want. */
void pawl_direct_facts_sweep(int dir, bool (*keep)(void *ctx, uint64_t id), void *ctx);

#endif

/* SPDX-License-Identifier: MIT */
/* Sleeping and waking on a direct queue: DIRECT.md 5.7. All accesses are seq_cst: of a sleeper that
 * announces itself and looks again, and a waker that publishes and looks at the gate, at least one
 * sees the other. */
#include "abi/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "pawl.h"

uint32_t pawl_direct_gate_prepare(uint32_t *gate) { return pawl_or_seq_u32(gate, 1); }

#ifdef PAWL_ATOMIC_STEP
static uint32_t futex_wake(uint32_t *gate, uint32_t count) { return pawl_step_wake(gate, count); }
void pawl_direct_gate_wait(uint32_t *gate, uint32_t kept, uint64_t ns)
{
    (void)ns;
    pawl_step_wait(gate, kept);
}
#else
static uint32_t futex_wake(uint32_t *gate, uint32_t count)
{
    if (count > INT_MAX)
        count = INT_MAX;
    long n = syscall(SYS_futex, gate, FUTEX_WAKE, count, NULL, NULL, 0);
    return n > 0 ? (uint32_t)n : 0;
}

void pawl_direct_gate_wait(uint32_t *gate, uint32_t kept, uint64_t ns)
{
    if (ns > PAWL_DIRECT_SLEEP_NS_MAX)
        ns = PAWL_DIRECT_SLEEP_NS_MAX;
    struct timespec t = { .tv_sec = (time_t)(ns / 1000000000u),
                          .tv_nsec = (long)(ns % 1000000000u) };
    (void)syscall(SYS_futex, gate, FUTEX_WAIT, kept, &t, NULL, 0);
}
#endif

/* Clearing counts as an event, too: were the count left alone, the next sleeper's bit would bring
 * back the very value that an earlier one kept, and that one would sleep over what was sent
 * between.
 */
#ifdef PAWL_BUG_DIRECT_GATE_ABA
#define PAWL_GATE_CLEARED(kept) ((kept) & ~1u)
#else
#define PAWL_GATE_CLEARED(kept) (((kept) & ~1u) + 2)
#endif

void pawl_direct_gate_wake(uint32_t *gate, uint32_t count)
{
    if ((pawl_load_seq_u32(gate) & 1) == 0)
        return;
    uint32_t kept = pawl_add_seq_u32(gate, 2);
    if (futex_wake(gate, count) >= count)
        return;
    /* Nobody is left. Whoever came meanwhile has changed nothing in the word if he found bit 0 set:
     * he sleeps under a clear bit unless all are woken. */
    uint32_t found = kept;
    if (pawl_cas_seq_u32(gate, &found, PAWL_GATE_CLEARED(kept))) {
#ifndef PAWL_BUG_DIRECT_WAKE_NOT_ALL
        (void)futex_wake(gate, INT_MAX);
#endif
    }
}

void pawl_direct_gate_wake_all(uint32_t *gate)
{
    (void)pawl_add_seq_u32(gate, 2);
    (void)futex_wake(gate, INT_MAX);
}

/* --- the life byte --------------------------------------------------------------------------- */

/* A record lock of the process, not of the open file: a child does not inherit it, and it goes when
 * the process goes, whoever else has the descriptor. */
static struct flock life_byte(uint32_t number, short type)
{
    struct flock f;
    memset(&f, 0, sizeof f);
    f.l_type = type;
    f.l_whence = SEEK_SET;
    f.l_start = (off_t)number;
    f.l_len = 1;
    return f;
}

int pawl_direct_life_lock(int fd, uint32_t number)
{
    struct flock f = life_byte(number, F_WRLCK);
    if (fcntl(fd, F_SETLK, &f) == 0)
        return PAWL_OK;
    return errno == EACCES || errno == EAGAIN ? PAWL_E_CONFLICT : PAWL_E_RESOURCE;
}

int pawl_direct_life_held(int fd, uint32_t number)
{
    struct flock f = life_byte(number, F_WRLCK);
    /* Asked as an open file, not as a process: a broker within the process of its client sees that
     * client's locks, too. */
    f.l_pid = 0;
    if (fcntl(fd, F_OFD_GETLK, &f) != 0)
        return PAWL_E_RESOURCE;
    return f.l_type != F_UNLCK;
}

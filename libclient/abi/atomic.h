/* SPDX-License-Identifier: MIT */
#ifndef PAWL_ABI_ATOMIC_H
#define PAWL_ABI_ATOMIC_H

/* The only place with stdatomic. Shared words are plain fixed-width fields of `_shm` structs and
 * are touched through these functions alone, with the order in the name. A build with
 * PAWL_ATOMIC_STEP gives control to the explorer (tests/lib/explore.h) before every access. */

#include <stdbool.h>
#include <stdint.h>

#ifdef PAWL_ATOMIC_STEP
void pawl_atomic_step(void);
#define PAWL_STEP() pawl_atomic_step()
#else
#define PAWL_STEP() ((void)0)
#endif

/* Two words of different writers stand this far apart: adjacent-line prefetch pairs 64-byte lines.
 */
#define PAWL_LINE 128

_Static_assert(__atomic_always_lock_free(8, 0),
               "64-bit atomics must be lock-free between processes");

static inline uint64_t pawl_load_rlx_u64(const uint64_t *p)
{
    PAWL_STEP();
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}
static inline uint64_t pawl_load_acq_u64(const uint64_t *p)
{
    PAWL_STEP();
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
static inline uint64_t pawl_load_seq_u64(const uint64_t *p)
{
    PAWL_STEP();
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}
static inline void pawl_store_rlx_u64(uint64_t *p, uint64_t v)
{
    PAWL_STEP();
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
}
static inline void pawl_store_rel_u64(uint64_t *p, uint64_t v)
{
    PAWL_STEP();
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
static inline void pawl_store_seq_u64(uint64_t *p, uint64_t v)
{
    PAWL_STEP();
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);
}
static inline uint32_t pawl_load_rlx_u32(const uint32_t *p)
{
    PAWL_STEP();
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}
static inline uint32_t pawl_load_acq_u32(const uint32_t *p)
{
    PAWL_STEP();
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
static inline uint32_t pawl_load_seq_u32(const uint32_t *p)
{
    PAWL_STEP();
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}
static inline void pawl_store_rlx_u32(uint32_t *p, uint32_t v)
{
    PAWL_STEP();
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
}
static inline void pawl_store_rel_u32(uint32_t *p, uint32_t v)
{
    PAWL_STEP();
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
}
static inline void pawl_store_seq_u32(uint32_t *p, uint32_t v)
{
    PAWL_STEP();
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);
}
static inline uint32_t pawl_add_seq_u32(uint32_t *p, uint32_t v)
{
    PAWL_STEP();
    return __atomic_add_fetch(p, v, __ATOMIC_SEQ_CST);
}
static inline void pawl_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

#endif

/* SPDX-License-Identifier: MIT */
#ifndef PAWL_ABI_ATOMIC_H
#define PAWL_ABI_ATOMIC_H

/* The only place with stdatomic. Shared words are plain fixed-width fields of `_shm` structs and
 * are touched through these functions alone, with the order in the name. In a build with
 * PAWL_ATOMIC_STEP every access goes to the explorer (tests/lib/explore.h) instead, which decides
 * when it takes place and when others see it. */

#include <stdbool.h>
#include <stdint.h>

/* Two words of different writers stand this far apart: adjacent-line prefetch pairs 64-byte lines.
 */
#define PAWL_LINE 128

_Static_assert(__atomic_always_lock_free(8, 0),
               "64-bit atomics must be lock-free between processes");

#ifdef PAWL_ATOMIC_STEP
enum pawl_step_order { PAWL_STEP_RLX, PAWL_STEP_ACQ, PAWL_STEP_REL, PAWL_STEP_SEQ };
uint64_t pawl_step_load(const void *p, unsigned bytes, enum pawl_step_order order);
void pawl_step_store(void *p, uint64_t v, unsigned bytes, enum pawl_step_order order);
uint64_t pawl_step_add(void *p, uint64_t v, unsigned bytes);
uint64_t pawl_step_swap(void *p, uint64_t v, unsigned bytes);
#define PAWL_LOAD(p, order, step) pawl_step_load((p), sizeof *(p), PAWL_STEP_##step)
#define PAWL_STORE(p, v, order, step) pawl_step_store((p), (v), sizeof *(p), PAWL_STEP_##step)
#else
#define PAWL_LOAD(p, order, step) __atomic_load_n((p), __ATOMIC_##order)
#define PAWL_STORE(p, v, order, step) __atomic_store_n((p), (v), __ATOMIC_##order)
#endif

static inline uint64_t pawl_load_rlx_u64(const uint64_t *p) { return PAWL_LOAD(p, RELAXED, RLX); }
static inline uint64_t pawl_load_acq_u64(const uint64_t *p) { return PAWL_LOAD(p, ACQUIRE, ACQ); }
static inline uint64_t pawl_load_seq_u64(const uint64_t *p) { return PAWL_LOAD(p, SEQ_CST, SEQ); }
static inline void pawl_store_rlx_u64(uint64_t *p, uint64_t v) { PAWL_STORE(p, v, RELAXED, RLX); }
static inline void pawl_store_rel_u64(uint64_t *p, uint64_t v) { PAWL_STORE(p, v, RELEASE, REL); }
static inline void pawl_store_seq_u64(uint64_t *p, uint64_t v) { PAWL_STORE(p, v, SEQ_CST, SEQ); }
static inline uint32_t pawl_load_rlx_u32(const uint32_t *p)
{
    return (uint32_t)PAWL_LOAD(p, RELAXED, RLX);
}
static inline uint32_t pawl_load_acq_u32(const uint32_t *p)
{
    return (uint32_t)PAWL_LOAD(p, ACQUIRE, ACQ);
}
static inline uint32_t pawl_load_seq_u32(const uint32_t *p)
{
    return (uint32_t)PAWL_LOAD(p, SEQ_CST, SEQ);
}
static inline void pawl_store_rlx_u32(uint32_t *p, uint32_t v) { PAWL_STORE(p, v, RELAXED, RLX); }
static inline void pawl_store_rel_u32(uint32_t *p, uint32_t v) { PAWL_STORE(p, v, RELEASE, REL); }
static inline void pawl_store_seq_u32(uint32_t *p, uint32_t v) { PAWL_STORE(p, v, SEQ_CST, SEQ); }
static inline uint32_t pawl_add_seq_u32(uint32_t *p, uint32_t v)
{
#ifdef PAWL_ATOMIC_STEP
    return (uint32_t)pawl_step_add(p, v, sizeof *p);
#else
    return __atomic_add_fetch(p, v, __ATOMIC_SEQ_CST);
#endif
}
/* The old value. Acquire and release: what a flag taken this way guards stays inside. */
static inline uint32_t pawl_swap_u32(uint32_t *p, uint32_t v)
{
#ifdef PAWL_ATOMIC_STEP
    return (uint32_t)pawl_step_swap(p, v, sizeof *p);
#else
    return __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL);
#endif
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

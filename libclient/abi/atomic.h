/* SPDX-License-Identifier: MIT */
#ifndef PAWL_ABI_ATOMIC_H
#define PAWL_ABI_ATOMIC_H

/* The only place with stdatomic. Shared words are plain fixed-width fields of `_shm` structs and
 * are touched through these functions alone, with the order in the name. In a build with
 * PAWL_ATOMIC_STEP every access goes to the explorer (tests/lib/explore.h) instead, which decides
 * when it takes place and when others see it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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
uint64_t pawl_step_or(void *p, uint64_t v, unsigned bytes);
/* The value found; it was `expected` if and only if `v` is there now. */
uint64_t pawl_step_cas(void *p, uint64_t expected, uint64_t v, unsigned bytes);
/* The futex: wait sleeps if the word still has the value; wake answers how many it woke. */
void pawl_step_wait(uint32_t *word, uint32_t value);
uint32_t pawl_step_wake(uint32_t *word, uint32_t count);
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
/* The new value. */
static inline uint32_t pawl_or_seq_u32(uint32_t *p, uint32_t v)
{
#ifdef PAWL_ATOMIC_STEP
    return (uint32_t)(pawl_step_or(p, v, sizeof *p) | v);
#else
    return __atomic_or_fetch(p, v, __ATOMIC_SEQ_CST);
#endif
}
/* Compare and swap: true if the word was *expected and is v now; else false, and *expected is what
 * was found. Acquire and release; acquire if it failed. */
static inline bool pawl_cas_u64(uint64_t *p, uint64_t *expected, uint64_t v)
{
#ifdef PAWL_ATOMIC_STEP
    uint64_t found = pawl_step_cas(p, *expected, v, sizeof *p);
    bool done = found == *expected;
    *expected = found;
    return done;
#else
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
#endif
}
/* The same, and in the one order of all seq_cst accesses if it succeeds. */
static inline bool pawl_cas_seq_u64(uint64_t *p, uint64_t *expected, uint64_t v)
{
#ifdef PAWL_ATOMIC_STEP
    return pawl_cas_u64(p, expected, v);
#else
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE);
#endif
}
static inline bool pawl_cas_seq_u32(uint32_t *p, uint32_t *expected, uint32_t v)
{
#ifdef PAWL_ATOMIC_STEP
    uint32_t found = (uint32_t)pawl_step_cas(p, *expected, v, sizeof *p);
    bool done = found == *expected;
    *expected = found;
    return done;
#else
    return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE);
#endif
}
/* What was loaded before stays before what is loaded after. The thread sanitizer does not see it:
 * for accesses that are atomic themselves. */
static inline void pawl_fence_acq(void)
{
#if !defined(PAWL_ATOMIC_STEP) && !defined(__SANITIZE_THREAD__)
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PAWL_COPY_BY_WORDS
#endif
#endif
#if defined(PAWL_ATOMIC_STEP) || defined(__SANITIZE_THREAD__)
#define PAWL_COPY_BY_WORDS
#endif

/* As memcpy(), without a call for what is short and usual. */
static inline void pawl_copy(void *to, const void *from, size_t bytes)
{
    char *t = to, rest[4][16];
    const char *f = from;
    if (bytes < 16 || bytes > 64) {
        if (bytes) /* of nothing the pointer may be NULL, which memcpy() must not be given */
            memcpy(to, from, bytes);
        return;
    }
    size_t inner = bytes > 32 ? 16 : 0; /* four pieces, which may overlap */
    memcpy(rest[0], f, 16);
    memcpy(rest[1], f + inner, 16);
    memcpy(rest[2], f + bytes - 16 - inner, 16);
    memcpy(rest[3], f + bytes - 16, 16);
    memcpy(t, rest[0], 16);
    memcpy(t + inner, rest[1], 16);
    memcpy(t + bytes - 16 - inner, rest[2], 16);
    memcpy(t + bytes - 16, rest[3], 16);
}

/* Bytes into and out of shared memory that another may write or read at the same time; whoever does
 * not know better afterwards must throw away what he read. `shared` is aligned to 8 and has room up
 * to the next multiple of 8. Under the explorer and the thread sanitizer by relaxed words. */
static inline void pawl_copy_in(void *shared, const void *from, size_t bytes)
{
#ifdef PAWL_COPY_BY_WORDS
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t w = 0;
        memcpy(&w, (const char *)from + at, bytes - at < 8 ? bytes - at : 8);
        pawl_store_rlx_u64((uint64_t *)(void *)((char *)shared + at), w);
    }
#else
    pawl_copy(shared, from, bytes);
#endif
}
static inline void pawl_copy_out(void *to, const void *shared, size_t bytes)
{
#ifdef PAWL_COPY_BY_WORDS
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t w = pawl_load_rlx_u64((const uint64_t *)(const void *)((const char *)shared + at));
        memcpy((char *)to + at, &w, bytes - at < 8 ? bytes - at : 8);
    }
#else
    pawl_copy(to, shared, bytes);
#endif
}
/* A hint: this line will be written soon. No access: nothing is read, nothing ordered. */
static inline void pawl_will_write(const void *p)
{
#if defined(__x86_64__)
    /* Spelled out: the compiler takes the hint for reading unless it is told of a newer processor,
     * and a line that comes for reading must be asked for again by the write. Older ones ignore it.
     */
    __asm__ __volatile__("prefetchw %0" : : "m"(*(const char *)p));
#else
    __builtin_prefetch(p, 1);
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

/* Everything that differs between compilers and systems: vectors, unrolling, memory, threads. */
#ifndef RARELY_PORTABLE_H
#define RARELY_PORTABLE_H

#if !defined(__GNUC__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "the compiled loops need GCC or Clang, and x86-64 or aarch64"
#endif

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
#define PRAGMA(text) _Pragma(#text)
#ifdef __clang__
#define UNROLL PRAGMA(clang loop unroll(full))
#define BEGIN_FORM(features) PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define END_FORM PRAGMA(clang attribute pop)
#else
#define UNROLL PRAGMA(GCC unroll 16)
#define BEGIN_FORM(features) PRAGMA(GCC push_options) PRAGMA(GCC target(features))
#define END_FORM PRAGMA(GCC pop_options)
/* GCC says that passing wide vectors changed in version 4.6; here they are only passed to functions that are inlined. */
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

/* Lanes of two vectors, by their numbers. */
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(p, q, ...) __builtin_shufflevector(p, q, __VA_ARGS__)
#else
#define SHUFFLE(p, q, ...) __builtin_shuffle(p, q, (mask){__VA_ARGS__})
#endif

#define CACHE_LINE 64

#ifdef _WIN32
#include <malloc.h>
#include <windows.h>
#define aligned_alloc(boundary, bytes) _aligned_malloc(bytes, boundary)
#define aligned_free _aligned_free
typedef HANDLE thread;
#define THREAD_MAIN(name, argument) static DWORD WINAPI name(void *argument)
#define THREAD_END return 0
#define thread_yield() SwitchToThread()
static inline int thread_start(thread *id, DWORD(WINAPI *work)(void *), void *argument) {
    *id = CreateThread(NULL, 0, work, argument, 0, NULL);
    return *id != NULL;
}
static inline void thread_join(thread id) {
    WaitForSingleObject(id, INFINITE);
    CloseHandle(id);
}
#else
#include <pthread.h>
#include <sched.h>
#define aligned_free free
typedef pthread_t thread;
#define THREAD_MAIN(name, argument) static void *name(void *argument)
#define THREAD_END return NULL
#define thread_yield() sched_yield()
static inline int thread_start(thread *id, void *(*work)(void *), void *argument) {
    return !pthread_create(id, NULL, work, argument);
}
static inline void thread_join(thread id) { pthread_join(id, NULL); }
#endif

/* Many arrays in one piece of memory, each on cache lines of its own. Without a base it only counts bytes. */
typedef struct {
    char *base;
    size_t used;
} arena;

static inline void *arena_take(arena *from, size_t count, size_t bytes) {
    void *taken = from->base ? from->base + from->used : NULL;
    from->used += (count * bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    return taken;
}

#endif

/*
 * Model of the caches of a machine with many cores: which thread owns each line of 64 bytes.
 *
 * A build with `-Zsanitizer=thread -Zexternal-clangrt` calls the functions `__tsan_*` below at each
 * access to memory, in place of the thread sanitizer's library. An access *moves* a line if a core
 * of its own for each thread would have to fetch the line from another core: a read of a line that
 * another thread wrote last, or a write to a line that another thread holds. `model.rs` declares
 * the functions `lines_*` again and is their only caller.
 *
 * Each client thread has a number; all other threads together are one further holder. A spinlock
 * guards everything; accesses of a thread outside of `lines_enter` and `lines_leave` change owners,
 * but are not counted.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

#define LINE_BITS 6
#define LINES (1u << 22)
#define PLACES (1u << 21)
#define OTHERS 31
#define STACK_MAX 64

struct line {
    uintptr_t number;  /* address / 64; 0: the entry is free */
    uint32_t holders;  /* one bit for each thread with a copy */
    int32_t writer;    /* thread that wrote last; -1: none so far */
};

/* Line and code that accessed it in counted operations. `model.rs` has the same struct. */
struct place {
    uintptr_t line;
    const void *code;
    uint64_t read_moves, write_moves;
    bool writes, is_used;
    /* Return addresses at the first move, innermost first, up to a NULL; NULL without a move. */
    const void **stack;
};

static struct line *lines;
static struct place *places;
static volatile int locked;
static volatile bool tracking;
static _Thread_local int self = OTHERS;
static _Thread_local bool counting;

static void
lock(void)
{
    while (__atomic_exchange_n(&locked, 1, __ATOMIC_ACQUIRE))
        ;
}

static void
unlock(void)
{
    __atomic_store_n(&locked, 0, __ATOMIC_RELEASE);
}

static uint64_t
hash(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x9E3779B97F4A7C15u;
    return (x ^ (x >> 29));
}

static void
full(const char *what)
{
    fprintf(stderr, "the model of the caches has no room for more %s\n", what);
    abort();
}

static struct line *
line_of(uintptr_t number)
{
    uint32_t i = (uint32_t)hash(number) & (LINES - 1);
    for (uint32_t tries = 0; tries < 1024; tries++, i = (i + 1) & (LINES - 1)) {
        if (lines[i].number == number)
            return (&lines[i]);
        if (lines[i].number == 0) {
            lines[i] = (struct line){.number = number, .holders = 0, .writer = -1};
            return (&lines[i]);
        }
    }
    full("lines");
    return (NULL);
}

static struct place *
place_of(uintptr_t line, const void *code)
{
    uint32_t i = (uint32_t)hash(line * 31 + (uintptr_t)code) & (PLACES - 1);
    for (uint32_t tries = 0; tries < 1024; tries++, i = (i + 1) & (PLACES - 1)) {
        struct place *place = &places[i];
        if (place->is_used && place->line == line && place->code == code)
            return (place);
        if (!place->is_used) {
            *place = (struct place){.line = line, .code = code, .is_used = true};
            return (place);
        }
    }
    full("places");
    return (NULL);
}

struct walk {
    const void **stack;
    size_t length;
};

static _Unwind_Reason_Code
add_frame(struct _Unwind_Context *context, void *argument)
{
    struct walk *walk = argument;
    const void *code = (const void *)_Unwind_GetIP(context);
    if (code == NULL || walk->length == STACK_MAX)
        return (_URC_END_OF_STACK);
    walk->stack[walk->length++] = code;
    return (_URC_NO_REASON);
}

/* Returns the return addresses of the calling thread, ended by a NULL. Never freed: there is one
 * for each place that has moves. */
static const void **
stack_now(void)
{
    const void *stack[STACK_MAX];
    struct walk walk = {.stack = stack, .length = 0};
    _Unwind_Backtrace(add_frame, &walk);
    const void **copy = calloc(walk.length + 1, sizeof(void *));
    if (copy == NULL)
        full("memory");
    memcpy(copy, stack, walk.length * sizeof(void *));
    return (copy);
}

static void
touch_line(uintptr_t number, bool write, const void *code)
{
    struct line *line = line_of(number);
    uint32_t own = 1u << self;
    bool moves;
    if (write) {
        moves = (line->holders & ~own) != 0;
        line->holders = own;
        line->writer = self;
    } else {
        moves = (line->holders & own) == 0 && line->writer >= 0 && line->writer != self;
        line->holders |= own;
    }
    if (counting) {
        struct place *place = place_of(number, code);
        place->writes |= write;
        if (moves && place->stack == NULL)
            place->stack = stack_now();
        if (moves && write)
            place->write_moves++;
        else if (moves)
            place->read_moves++;
    }
}

static void
touch(const volatile void *address, size_t length, bool write, const void *code)
{
    if (!tracking || length == 0)
        return;
    uintptr_t first = (uintptr_t)address >> LINE_BITS;
    uintptr_t last = ((uintptr_t)address + length - 1) >> LINE_BITS;
    lock();
    for (uintptr_t number = first; number <= last; number++)
        touch_line(number, write, code);
    unlock();
}

/* Forgets all owners and places, and tracks from now on. */
void
lines_begin(void)
{
    lock();
    if (lines == NULL) {
        lines = malloc(LINES * sizeof(struct line));
        places = malloc(PLACES * sizeof(struct place));
        if (lines == NULL || places == NULL)
            full("memory");
    }
    memset(lines, 0, LINES * sizeof(struct line));
    memset(places, 0, PLACES * sizeof(struct place));
    tracking = true;
    unlock();
}

/* Stops tracking. Returns the places, PLACES of them, until the next lines_begin. */
const struct place *
lines_end(size_t *count)
{
    lock();
    tracking = false;
    unlock();
    *count = PLACES;
    return (places);
}

/* Begins an operation of client `number`, less than OTHERS; its moves are counted if `counts`. */
void
lines_enter(int number, bool counts)
{
    self = number;
    counting = counts;
}

/* Ends the operation of the calling thread. */
void
lines_leave(void)
{
    counting = false;
}

#define CODE __builtin_return_address(0)

void __tsan_init(void);
void
__tsan_init(void)
{
}

#define PLAIN(name, length, write)                                                                 \
    void __tsan_##name(void *address);                                                             \
    void __tsan_##name(void *address)                                                              \
    {                                                                                              \
        touch(address, length, write, CODE);                                                       \
    }

#define PLAINS(length)                                                                             \
    PLAIN(read##length, length, false)                                                             \
    PLAIN(write##length, length, true)                                                             \
    PLAIN(read_write##length, length, true)                                                        \
    PLAIN(unaligned_read##length, length, false)                                                   \
    PLAIN(unaligned_write##length, length, true)                                                   \
    PLAIN(unaligned_read_write##length, length, true)

PLAINS(1)
PLAINS(2)
PLAINS(4)
PLAINS(8)
PLAINS(16)
PLAIN(vptr_read, sizeof(void *), false)

void *__tsan_memcpy(void *to, const void *from, size_t length);
void *
__tsan_memcpy(void *to, const void *from, size_t length)
{
    touch(from, length, false, CODE);
    touch(to, length, true, CODE);
    return (__builtin_memcpy(to, from, length));
}

void *__tsan_memmove(void *to, const void *from, size_t length);
void *
__tsan_memmove(void *to, const void *from, size_t length)
{
    touch(from, length, false, CODE);
    touch(to, length, true, CODE);
    return (__builtin_memmove(to, from, length));
}

void *__tsan_memset(void *to, int byte, size_t length);
void *
__tsan_memset(void *to, int byte, size_t length)
{
    touch(to, length, true, CODE);
    return (__builtin_memset(to, byte, length));
}

/* All orderings are the strongest: the model has no use for the weaker ones. */
#define CHANGE(bits, T, name, builtin)                                                             \
    T __tsan_atomic##bits##_##name(volatile T *at, T value, int order);                            \
    T __tsan_atomic##bits##_##name(volatile T *at, T value, int order)                             \
    {                                                                                              \
        (void)order;                                                                               \
        touch(at, sizeof(T), true, CODE);                                                          \
        return (builtin(at, value, __ATOMIC_SEQ_CST));                                             \
    }

#define ATOMIC(bits, T)                                                                            \
    T __tsan_atomic##bits##_load(const volatile T *at, int order);                                 \
    T __tsan_atomic##bits##_load(const volatile T *at, int order)                                  \
    {                                                                                              \
        (void)order;                                                                               \
        touch(at, sizeof(T), false, CODE);                                                         \
        return (__atomic_load_n(at, __ATOMIC_SEQ_CST));                                            \
    }                                                                                              \
    void __tsan_atomic##bits##_store(volatile T *at, T value, int order);                          \
    void __tsan_atomic##bits##_store(volatile T *at, T value, int order)                           \
    {                                                                                              \
        (void)order;                                                                               \
        touch(at, sizeof(T), true, CODE);                                                          \
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                             \
    }                                                                                              \
    CHANGE(bits, T, exchange, __atomic_exchange_n)                                                 \
    CHANGE(bits, T, fetch_add, __atomic_fetch_add)                                                 \
    CHANGE(bits, T, fetch_sub, __atomic_fetch_sub)                                                 \
    CHANGE(bits, T, fetch_and, __atomic_fetch_and)                                                 \
    CHANGE(bits, T, fetch_or, __atomic_fetch_or)                                                   \
    CHANGE(bits, T, fetch_xor, __atomic_fetch_xor)                                                 \
    CHANGE(bits, T, fetch_nand, __atomic_fetch_nand)                                               \
    T __tsan_atomic##bits##_compare_exchange_val(volatile T *at, T old, T new, int order, int failed); \
    T __tsan_atomic##bits##_compare_exchange_val(volatile T *at, T old, T new, int order, int failed)  \
    {                                                                                              \
        (void)order;                                                                               \
        (void)failed;                                                                              \
        touch(at, sizeof(T), true, CODE);                                                          \
        __atomic_compare_exchange_n(at, &old, new, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);     \
        return (old);                                                                              \
    }

ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

void __tsan_atomic_thread_fence(int order);
void
__tsan_atomic_thread_fence(int order)
{
    (void)order;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void __tsan_atomic_signal_fence(int order);
void
__tsan_atomic_signal_fence(int order)
{
    (void)order;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

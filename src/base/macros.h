/* base/macros.h: small things that every file needs. */
#ifndef BERTH_BASE_MACROS_H
#define BERTH_BASE_MACROS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define _cleanup_(f) __attribute__((cleanup(f)))
#define _printf_(a, b) __attribute__((format(printf, a, b)))
#define _unused_ __attribute__((unused))
#define _noreturn_ __attribute__((noreturn))

/* gcc says it in one way, clang in another. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN
#endif

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* Hand over ownership: gives the pointer and leaves NULL behind. */
#define TAKE_PTR(p)                                                                                \
        ({                                                                                         \
                __typeof__(p) *_pp = &(p);                                                         \
                __typeof__(p) _taken = *_pp;                                                       \
                *_pp = NULL;                                                                       \
                _taken;                                                                            \
        })

/* Like assert, but never compiled out: for what must hold even in release builds. The text names
 * the invariant. */
_noreturn_ void must_fail(const char *file, int line, const char *what);
#define must(cond, what)                                                                           \
        do {                                                                                       \
                if (__builtin_expect(!(cond), 0))                                                  \
                        must_fail(__FILE__, __LINE__, what);                                       \
        } while (0)

#endif

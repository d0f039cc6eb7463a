/* base/base_testlib.h: what the tests of every folder share.
 *
 * A test may want to see a process end. Both functions here run fn in a child of their own and take
 * what it says on standard error. A child that ends in another way, fn that returns among them,
 * fails the cmocka test. Not for programs that have threads at that moment.
 */
#ifndef BERTH_BASE_TESTLIB_H
#define BERTH_BASE_TESTLIB_H

#include <stddef.h>

/* fn ends by abort(), as a must() that does not hold does, and text is part of what it says
 * before. */
void assert_aborts(void (*fn)(void), const char *text);
/* fn ends by exit(); with which status. ret_said: what it said, cut to size. */
int exit_status_of(void (*fn)(void), char *ret_said, size_t size);

#endif

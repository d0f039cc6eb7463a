/* base/stream_credit.h: the windows of log and exec streams between server and agent
 * (proto/agent.proto, StreamCredit).
 *
 * Both sides count a message as its data and STREAM_MESSAGE_COST, so that many small ones cost what
 * they cost. Input counts by its bytes alone: the server cuts it as it likes.
 */
#ifndef BERTH_BASE_STREAM_CREDIT_H
#define BERTH_BASE_STREAM_CREDIT_H

#include <stdint.h>

#define STREAM_MESSAGE_COST 64
/* output on its way to a user; with one message beyond it below the server's share per stream */
#define STREAM_OUTPUT_WINDOW (192 * 1024)
/* input on its way to a command: far below STREAM_INPUT_MAX */
#define STREAM_INPUT_WINDOW (256 * 1024)
#define STREAM_CREDIT_MAX (INT64_C(1) << 30)

#endif

/* model/json_oracle.h: what jansson says about a text. In a file of its own, since jansson's names
 * and ours would meet. Tests only. */
#ifndef BERTH_MODEL_JSON_ORACLE_H
#define BERTH_MODEL_JSON_ORACLE_H

#include "base/str.h"

/* Strict reading (no duplicate keys, nothing behind the value). true: valid, and, if out is given,
 * the value is appended to it, compact with sorted keys. */
bool oracle_read(const char *text, size_t len, struct str *out);

#endif

/* model/rules.h: the limits of every field that a caller can set, in one table. validate.c checks
 * them, openapi.c publishes them, badinput.c breaks them. Private to model/.
 */
#ifndef BERTH_MODEL_RULES_H
#define BERTH_MODEL_RULES_H

#include "base/macros.h"

/* What a text may look like. */
enum rule_text {
        RULE_ANY,
        RULE_ID,        /* see id_is_valid() */
        RULE_LABEL_KEY, /* [prefix/]name as in Kubernetes */
        RULE_LABEL_VALUE,
        RULE_ENV_NAME,
        RULE_PATH,  /* absolute */
        RULE_TOKEN, /* printable ASCII without spaces */
        RULE_LINE,  /* no control characters */
        RULE_USER,
        RULE_PROTOCOL,
        RULE_ENDPOINT, /* host:port */
        RULE_SELECTOR,
        RULE_PHASE,       /* the name of a phase, any case */
        RULE_NODE_STATUS, /* the same for nodes */
        RULE_EVENT_TYPES, /* names, comma-separated */
        RULE_ID_PREFIX,   /* the beginning of an id */
        RULE_DURATION,    /* 10s, 5m, 1h30m */
        RULE_CONDITION,   /* see condition.h */
        RULE_URL,         /* http:// or https:// */
        RULE_CAPABILITY,  /* of Linux, without CAP_; or ALL */
};

/* Who may see what is stored there (redact.h). */
enum rule_hidden {
        RULE_FOR_ALL,
        RULE_FOR_OPERATORS, /* not for viewers */
        RULE_FOR_ADMINS,
};

struct rule {
        const char *message, *field; /* short name, field's name */
        int64_t min, max;            /* both 0: any value */
        uint32_t max_len;            /* of the text, or of each element or map value, in bytes */
        uint32_t max_items;          /* of arrays and maps */
        enum rule_text text;         /* of the text, or of each element or map value */
        enum rule_text key;          /* of map keys */
        bool required;               /* must be set (not zero, not empty) */
        bool server;                 /* belongs to the server: what a caller sends is dropped */
        /* a text, or a map of texts, of which others see the keys only */
        enum rule_hidden hidden;
};

#define RULE_TEXT_MAX 4096            /* texts without a limit of their own */
#define RULE_ITEMS_MAX 1024           /* arrays and maps likewise */
#define RULE_TIME_MAX 253402300799999 /* the last millisecond of the year 9999 */

/* The rule for a field; a default one if the table has no row. Never NULL, lives for ever. */
const struct rule *rule_find(const char *message, const char *field);
/* NULL if the text may stand there, else what it must look like ("must be ..."). */
const char *rule_text_check(enum rule_text kind, const char *s, size_t len);
/* An example that breaks the rule, for tests; NULL if nothing does. */
const char *rule_text_bad(enum rule_text kind);
/* A regular expression for the schema, or NULL. */
const char *rule_text_pattern(enum rule_text kind);

#endif

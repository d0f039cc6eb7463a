/* model/condition.c: see condition.h. */
#include "model/condition.h"
#include "base/str.h"
#include "model/json.h"
#include "records.pb-c.h"
#include <string.h>

enum value_kind { VALUE_PERCENT, VALUE_COUNT, VALUE_STATUS, VALUE_PHASE, VALUE_DURATION };

static const struct {
        const char *name;
        enum value_kind kind;
} figures[_FIGURE_MAX] = {
        [FIGURE_NODE_CPU] = { "node.cpu", VALUE_PERCENT },
        [FIGURE_NODE_MEMORY] = { "node.memory", VALUE_PERCENT },
        [FIGURE_NODE_DISK] = { "node.disk", VALUE_PERCENT },
        [FIGURE_NODE_CPU_RESERVED] = { "node.cpu_reserved", VALUE_PERCENT },
        [FIGURE_NODE_MEMORY_RESERVED] = { "node.memory_reserved", VALUE_PERCENT },
        [FIGURE_NODE_DISK_RESERVED] = { "node.disk_reserved", VALUE_PERCENT },
        [FIGURE_NODE_STATUS] = { "node.status", VALUE_STATUS },
        [FIGURE_NODE_UNITS] = { "node.units", VALUE_COUNT },
        [FIGURE_WORKLOAD_FAILURES] = { "workload.failures", VALUE_COUNT },
        [FIGURE_WORKLOAD_RESTARTS] = { "workload.restarts", VALUE_COUNT },
        [FIGURE_WORKLOAD_PHASE] = { "workload.phase", VALUE_PHASE },
        [FIGURE_WORKLOAD_PENDING] = { "workload.pending", VALUE_DURATION },
};
static const char *const compares[] = {
        [COMPARE_GT] = ">",  [COMPARE_GE] = ">=", [COMPARE_LT] = "<",
        [COMPARE_LE] = "<=", [COMPARE_EQ] = "==", [COMPARE_NE] = "!=",
};

const char *figure_name(enum figure f)
{
        return figures[f].name;
}

bool condition_compare(enum compare op, int64_t a, int64_t b)
{
        switch (op) {
        case COMPARE_GT:
                return a > b;
        case COMPARE_GE:
                return a >= b;
        case COMPARE_LT:
                return a < b;
        case COMPARE_LE:
                return a <= b;
        case COMPARE_EQ:
                return a == b;
        case COMPARE_NE:
                return a != b;
        }
        return false;
}

/* The next word: an operator, or everything up to a blank or an operator. "" at the end. false: too
 * long. */
static bool word(const char **at, char ret[64])
{
        const char *p = *at + strspn(*at, " \t");
        size_t n = strspn(p, "<>=!");
        if (n == 0)
                n = strcspn(p, " \t<>=!");
        if (n >= 64)
                return false;
        memcpy(ret, p, n);
        ret[n] = '\0';
        *at = p + n;
        return true;
}

static int bad(struct err *err, const char *what, const char *got)
{
        return err_set(
            err, ERR_INVALID,
            .msg = fmt("%s, got %s", what, *got ? fmt("'%.60s'", got) : "the end"),
            .hint = "conditions look like: node.cpu > 85% for 5m, or workload.failures >= 3");
}

static int parse_figure(const char *text, enum figure *ret, struct err *err)
{
        const char *names[_FIGURE_MAX + 1] = { 0 };
        for (int f = 0; f < _FIGURE_MAX; f++) {
                names[f] = figures[f].name;
                if (str_eq(text, figures[f].name)) {
                        *ret = (enum figure)f;
                        return 0;
                }
        }
        const char *near = str_suggest(text, names);
        return err_set(err, ERR_INVALID,
                       .msg = *text ? fmt("there is no figure '%.60s'", text)
                                    : "expected a figure such as node.cpu, got the end",
                       .hint = near ? fmt("did you mean %s?", near)
                                    : "figures: node.cpu, memory, disk (each also with _reserved), "
                                      "status, units; workload.failures, "
                                      "restarts, phase, pending");
}

static int parse_op(const char *text, const struct condition_term *t, enum compare *ret,
                    struct err *err)
{
        enum value_kind kind = figures[t->figure].kind;
        for (size_t i = 0; i < ARRAY_LEN(compares); i++)
                if (str_eq(text, compares[i])) {
                        *ret = (enum compare)i;
                        bool equality = *ret == COMPARE_EQ || *ret == COMPARE_NE;
                        if ((kind == VALUE_STATUS || kind == VALUE_PHASE) && !equality)
                                return bad(
                                    err,
                                    fmt("%s is compared with == or !=", figures[t->figure].name),
                                    text);
                        if (kind == VALUE_DURATION && *ret != COMPARE_GT && *ret != COMPARE_GE)
                                return bad(
                                    err,
                                    fmt("%s is compared with > or >=", figures[t->figure].name),
                                    text);
                        return 0;
                }
        return bad(err, "expected >, >=, <, <=, == or !=", text);
}

static int parse_percent(char *text, int64_t *ret)
{
        size_t n = strlen(text);
        if (n < 2 || text[n - 1] != '%')
                return -1;
        text[n - 1] = '\0';
        int r = strchr(text, 'm') ? -1 : str_parse_milli(text, ret);
        return r < 0 || *ret < 0 || *ret > 1000 * 1000 ? -1 : 0;
}

static int parse_value(char *text, struct condition_term *t, struct err *err)
{
        char given[64];
        int number = 0;
        memcpy(given, text, sizeof(given));
        switch (figures[t->figure].kind) {
        case VALUE_PERCENT:
                return parse_percent(text, &t->value) < 0
                           ? bad(err, "expected a percentage such as 85%", given)
                           : 0;
        case VALUE_COUNT:
                return str_parse_i64(text, &t->value) < 0 || t->value < 0
                           ? bad(err, "expected a count such as 3", given)
                           : 0;
        case VALUE_DURATION:
                return str_parse_duration_ms(text, &t->value) < 0
                           ? bad(err, "expected a duration such as 5m", given)
                           : 0;
        case VALUE_STATUS:
                if (json_enum_value(&pb__node_status__e__descriptor, text, true, &number) < 0)
                        return bad(err,
                                   fmt("expected one of %s",
                                       json_enum_list(&pb__node_status__e__descriptor)),
                                   given);
                break;
        case VALUE_PHASE:
                if (json_enum_value(&pb__phase__e__descriptor, text, true, &number) < 0)
                        return bad(
                            err,
                            fmt("expected one of %s", json_enum_list(&pb__phase__e__descriptor)),
                            given);
                break;
        }
        t->value = number;
        return 0;
}

static int parse_term(const char **at, struct condition *c, struct err *err)
{
        struct condition_term *t = &c->terms[c->n_terms];
        char text[64];
        int r;
        if (!word(at, text))
                return bad(err, "expected a figure such as node.cpu", *at);
        if ((r = parse_figure(text, &t->figure, err)) < 0)
                return r;
        if (!word(at, text))
                return bad(err, "expected a comparison", *at);
        if ((r = parse_op(text, t, &t->op, err)) < 0)
                return r;
        if (!word(at, text))
                return bad(err, "expected a value", *at);
        if ((r = parse_value(text, t, err)) < 0)
                return r;
        bool node = t->figure <= FIGURE_NODE_UNITS;
        if (c->n_terms && node != c->about_nodes)
                return bad(err, "a condition is about nodes or about workloads, not both",
                           figures[t->figure].name);
        c->about_nodes = node;
        c->n_terms++;
        return 0;
}

int condition_parse(const char *text, struct condition *ret, struct err *err)
{
        struct condition c = { 0 };
        const char *at = text;
        char next[64];
        if (strlen(text) > CONDITION_MAX_BYTES)
                return err_set(
                    err, ERR_INVALID,
                    .msg = fmt("the condition is longer than %d bytes", CONDITION_MAX_BYTES));
        for (;;) {
                if (c.n_terms == CONDITION_MAX_TERMS)
                        return err_set(err, ERR_INVALID,
                                       .msg = fmt("at most %d comparisons", CONDITION_MAX_TERMS));
                int r = parse_term(&at, &c, err);
                if (r < 0)
                        return r;
                if (!word(&at, next))
                        return bad(err, "expected 'and', 'for' or the end", at);
                if (!str_eq(next, "and"))
                        break;
        }
        if (str_eq(next, "for")) {
                if (!word(&at, next) || str_parse_duration_ms(next, &c.for_ms) < 0)
                        return bad(err, "expected a duration such as 5m after 'for'", next);
                if (!word(&at, next) || *next)
                        return bad(err, "expected the end after the duration", next);
        } else if (*next)
                return bad(err, "expected 'and', 'for' or the end", next);
        *ret = c;
        return 0;
}

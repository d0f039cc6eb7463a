/* model/selector.c: see selector.h. */
#include "model/selector.h"
#include "base/str.h"
#include "model/pb.h"
#include "model/rules.h"
#include <string.h>

struct parser {
        const char *start, *p;
        struct arena *arena;
        struct err *err;
};

static int fail(struct parser *s, const char *what)
{
        return err_set(
            s->err, ERR_INVALID,
            .msg = fmt("selector: %s at character %zu", what, (size_t)(s->p - s->start) + 1),
            .detail = fmt("\"%.200s\"", s->start),
            .hint = "examples: app=web,tier!=cache   zone in (a,b)   gpu   !gpu");
}

static void skip_space(struct parser *s)
{
        while (*s->p == ' ' || *s->p == '\t')
                s->p++;
}

static bool take(struct parser *s, const char *word)
{
        size_t n = strlen(word);

        if (strncmp(s->p, word, n) != 0)
                return false;
        s->p += n;
        return true;
}

/* A run of what keys and values are made of; "" if there is none. */
static const char *word(struct parser *s)
{
        size_t n = 0;

        skip_space(s);
        while (s->p[n] && !strchr(" \t,=!()", s->p[n]))
                n++;
        const char *w = arena_strndup(s->arena, s->p, n);
        s->p += n;
        skip_space(s);
        return w;
}

static int parse_value(struct parser *s, const char **ret)
{
        const char *before = s->p, *w = word(s);

        if (rule_text_check(RULE_LABEL_VALUE, w, strlen(w))) {
                s->p = before;
                return fail(s, "no valid label value");
        }
        *ret = w;
        return 0;
}

/* "(a, b)" */
static int parse_set(struct parser *s, struct selector_term *t)
{
        const char *values[SELECTOR_MAX_TERMS];

        skip_space(s);
        if (!take(s, "("))
                return fail(s, "expected '('");
        for (;;) {
                if (t->n_values == SELECTOR_MAX_TERMS)
                        return fail(s, "too many values");
                int rc = parse_value(s, &values[t->n_values]);
                if (rc < 0)
                        return rc;
                t->n_values++;
                if (take(s, ")"))
                        break;
                if (!take(s, ","))
                        return fail(s, "expected ',' or ')'");
        }
        t->values = arena_dup(s->arena, values, t->n_values * sizeof(values[0]));
        skip_space(s);
        return 0;
}

static int parse_one(struct parser *s, struct selector_term *t)
{
        t->values = arena_new(s->arena, const char *);
        t->n_values = 1;
        return parse_value(s, &t->values[0]);
}

static bool word_follows(struct parser *s, const char *w)
{
        size_t n = strlen(w);

        return strncmp(s->p, w, n) == 0 && (s->p[n] == ' ' || s->p[n] == '\t' || s->p[n] == '(') &&
               (s->p += n, true);
}

static int parse_term(struct parser *s, struct selector_term *t)
{
        const char *before;
        bool no;

        skip_space(s);
        no = take(s, "!");
        before = s->p;
        t->key = word(s);
        if (rule_text_check(RULE_LABEL_KEY, t->key, strlen(t->key))) {
                s->p = before;
                return fail(s, t->key[0] ? "no valid label key" : "expected a label key");
        }
        t->op = no ? SELECTOR_NOT_EXISTS : SELECTOR_EXISTS;
        if (no || *s->p == ',' || *s->p == '\0')
                return 0;
        if (take(s, "!=")) {
                t->op = SELECTOR_NOT_IN;
                return parse_one(s, t);
        }
        if (take(s, "==") || take(s, "=")) {
                t->op = SELECTOR_IN;
                return parse_one(s, t);
        }
        if (word_follows(s, "in")) {
                t->op = SELECTOR_IN;
                return parse_set(s, t);
        }
        if (word_follows(s, "notin")) {
                t->op = SELECTOR_NOT_IN;
                return parse_set(s, t);
        }
        return fail(s, "expected =, ==, !=, in, notin or ','");
}

int selector_parse(struct arena *arena, const char *text, struct selector *ret, struct err *err)
{
        struct parser s = {
                .start = text ? text : "", .p = text ? text : "", .arena = arena, .err = err
        };
        struct selector_term terms[SELECTOR_MAX_TERMS];
        size_t n = 0;

        if (strlen(s.p) > SELECTOR_MAX_BYTES)
                return err_set(err, ERR_INVALID, .msg = "selector: too long",
                               .detail = fmt("at most %d bytes", SELECTOR_MAX_BYTES));
        skip_space(&s);
        while (*s.p) {
                if (n == SELECTOR_MAX_TERMS)
                        return fail(&s, "too many terms");
                terms[n] = (struct selector_term){ 0 };
                int rc = parse_term(&s, &terms[n]);
                if (rc < 0)
                        return rc;
                n++;
                if (*s.p == '\0')
                        break;
                if (!take(&s, ","))
                        return fail(&s, "expected ','");
                skip_space(&s);
                if (*s.p == '\0')
                        return fail(&s, "expected a label key");
        }
        *ret = (struct selector){ .terms = n ? arena_dup(arena, terms, n * sizeof(terms[0])) : NULL,
                                  .n_terms = n };
        return 0;
}

bool selector_match(const struct selector *s, const void *entries, size_t n_entries)
{
        for (size_t i = 0; i < s->n_terms; i++) {
                const struct selector_term *t = &s->terms[i];
                const char *value = pb_map_get(entries, n_entries, t->key);
                bool among = false;

                for (size_t k = 0; value && k < t->n_values && !among; k++)
                        among = str_eq(value, t->values[k]);
                if ((t->op == SELECTOR_IN && !among) || (t->op == SELECTOR_NOT_IN && among) ||
                    (t->op == SELECTOR_EXISTS && !value) || (t->op == SELECTOR_NOT_EXISTS && value))
                        return false;
        }
        return true;
}

/* cli/facts.h: "Name:  value" lines, aligned, for describe, explain and cluster. */
#ifndef BERTH_CLI_FACTS_H
#define BERTH_CLI_FACTS_H

#include "cli/cli.h"

#define FACT_WIDTH 14

/* Nothing is printed for an empty value. */
static inline void fact(struct str *out, const char *name, const char *value)
{
        if (str_empty(value))
                return;
        str_addf(out, "%s:%*s", name, name[0] ? (int)(FACT_WIDTH - 1 - __builtin_strlen(name) % FACT_WIDTH) : 0, "");
        text_clean(out, value);
        str_addc(out, '\n');
}

static inline void section(struct str *out, const struct cli *cli, const char *title)
{
        str_addf(out, "\n%s%s%s\n", tint_on(&cli->out, TINT_BOLD), title, tint_off(&cli->out, TINT_BOLD));
}

#endif

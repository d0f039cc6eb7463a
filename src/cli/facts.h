/* cli/facts.h: "Name:  value" lines, aligned, for describe, explain and cluster. */
#ifndef BERTH_CLI_FACTS_H
#define BERTH_CLI_FACTS_H

#include "cli/cli.h"

#define FACT_WIDTH 14

/* Nothing is printed for an empty value. A line without a name goes on with the one above. Names
 * are shorter than the width by two. */
static inline void fact(struct str *out, const char *name, const char *value)
{
        if (str_empty(value))
                return;
        str_addf(out, "%-*s", FACT_WIDTH, name[0] ? fmt("%s:", name) : "");
        text_clean(out, value);
        str_addc(out, '\n');
}

static inline void section(struct str *out, const struct cli *cli, const char *title)
{
        str_addf(out, "\n%s%s%s\n", tint_on(&cli->out, TINT_BOLD), title,
                 tint_off(&cli->out, TINT_BOLD));
}

#endif

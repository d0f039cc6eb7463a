/* base/mutant.c: see mutant.h. Only part of a build with -Dmutant=any. */
#include "base/mutant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum mutant mutant_chosen;

/* Before main, so that no code of the program runs without it. */
__attribute__((constructor)) static void choose(void)
{
        static const char *const names[] = { "none",
#define X(name, what) #name,
                                             MUTANTS(X)
#undef X
        };
        const char *wanted = getenv("MUTANT");
        if (!wanted)
                return;
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
                if (strcmp(wanted, names[i]) == 0) {
                        mutant_chosen = (enum mutant)i;
                        return;
                }
        fprintf(stderr, "error: there is no mutant \"%s\"; src/base/mutant.h lists them\n", wanted);
        exit(2);
}

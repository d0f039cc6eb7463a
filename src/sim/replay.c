/* sim/replay.c: see replay.h. */
#include "sim/replay.h"
#include "base/mem.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MASK_MAX 1000000

static int by_number(const void *a, const void *b)
{
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
        return x < y ? -1 : x > y;
}

static int add_range(const char *word, uint32_t **list, size_t *n)
{
        char *end;
        errno = 0;
        unsigned long first = strtoul(word, &end, 10), last = first;
        if (end == word || errno)
                return -1;
        if (*end == '-') {
                const char *from = end + 1;
                last = strtoul(from, &end, 10);
                if (end == from || errno)
                        return -1;
        }
        if (*end || last < first || last > UINT32_MAX || last - first >= MASK_MAX ||
            *n + (last - first) >= MASK_MAX)
                return -1;
        *list = mem_must_resize(*list, (*n + last - first + 1) * sizeof(**list));
        for (unsigned long i = first; i <= last; i++)
                (*list)[(*n)++] = (uint32_t)i;
        return 0;
}

int replay_mask_parse(const char *text, uint32_t **list, size_t *n)
{
        char *copy = mem_strdup(text), *save = NULL;
        int r = 0;
        for (char *word = strtok_r(copy, ", ", &save); word && r == 0;
             word = strtok_r(NULL, ", ", &save))
                r = add_range(word, list, n);
        mem_free(copy);
        if (*n)
                qsort(*list, *n, sizeof(**list), by_number);
        return r;
}

void replay_mask_print(const uint32_t *list, size_t n, struct str *out)
{
        for (size_t i = 0; i < n;) {
                size_t last = i;
                while (last + 1 < n && list[last + 1] <= list[last] + 1)
                        last++;
                str_addf(out, "%s%u", i ? "," : "", list[i]);
                if (list[last] > list[i])
                        str_addf(out, "-%u", list[last]);
                i = last + 1;
        }
}

int replay_write(const char *path, const struct sim_options *opt, const char *what)
{
        FILE *f = fopen(path, "we");
        if (!f)
                return -1;
        struct str text = STR_INIT;
        sim_options_print(opt, &text);
        fprintf(f, "# %s\n", what);
        char *save = NULL;
        for (char *word = strtok_r(text.buf, " ", &save); word; word = strtok_r(NULL, " ", &save))
                fprintf(f, "%s%s", word[0] == '-' ? word + 2 : word, word[0] == '-' ? " " : "\n");
        str_clear(&text);
        replay_mask_print(opt->masked, opt->n_masked, &text);
        for (char *word = strtok_r(text.len ? text.buf : (char[1]){ 0 }, ",", &save); word;
             word = strtok_r(NULL, ",", &save))
                fprintf(f, "mask %s\n", word);
        str_fini(&text);
        return fclose(f) == 0 ? 0 : -1;
}

int replay_read(const char *path, struct sim_options *opt, uint32_t **ret_memory, struct err *err)
{
        FILE *f = fopen(path, "re");
        if (!f)
                return err_set(err, ERR_NOT_FOUND, .msg = "the replay file cannot be read",
                               .detail = fmt("%s: %s", path, strerror(errno)));
        char line[512];
        uint32_t *masked = NULL;
        size_t n = 0;
        int number = 0, r = 0;
        sim_options_default(opt);
        while (r == 0 && fgets(line, sizeof(line), f)) {
                number++;
                line[strcspn(line, "\r\n")] = 0;
                char *space = strchr(line, ' ');
                if (!line[0] || line[0] == '#')
                        continue;
                if (space)
                        *space++ = 0;
                if (!space || (strcmp(line, "mask") == 0 ? replay_mask_parse(space, &masked, &n)
                                                         : sim_options_set(opt, line, space)) < 0)
                        r = err_set(err, ERR_INVALID, .msg = "the replay file is not understood",
                                    .detail = fmt("%s, line %d", path, number));
        }
        fclose(f);
        if (r < 0) {
                mem_free(masked);
                return r;
        }
        opt->masked = masked;
        opt->n_masked = n;
        *ret_memory = masked;
        return 0;
}

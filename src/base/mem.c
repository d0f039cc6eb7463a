/* base/mem.c: see mem.h. */
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXIT_NO_MEMORY 6 /* as ERR_NOMEM: try again */

/* Without the heap, and past exit handlers: they may want memory as well. */
void mem_give_up(const char *who, size_t size)
{
        char text[256], need[64];

        snprintf(need, sizeof(need), size ? "%zu bytes more are needed" : "more is needed", size);
        int n = snprintf(text, sizeof(text),
                         "berth: out of memory: %s%s%s. Give it more (the machine, or the limit of "
                         "its service) and "
                         "start it again; nothing that was answered is lost\n",
                         need, who ? " by " : "", who ? who : "");

        if (n > 0) {
                size_t len = (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1;
                _unused_ ssize_t written = write(STDERR_FILENO, text, len);
        }
        _exit(EXIT_NO_MEMORY);
}

void *mem_must(size_t size)
{
        void *p = size <= PTRDIFF_MAX ? calloc(1, size ? size : 1) : NULL;

        if (!p)
                mem_give_up(NULL, size);
        return p;
}

void *mem_must_resize(void *p, size_t size)
{
        void *q = size <= PTRDIFF_MAX ? realloc(p, size ? size : 1) : NULL;

        if (!q)
                mem_give_up(NULL, size);
        return q;
}

void *mem_bytes(size_t size)
{
        return mem_must_resize(NULL, size);
}

char *mem_strdup(const char *s)
{
        return s ? mem_dup(s, strlen(s) + 1) : NULL;
}

char *mem_strndup(const char *s, size_t n)
{
        if (!s)
                return NULL;
        size_t len = strnlen(s, n);
        char *copy = mem_bytes(len + 1);
        memcpy(copy, s, len);
        copy[len] = '\0';
        return copy;
}

void *mem_dup(const void *p, size_t n)
{
        void *copy = mem_bytes(n);

        if (n > 0)
                memcpy(copy, p, n);
        return copy;
}

void mem_free(void *p)
{
        free(p);
}

/* agent/runtimes/lease_file.c: see lease_file.h. */
#include "agent/runtimes/lease_file.h"
#include "agent/runtimes/unit_files.h"
#include "base/file.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LEASE_MAX_BYTES 512

int lease_file_write(const char *path, const struct lease_file *lease, struct err *err)
{
        char text[LEASE_MAX_BYTES];
        int n =
            snprintf(text, sizeof(text), "boot_id=%s\nuntil_ms=%" PRIi64 "\nkill_ms=%" PRIi64 "\n",
                     proc_boot_id(), lease->until_ms, lease->kill_ms);

        return file_replace(path, text, (size_t)n, 0600, err);
}

struct lease_file lease_file_read(const char *path)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        struct lease_file lease = { 0 };
        char boot[BOOT_ID_LEN + 1] = "";
        struct err err;

        if (file_read(path, LEASE_MAX_BYTES, &text, &err) < 0 ||
            sscanf(str_c(&text), "boot_id=%36s\nuntil_ms=%" SCNi64 "\nkill_ms=%" SCNi64, boot,
                   &lease.until_ms, &lease.kill_ms) != 3 ||
            strcmp(boot, proc_boot_id()) != 0 || lease.kill_ms < lease.until_ms)
                return (struct lease_file){ 0 };
        return lease;
}

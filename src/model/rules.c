/* model/rules.c: see rules.h. */
#include "model/rules.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "events.pb-c.h"
#include "model/condition.h"
#include "model/config.h"
#include "model/json.h"
#include "model/powers.h"
#include "model/selector.h"
#include "model/validate.h"
#include <string.h>

#define LABELS .max_items = 64, .max_len = 63, .key = RULE_LABEL_KEY, .text = RULE_LABEL_VALUE
#define CPU_MAX 1000000000        /* a million cores, in thousandths */
#define MEMORY_MB_MAX (1ll << 40) /* so that bytes stay below 2^60 */
#define DISK_GB_MAX (1ll << 30)
#define ARG_MAX_BYTES 131071 /* what Linux takes as one argument */

static const struct rule rules[] = {
        /* what users give */
        { "Workload", "id", .text = RULE_ID, .max_len = 128, .required = true },
        { "Workload", "revision_id", .text = RULE_TOKEN, .max_len = 128 },
        { "Workload", "assigned_node", .server = true },
        { "Workload", "status", .server = true },
        { "Workload", "metadata", .server = true },
        { "Workload", "placement", .server = true },
        { "Workload", "token", .server = true },
        { "Workload", "labels", LABELS },
        { "Workload", "node_selector", LABELS },
        { "Workload", "ttl_seconds", .min = 0, .max = INT32_MAX },
        { "Workload", "stop_grace_seconds", .min = 0, .max = 86400 },
        { "Workload", "tenant", .text = RULE_ID, .max_len = 63 },
        { "Workload", "confine", .server = true },
        { "Workload", "told_version", .server = true },
        { "Workload", "default_resources", .server = true },
        { "Workload", "priority", .min = -1000000, .max = 1000000 },
        { "Workload", "tolerations", .max_items = 32 },
        { "Workload", "spread", .max_items = 8 },
        { "Workload", "affinity", .max_items = 8 },
        { "Workload", "anti_affinity", .max_items = 8 },
        { "Workload", "annotations", .max_items = 64, .max_len = 4096, .key = RULE_LABEL_KEY },
        { "Taint", "key", .text = RULE_LABEL_KEY, .max_len = 317, .required = true },
        { "Taint", "value", .text = RULE_LABEL_VALUE, .max_len = 63 },
        { "Taint", "effect", .required = true },
        { "Toleration", "key", .text = RULE_TOKEN, .max_len = 317, .required = true },
        { "Toleration", "value", .text = RULE_LABEL_VALUE, .max_len = 63 },
        { "Affinity", "match", LABELS, .required = true },
        { "Affinity", "over", .text = RULE_TOKEN, .max_len = 317 },
        { "Affinity", "weight", .min = 0, .max = 1000 },
        { "Spread", "match", LABELS },
        { "Spread", "over", .text = RULE_LABEL_KEY, .max_len = 317, .required = true },
        { "Spread", "max_skew", .min = 0, .max = 1000000 },
        { "Health", "port", .min = 0, .max = 65535 },
        { "Health", "path", .text = RULE_PATH, .max_len = 1024 },
        { "Health", "command", .max_items = 64, .max_len = 4096 },
        { "Health", "interval_seconds", .min = 0, .max = 86400 },
        { "Health", "timeout_seconds", .min = 0, .max = 3600 },
        { "Health", "failures", .min = 0, .max = 1000 },
        { "Health", "start_seconds", .min = 0, .max = 86400 },
        { "Spec", "args", .max_items = 1024, .max_len = ARG_MAX_BYTES },
        { "Spec", "pod", .max_len = WORKLOAD_SPEC_MAX_BYTES, .hidden = RULE_FOR_OPERATORS },
        { "Spec", "network", .text = RULE_TOKEN, .max_len = 64 },
        { "Spec", "managed_volumes", .max_items = 64 },
        { "Spec", "capabilities", .text = RULE_CAPABILITY, .max_items = 64, .max_len = 32 },
        { "Policy", "tenant", .text = RULE_ID, .max_len = 63 },
        { "Policy", "capabilities", .text = RULE_CAPABILITY, .max_items = 64, .max_len = 32 },
        { "Policy", "host_paths", .text = RULE_PATH, .max_items = 256, .max_len = 4095 },
        { "Vm", "vcpus", .min = 0, .max = 4096 },
        { "Vm", "memory_mb", .min = 0, .max = MEMORY_MB_MAX },
        { "Vm", "disks", .max_items = 64 },
        { "Vm", "networks", .max_items = 64 },
        { "Vm", "os_image", .max_len = 512 },
        { "VmDisk", "pool_name", .max_len = 256 },
        { "VmDisk", "size_gb", .min = 0, .max = DISK_GB_MAX },
        { "VmDisk", "mount_point", .max_len = 256 },
        { "VmNetwork", "bridge", .max_len = 256 },
        { "VmNetwork", "static_ip", .max_len = 64 },
        { "ManagedVolume", "name", .text = RULE_ID, .max_len = 128, .required = true },
        { "ManagedVolume", "driver", .max_len = 64 },
        { "ManagedVolume", "size_gb", .min = 0, .max = DISK_GB_MAX },
        { "ManagedVolume", "access_mode", .max_len = 64 },
        { "ManagedVolume", "fs_type", .max_len = 64 },
        { "ManagedVolume", "mount_path", .text = RULE_PATH, .max_len = 4095 },
        { "ManagedVolume", "retain_policy", .max_len = 32 },
        { "Spec", "command", .max_items = 1024, .max_len = ARG_MAX_BYTES },
        { "Spec", "env", .max_items = 1024, .max_len = ARG_MAX_BYTES, .key = RULE_ENV_NAME,
          .hidden = RULE_FOR_OPERATORS },
        { "Spec", "workdir", .text = RULE_PATH, .max_len = 4095 },
        { "Spec", "user", .text = RULE_USER, .max_len = 32 },
        { "Spec", "image", .text = RULE_TOKEN, .max_len = 512 },
        { "Spec", "ports", .max_items = 256 },
        { "Spec", "volumes", .max_items = 256 },
        { "Spec", "compose", .max_len = WORKLOAD_SPEC_MAX_BYTES, .hidden = RULE_FOR_OPERATORS },
        { "Spec", "max_open_files", .min = 0, .max = 1 << 30 },
        { "Spec", "max_processes", .min = 0, .max = 1 << 22 },
        { "Spec", "log_max_kb", .min = 0, .max = 10 * 1024 * 1024 },
        { "CloudInit", "user_data", .hidden = RULE_FOR_OPERATORS },
        { "CloudInit", "meta_data", .hidden = RULE_FOR_OPERATORS },
        { "CloudInit", "network_config", .hidden = RULE_FOR_OPERATORS },
        { "CloudInit", "vendor_data", .hidden = RULE_FOR_OPERATORS },
        { "Port", "host_port", .min = 1, .max = 65535 },
        { "Port", "container_port", .min = 1, .max = 65535, .required = true },
        { "Port", "protocol", .text = RULE_PROTOCOL, .max_len = 8 },
        { "VolumeMount", "host_path", .text = RULE_PATH, .max_len = 4095, .required = true },
        { "VolumeMount", "container_path", .text = RULE_PATH, .max_len = 4095, .required = true },
        { "Resources", "cpu", .min = 0, .max = CPU_MAX },
        { "Resources", "memory_mb", .min = 0, .max = MEMORY_MB_MAX },
        { "Resources", "disk_gb", .min = 0, .max = DISK_GB_MAX },
        { "Retry", "attempts", .server = true },
        { "Retry", "next_retry_at", .server = true },
        { "Retry", "max_attempts", .min = 0, .max = INT32_MAX },
        { "Retry", "base_seconds", .min = 0, .max = 86400 },
        { "Retry", "cap_seconds", .min = 0, .max = 604800 },

        /* requests */
        { "ApplyWorkloadRequest", "workload", .required = true },
        { "ApplyWorkloadsRequest", "items", .max_items = APPLY_ITEMS_MAX, .required = true },
        { "WorkloadRef", "id", .text = RULE_ID, .max_len = 128, .required = true },
        { "NodeRef", "id", .text = RULE_ID, .max_len = 128, .required = true },
        { "SetDesiredRequest", "id", .text = RULE_ID, .max_len = 128, .required = true },
        { "SetDesiredRequest", "desired_state", .required = true },
        { "SetNodeWishRequest", "id", .text = RULE_ID, .max_len = 128, .required = true },
        { "SetNodeWishRequest", "wish", .required = true },
        { "SetNodeWishRequest", "deadline_seconds", .min = 0, .max = 604800 },
        { "SetTaintsRequest", "id", .text = RULE_ID, .max_len = 128, .required = true },
        { "SetTaintsRequest", "taints", .max_items = 32 },
        { "SetNodeLabelsRequest", "id", .text = RULE_ID, .max_len = 128, .required = true },
        { "SetNodeLabelsRequest", "labels", LABELS },
        { "SetNodeCapacityRequest", "id", .text = RULE_ID, .max_len = 128, .required = true },
        { "AdoptRequest", "id", .text = RULE_ID, .max_len = 128, .required = true },
        { "AdoptRequest", "workload_ids", .text = RULE_ID, .max_items = 1000, .max_len = 128 },
        { "TenantRef", "tenant", .text = RULE_ID, .max_len = 63, .required = true },
        { "SetQuotaRequest", "quota", .required = true },
        { "Quota", "tenant", .text = RULE_ID, .max_len = 63, .required = true },
        { "Quota", "workloads", .min = 0, .max = 1ll << 40 },
        { "Quota", "writes_per_minute", .min = 0, .max = 100000000 },
        { "Quota", "usage", .server = true },
        { "ListQuotasRequest", "limit", .min = 0, .max = LIST_LIMIT_MAX },
        { "ListQuotasRequest", "cursor", .text = RULE_TOKEN, .max_len = 512 },
        { "CreateTokenRequest", "name", .text = RULE_ID, .max_len = 63, .required = true },
        { "CreateTokenRequest", "role", .required = true },
        { "CreateTokenRequest", "ttl_seconds", .min = 0, .max = 10 * 365 * 86400ll },
        { "CreateTokenRequest", "node_id", .text = RULE_ID, .max_len = 128 },
        { "CreateTokenRequest", "labels", LABELS },
        { "CreateTokenRequest", "taints", .max_items = 32 },
        { "CreateTokenRequest", "hash", .server = true },
        { "CreateTokenRequest", "if_no_admin", .server = true },
        { "JoinRequest", "secret", .text = RULE_TOKEN, .max_len = 256, .required = true },
        { "JoinRequest", "node_id", .text = RULE_ID, .max_len = 128, .required = true },
        { "JoinRequest", "request", .max_len = 16384, .required = true },
        { "RenewRequest", "node_id", .text = RULE_ID, .max_len = 128, .required = true },
        { "RenewRequest", "request", .max_len = 16384, .required = true },
        { "TokenRef", "name", .text = RULE_ID, .max_len = 63, .required = true },
        { "ListTokensRequest", "limit", .min = 0, .max = LIST_LIMIT_MAX },
        { "ListTokensRequest", "cursor", .text = RULE_TOKEN, .max_len = 512 },
        { "PlanRequest", "apply", .max_items = 1000 },
        { "PlanRequest", "remove", .text = RULE_ID, .max_items = 1000, .max_len = 128 },
        { "PlanRequest", "drain_node", .text = RULE_ID, .max_len = 128 },
        { "PlanRequest", "lose_nodes", .text = RULE_ID, .max_items = 1000, .max_len = 128 },
        { "PlanRequest", "add_nodes_like", .text = RULE_ID, .max_len = 128 },
        { "PlanRequest", "add_nodes", .min = 0, .max = 10000 },
        { "ListWorkloadsRequest", "limit", .min = 0, .max = LIST_LIMIT_MAX },
        { "ListWorkloadsRequest", "cursor", .text = RULE_TOKEN, .max_len = 512 },
        { "ListWorkloadsRequest", "selector", .text = RULE_SELECTOR,
          .max_len = SELECTOR_MAX_BYTES },
        { "ListWorkloadsRequest", "status", .text = RULE_PHASE, .max_len = 64 },
        { "ListWorkloadsRequest", "node", .text = RULE_ID, .max_len = 128 },
        { "ListWorkloadsRequest", "prefix", .text = RULE_ID_PREFIX, .max_len = 128 },
        { "ListNodesRequest", "limit", .min = 0, .max = LIST_LIMIT_MAX },
        { "ListNodesRequest", "cursor", .text = RULE_TOKEN, .max_len = 512 },
        { "ListNodesRequest", "selector", .text = RULE_SELECTOR, .max_len = SELECTOR_MAX_BYTES },
        { "ListNodesRequest", "status", .text = RULE_NODE_STATUS, .max_len = 64 },
        { "ListNodesRequest", "prefix", .text = RULE_ID_PREFIX, .max_len = 128 },
        { "ListEventsRequest", "limit", .min = 0, .max = LIST_LIMIT_MAX },
        { "ListEventsRequest", "type", .text = RULE_EVENT_TYPES, .max_len = 2048 },
        { "ListEventsRequest", "workload", .text = RULE_ID, .max_len = 128 },
        { "ListEventsRequest", "node", .text = RULE_ID, .max_len = 128 },
        { "LogsRequest", "id", .text = RULE_ID, .max_len = 128, .required = true },
        { "LogsRequest", "tail_lines", .min = 0, .max = 1000000 },
        { "ExecStart", "id", .text = RULE_ID, .max_len = 128, .required = true },
        { "ExecStart", "command", .max_items = 1024, .max_len = ARG_MAX_BYTES, .required = true },
        { "ExecStart", "rows", .min = 0, .max = 10000 },
        { "ExecStart", "cols", .min = 0, .max = 10000 },
        { "ExecInput", "data", .max_len = 1024 * 1024 },
        { "ExecInput", "rows", .min = 0, .max = 10000 },
        { "ExecInput", "cols", .min = 0, .max = 10000 },

        /* what is stored and shown, and not to all (redact.h) */
        { "AccessToken", "hash", .hidden = RULE_FOR_ADMINS },
        { "Outgoing", "url", .hidden = RULE_FOR_OPERATORS },
        { "Event", "command", .hidden = RULE_FOR_OPERATORS },

        /* the configuration */
        { "ServerConfig", "heartbeat", .text = RULE_DURATION, .max_len = 32 },
        { "ServerConfig", "silence", .min = 0, .max = 1000 },
        { "ServerConfig", "grace", .text = RULE_DURATION, .max_len = 32 },
        { "ServerConfig", "launch_grace", .text = RULE_DURATION, .max_len = 32 },
        { "ServerConfig", "pass", .text = RULE_DURATION, .max_len = 32 },
        { "ServerConfig", "fresh", .text = RULE_DURATION, .max_len = 32 },
        { "ServerConfig", "healthy", .text = RULE_DURATION, .max_len = 32 },
        { "ServerConfig", "brake_percent", .min = 0, .max = 100 },
        { "ServerConfig", "evict_per_second", .min = 0, .max = 1000000 },
        { "ServerConfig", "lease", .text = RULE_DURATION, .max_len = 32 },
        { "ServerConfig", "lease_grace", .text = RULE_DURATION, .max_len = 32 },
        { "ServerConfig", "request_timeout", .text = RULE_DURATION, .max_len = 32 },
        { "ServerConfig", "shutdown_timeout", .text = RULE_DURATION, .max_len = 32 },
        { "ServerConfig", "max_nodes", .min = 0, .max = 1000000 },
        { "ServerConfig", "max_workloads", .min = 0, .max = 10000000 },
        { "ServerConfig", "agent_networks", .text = RULE_TOKEN, .max_items = 256, .max_len = 64 },
        { "ServerConfig", "allowed_hosts", .text = RULE_TOKEN, .max_items = 256, .max_len = 253 },
        { "ServerConfig", "operator_labels", .text = RULE_TOKEN, .max_items = 256, .max_len = 317 },
        { "EventKeep", "age", .text = RULE_DURATION, .max_len = 32 },
        { "Signing", "cfssl", .text = RULE_URL, .max_len = 1024 },
        { "Signing", "valid", .text = RULE_DURATION, .max_len = 32 },
        { "ServerConfig", "http", .text = RULE_TOKEN, .max_len = 300 },
        { "ServerConfig", "grpc", .text = RULE_TOKEN, .max_len = 300 },
        { "AutomationRule", "name", .text = RULE_ID, .max_len = 63, .required = true },
        { "AutomationRule", "when", .text = RULE_CONDITION, .max_len = 512, .required = true },
        { "AutomationRule", "selector", .text = RULE_SELECTOR, .max_len = SELECTOR_MAX_BYTES },
        { "AutomationRule", "webhook", .max_len = 63 },
        { "AutomationRule", "cooldown", .text = RULE_DURATION, .max_len = 32 },
        { "AutomationRule", "message", .text = RULE_LINE, .max_len = 512 },
        { "Webhook", "name", .text = RULE_ID, .max_len = 63, .required = true },
        { "Webhook", "url", .text = RULE_URL, .max_len = 2048, .required = true },
        { "Webhook", "secret", .max_len = 1024 },
        { "Webhook", "secret_file", .max_len = 4095 },
        { "Webhook", "ca_file", .max_len = 4095 },
        { "Webhook", "timeout", .text = RULE_DURATION, .max_len = 32 },
        { "ListEventsRequest", "rule", .text = RULE_ID_PREFIX, .max_len = 63 },
        { "ListAlertsRequest", "limit", .min = 0, .max = LIST_LIMIT_MAX },
        { "ListAlertsRequest", "cursor", .text = RULE_TOKEN, .max_len = 512 },
        { "ListAlertsRequest", "rule", .text = RULE_ID_PREFIX, .max_len = 63 },

        /* agents */
        { "Hello", "node_id", .text = RULE_ID, .max_len = 128, .required = true },
        { "Hello", "cluster_id", .text = RULE_TOKEN, .max_len = 64 },
        { "Hello", "cpu", .min = 1, .max = CPU_MAX, .required = true },
        { "Hello", "memory_mb", .min = 1, .max = MEMORY_MB_MAX, .required = true },
        { "Hello", "disk_gb", .min = 0, .max = DISK_GB_MAX },
        { "Hello", "supported_workload_types", .max_items = 16, .required = true },
        { "Hello", "exclusive_types", .max_items = 16 },
        { "Hello", "labels", LABELS },
        { "Hello", "agent_version", .text = RULE_TOKEN, .max_len = 64 },
        { "Hello", "instance", .text = RULE_TOKEN, .max_len = 64 },
        { "Hello", "agent_endpoint", .text = RULE_ENDPOINT, .max_len = 300 },
        { "Hello", "units", .max_items = HELLO_UNITS_MAX },
        { "Hello", "key", .max_len = 64 },
        { "Hello", "token", .max_len = 64 },
        { "Hello", "protocol", .min = 0, .max = 1000 },
        { "StreamCredit", "bytes", .min = 0, .max = INT64_C(1) << 30 },
        { "NodeUsage", "cpu_used", .min = 0, .max = CPU_MAX },
        { "NodeUsage", "memory_used_mb", .min = 0, .max = MEMORY_MB_MAX },
        { "NodeUsage", "disk_used_gb", .min = 0, .max = DISK_GB_MAX },
        { "Heartbeat", "clock_ms", .min = 0, .max = INT64_MAX / 2 },
        { "Heartbeat", "units_count", .min = 0, .max = HELLO_UNITS_MAX },
        { "UnitReport", "units", .max_items = HELLO_UNITS_MAX },
        { "UnitStatus", "workload_id", .text = RULE_ID, .max_len = 128, .required = true },
        { "UnitStatus", "revision_id", .text = RULE_TOKEN, .max_len = 128 },
        { "UnitStatus", "state", .required = true },
        { "UnitStatus", "message", .max_len = 16384 },
        { "LogChunk", "data", .max_len = 1024 * 1024 },
        { "ExecOutput", "data", .max_len = 1024 * 1024 },
};

static const struct rule default_rule = { .text = RULE_ANY };

const struct rule *rule_find(const char *message, const char *field)
{
        for (size_t i = 0; i < ARRAY_LEN(rules); i++)
                if (str_eq(rules[i].message, message) && str_eq(rules[i].field, field))
                        return &rules[i];
        return &default_rule;
}

/* ---- texts ---- */

static bool is_alnum(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool all_of(const char *s, size_t len, const char *others)
{
        for (size_t i = 0; i < len; i++)
                if (!is_alnum(s[i]) && (s[i] == '\0' || !strchr(others, s[i])))
                        return false;
        return true;
}

bool id_is_valid(const char *id)
{
        size_t len = id ? strnlen(id, 129) : 0;

        return len >= 1 && len <= 128 && is_alnum(id[0]) && all_of(id, len, "._-") &&
               !strstr(id, "..");
}

/* 1..63, letters, digits, "-_." inside. */
static bool is_label_name(const char *s, size_t len)
{
        return len >= 1 && len <= 63 && is_alnum(s[0]) && is_alnum(s[len - 1]) &&
               all_of(s, len, "-_.");
}

/* Parts of letters, digits and '-' between dots, 253 at most. */
static bool is_dns_name(const char *s, size_t len)
{
        if (len < 1 || len > 253)
                return false;
        for (size_t from = 0, i = 0; i <= len; i++) {
                if (i < len && s[i] != '.') {
                        if (!is_alnum(s[i]) && s[i] != '-')
                                return false;
                        continue;
                }
                if (i == from || i - from > 63 || s[from] == '-' || s[i - 1] == '-')
                        return false;
                from = i + 1;
        }
        return true;
}

static bool is_label_key(const char *s, size_t len)
{
        const char *slash = memchr(s, '/', len);

        if (!slash)
                return is_label_name(s, len);
        size_t prefix = (size_t)(slash - s);
        return is_dns_name(s, prefix) && is_label_name(slash + 1, len - prefix - 1);
}

static bool is_endpoint(const char *s, size_t len)
{
        const char *colon = memrchr(s, ':', len);
        uint64_t port;
        size_t host;

        if (!colon || str_parse_u64(colon + 1, &port) < 0 || port < 1 || port > 65535)
                return false;
        host = (size_t)(colon - s);
        if (host >= 4 && s[0] == '[' && s[host - 1] == ']') {
                for (size_t i = 1; i < host - 1; i++)
                        if (!strchr("0123456789abcdefABCDEF:.%", s[i]))
                                return false;
                return true;
        }
        return is_dns_name(s, host);
}

static bool is_printable(const char *s, size_t len)
{
        for (size_t i = 0; i < len; i++)
                if (s[i] <= 0x20 || s[i] >= 0x7f)
                        return false;
        return true;
}

static bool is_line(const char *s, size_t len)
{
        for (size_t i = 0; i < len; i++)
                if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
                        return false;
        return true;
}

static bool is_event_types(const char *s)
{
        char name[64];
        int value;

        while (*s) {
                size_t n = strcspn(s, ",");
                if (n == 0 || n >= sizeof(name))
                        return false;
                memcpy(name, s, n);
                name[n] = '\0';
                if (json_enum_value(&pb__event_type__e__descriptor, name, true, &value) < 0)
                        return false;
                s += n;
                if (*s == ',' && *++s == '\0')
                        return false;
        }
        return true;
}

/* The kernel's numbers end there, and the last one means "nobody": a larger one must not wrap
 * around to somebody. */
static const char *check_user(const char *s, size_t len)
{
        uint64_t number;

        if (len == 0)
                return NULL;
        if (!(is_alnum(s[0]) || s[0] == '_') || !all_of(s, len, "._-$"))
                return "must be a user's name or number";
        if (strspn(s, "0123456789") == len &&
            (str_parse_u64(s, &number) < 0 || number >= UINT32_MAX))
                return "a user's number is at most 4294967294";
        return NULL;
}

static const char *check_selector(const char *s)
{
        struct arena arena = ARENA_INIT;
        struct selector ignored;
        struct err err = { 0 };
        const char *what = NULL;

        if (selector_parse(&arena, s, &ignored, &err) < 0)
                what = fmt("must be a label selector: %s", err.msg);
        arena_fini(&arena);
        return what;
}

static const char *check_condition(const char *s)
{
        struct condition ignored;
        struct err err = { 0 };

        return condition_parse(s, &ignored, &err) < 0
                   ? fmt("is no condition: %s (%s)", err.msg, err.hint)
                   : NULL;
}

static const char *check_url(const char *s)
{
        struct arena arena = ARENA_INIT;
        struct url ignored;
        struct err err = { 0 };
        const char *what = url_parse(&arena, s, &ignored, &err) < 0 ? fmt("%s", err.msg) : NULL;

        arena_fini(&arena);
        return what;
}

/* s ends in a NUL. */
const char *rule_text_check(enum rule_text kind, const char *s, size_t len)
{
        int ignored;

        switch (kind) {
        case RULE_ANY:
                return NULL;
        case RULE_ID:
                return id_is_valid(s) ? NULL
                                      : "must be 1 to 128 letters, digits, '.', '_' or '-', "
                                        "beginning with a letter or digit, without \"..\"";
        case RULE_ID_PREFIX:
                return len <= 128 && all_of(s, len, "._-")
                           ? NULL
                           : "must be the beginning of an id: letters, digits, '.', '_' or '-'";
        case RULE_LABEL_KEY:
                return is_label_key(s, len) ? NULL
                                            : "a label's key must be 1 to 63 letters, digits, '-', "
                                              "'_' or '.', with an optional prefix/";
        case RULE_LABEL_VALUE:
                return len == 0 || is_label_name(s, len)
                           ? NULL
                           : "must be at most 63 letters, digits, '-', '_' or '.', beginning and "
                             "ending with a letter or digit";
        case RULE_ENV_NAME:
                return len >= 1 && len <= 256 && !(s[0] >= '0' && s[0] <= '9') &&
                               all_of(s, len, "_-.")
                           ? NULL
                           : "a variable's name must be letters, digits, '_', '-' or '.', not "
                             "beginning with a digit";
        case RULE_PATH:
                return len == 0 || (s[0] == '/' && is_line(s, len)) ? NULL
                                                                    : "must be an absolute path";
        case RULE_TOKEN:
                return is_printable(s, len) ? NULL : "must be printable characters without spaces";
        case RULE_LINE:
                return is_line(s, len) ? NULL : "must be one line without control characters";
        case RULE_USER:
                return check_user(s, len);
        case RULE_CAPABILITY:
                return str_eq(s, "ALL") || capability_number(s) >= 0
                           ? NULL
                           : "must be the name of a capability without CAP_: NET_ADMIN";
        case RULE_PROTOCOL:
                return len == 0 || str_eq(s, "tcp") || str_eq(s, "udp") || str_eq(s, "sctp")
                           ? NULL
                           : "must be tcp, udp or sctp";
        case RULE_ENDPOINT:
                return len == 0 || is_endpoint(s, len) ? NULL : "must be host:port";
        case RULE_SELECTOR:
                return check_selector(s);
        case RULE_PHASE:
                return len == 0 ||
                               json_enum_value(&pb__phase__e__descriptor, s, true, &ignored) == 0
                           ? NULL
                           : fmt("must be one of %s", json_enum_list(&pb__phase__e__descriptor));
        case RULE_NODE_STATUS:
                return len == 0 || json_enum_value(&pb__node_status__e__descriptor, s, true,
                                                   &ignored) == 0
                           ? NULL
                           : fmt("must be one of %s",
                                 json_enum_list(&pb__node_status__e__descriptor));
        case RULE_DURATION:
                return len == 0 || str_parse_duration_ms(s, &(int64_t){ 0 }) == 0
                           ? NULL
                           : "must be a duration such as 10s, 5m or 1h30m";
        case RULE_CONDITION:
                return check_condition(s);
        case RULE_URL:
                return check_url(s);
        case RULE_EVENT_TYPES:
                return is_event_types(s)
                           ? NULL
                           : "must be types of events, such as WorkloadFailed,NodeLost";
        }
        return NULL;
}

const char *rule_text_bad(enum rule_text kind)
{
        switch (kind) {
        case RULE_ANY:
                return NULL;
        case RULE_ID:
                return "../etc/passwd";
        case RULE_ID_PREFIX:
                return "a/b";
        case RULE_LABEL_KEY:
                return "no spaces";
        case RULE_LABEL_VALUE:
                return "-begins with a dash";
        case RULE_ENV_NAME:
                return "1=2";
        case RULE_PATH:
                return "relative/path";
        case RULE_TOKEN:
                return "two words";
        case RULE_LINE:
                return "two\nlines";
        case RULE_USER:
                return "a user";
        case RULE_CAPABILITY:
                return "FLY";
        case RULE_PROTOCOL:
                return "carrier-pigeon";
        case RULE_ENDPOINT:
                return "no-port";
        case RULE_SELECTOR:
                return "a=b,,in (";
        case RULE_PHASE:
        case RULE_NODE_STATUS:
                return "Sleeping";
        case RULE_DURATION:
                return "soon";
        case RULE_CONDITION:
                return "node.cpu is high";
        case RULE_URL:
                return "ftp://example.org";
        case RULE_EVENT_TYPES:
                return "WorkloadFailed,Nothing";
        }
        return NULL;
}

const char *rule_text_pattern(enum rule_text kind)
{
        switch (kind) {
        case RULE_ID:
                return "^[A-Za-z0-9](\\.?[A-Za-z0-9_-])*\\.?$";
        case RULE_ID_PREFIX:
                return "^[A-Za-z0-9._-]*$";
        case RULE_LABEL_VALUE:
                return "^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$";
        case RULE_PATH:
                return "^(/.*)?$";
        case RULE_TOKEN:
                return "^[!-~]*$";
        case RULE_CAPABILITY:
                return "^[A-Z_]+$";
        case RULE_PROTOCOL:
                return "^(tcp|udp|sctp)?$";
        default:
                return NULL;
        }
}

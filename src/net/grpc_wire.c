/* net/grpc_wire.c: see grpc_wire.h. */
#include "net/grpc_wire.h"
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <string.h>

static const char *const status_names[_GRPC_STATUS_MAX] = {
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
};

const char *grpc_status_name(enum grpc_status status)
{
        return (unsigned)status < _GRPC_STATUS_MAX ? status_names[status] : "UNKNOWN";
}

void grpc_percent_encode(struct str *out, const char *text, size_t len)
{
        static const char hex[] = "0123456789ABCDEF";

        for (size_t i = 0; i < len; i++) {
                unsigned char c = (unsigned char)text[i];
                if (c >= 0x20 && c <= 0x7e && c != '%')
                        str_addc(out, (char)c);
                else
                        str_add(out, (const char[]){ '%', hex[c >> 4], hex[c & 15] }, 3);
        }
}

static int hex_value(char c)
{
        if (c >= '0' && c <= '9')
                return c - '0';
        if (c >= 'a' && c <= 'f')
                return c - 'a' + 10;
        if (c >= 'A' && c <= 'F')
                return c - 'A' + 10;
        return -1;
}

void grpc_percent_decode(struct str *out, const char *text, size_t len)
{
        size_t start = out->len;

        for (size_t i = 0; i < len; i++) {
                int hi = -1, lo = -1;
                if (text[i] == '%' && i + 2 < len && (hi = hex_value(text[i + 1])) >= 0 &&
                    (lo = hex_value(text[i + 2])) >= 0) {
                        str_addc(out, (char)(hi << 4 | lo));
                        i += 2;
                } else
                        str_addc(out, text[i]);
        }
        if (out->len > start && !str_is_utf8(out->buf + start, out->len - start))
                for (size_t i = start; i < out->len; i++)
                        if ((unsigned char)out->buf[i] >= 0x80 || out->buf[i] == 0)
                                out->buf[i] = '?';
}

void grpc_base64_encode(struct str *out, const void *data, size_t len)
{
        static const char digits[] =
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        const unsigned char *p = data;

        str_reserve(out, len / 3 * 4 + 4);
        for (size_t i = 0; i < len; i += 3) {
                size_t n = len - i < 3 ? len - i : 3;
                uint32_t v = (uint32_t)p[i] << 16 | (n > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                             (n > 2 ? p[i + 2] : 0u);
                const char quad[4] = { digits[v >> 18], digits[v >> 12 & 63], digits[v >> 6 & 63],
                                       digits[v & 63] };
                str_add(out, quad, n + 1);
        }
}

static int base64_value(char c)
{
        if (c >= 'A' && c <= 'Z')
                return c - 'A';
        if (c >= 'a' && c <= 'z')
                return c - 'a' + 26;
        if (c >= '0' && c <= '9')
                return c - '0' + 52;
        return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int grpc_base64_decode(struct str *out, const char *text, size_t len)
{
        size_t start = out->len;
        uint32_t acc = 0;
        unsigned bits = 0;

        for (unsigned pad = 0; len > 0 && pad < 2 && text[len - 1] == '='; pad++)
                len--;
        if (len % 4 == 1)
                return -1;
        for (size_t i = 0; i < len; i++) {
                int v = base64_value(text[i]);
                if (v < 0) {
                        out->len = start;
                        return -1;
                }
                acc = acc << 6 | (uint32_t)v;
                bits += 6;
                if (bits >= 8) {
                        bits -= 8;
                        str_addc(out, (char)(acc >> bits & 0xff));
                }
        }
        return 0;
}

const char *grpc_timeout_format(char buf[static 16], int64_t timeout_ms)
{
        if (timeout_ms < 0)
                timeout_ms = 0;
        if (timeout_ms <= 99999999)
                snprintf(buf, 16, "%lldm", (long long)timeout_ms);
        else if (timeout_ms / 1000 <= 99999999)
                snprintf(buf, 16, "%lldS", (long long)(timeout_ms / 1000));
        else
                snprintf(buf, 16, "99999999S");
        return buf;
}

int grpc_timeout_parse(const char *text, size_t len, int64_t *ret_ms)
{
        static const int64_t year_ms = 365 * 24 * 3600 * INT64_C(1000);
        int64_t v = 0, ms;

        if (len < 2 || len > 9)
                return -1;
        for (size_t i = 0; i + 1 < len; i++) {
                if (text[i] < '0' || text[i] > '9')
                        return -1;
                v = v * 10 + (text[i] - '0');
        }
        switch (text[len - 1]) {
        case 'H':
                ms = v * 3600000;
                break;
        case 'M':
                ms = v * 60000;
                break;
        case 'S':
                ms = v * 1000;
                break;
        case 'm':
                ms = v;
                break;
        case 'u': /* rounded up: a deadline must not turn into "already over" */
                ms = (v + 999) / 1000;
                break;
        case 'n':
                ms = (v + 999999) / 1000000;
                break;
        default:
                return -1;
        }
        *ret_ms = ms < year_ms ? ms : year_ms;
        return 0;
}

void meta_add(struct str *blob, const char *name, size_t name_len, const void *value,
              size_t value_len)
{
        uint32_t lens[2] = { (uint32_t)name_len, (uint32_t)value_len };

        str_reserve(blob, sizeof(lens) + name_len + value_len + 2);
        str_add(blob, lens, sizeof(lens));
        str_add(blob, name, name_len);
        str_addc(blob, 0);
        str_add(blob, value, value_len);
        str_addc(blob, 0);
}

bool meta_next(const struct str *blob, size_t *at, struct meta_entry *ret)
{
        uint32_t lens[2];

        if (*at >= blob->len)
                return false;
        memcpy(lens, blob->buf + *at, sizeof(lens));
        ret->name = blob->buf + *at + sizeof(lens);
        ret->name_len = lens[0];
        ret->value = ret->name + lens[0] + 1;
        ret->value_len = lens[1];
        *at += sizeof(lens) + lens[0] + lens[1] + 2;
        return true;
}

const char *meta_find(const struct str *blob, const char *name, size_t *ret_len)
{
        struct meta_entry e;
        size_t len = strlen(name);

        for (size_t at = 0; meta_next(blob, &at, &e);)
                if (e.name_len == len && memcmp(e.name, name, len) == 0) {
                        if (ret_len)
                                *ret_len = e.value_len;
                        return e.value;
                }
        return NULL;
}

static bool is_bin(const char *name, size_t len)
{
        return len > 4 && memcmp(name + len - 4, "-bin", 4) == 0;
}

void meta_add_received(struct str *blob, const char *name, size_t name_len, const char *value,
                       size_t value_len)
{
        if (!is_bin(name, name_len)) {
                meta_add(blob, name, name_len, value, value_len);
                return;
        }
        _cleanup_(str_finip) struct str decoded = STR_INIT;
        /* several values in one header: the first counts */
        const char *comma = memchr(value, ',', value_len);
        if (grpc_base64_decode(&decoded, value, comma ? (size_t)(comma - value) : value_len) == 0)
                meta_add(blob, name, name_len, str_c(&decoded), decoded.len);
}

void meta_add_outgoing(struct str *blob, const struct grpc_metadata *list)
{
        unsigned n = 0;

        for (; list && list->name && n < META_MAX - 16; list++) {
                size_t name_len = strlen(list->name);
                if (name_len == 0 || str_starts(list->name, "grpc-") ||
                    strspn(list->name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != name_len)
                        continue;
                if (is_bin(list->name, name_len)) {
                        _cleanup_(str_finip) struct str text = STR_INIT;
                        grpc_base64_encode(&text, list->value, list->len);
                        meta_add(blob, list->name, name_len, str_c(&text), text.len);
                } else {
                        const char *v = list->value;
                        bool printable = true;
                        for (size_t i = 0; i < list->len; i++)
                                printable = printable && v[i] >= 0x20 && v[i] <= 0x7e;
                        if (!printable)
                                continue;
                        meta_add(blob, list->name, name_len, v, list->len);
                }
                n++;
        }
}

enum grpc_status grpc_status_from_http(int http_status)
{
        switch (http_status) {
        case 400:
                return GRPC_INTERNAL;
        case 401:
                return GRPC_UNAUTHENTICATED;
        case 403:
                return GRPC_PERMISSION_DENIED;
        case 404:
                return GRPC_UNIMPLEMENTED;
        case 429:
        case 502:
        case 503:
        case 504:
                return GRPC_UNAVAILABLE;
        default:
                return GRPC_UNKNOWN;
        }
}

enum grpc_status grpc_status_from_reset(uint32_t h2_error)
{
        switch (h2_error) {
        case NGHTTP2_REFUSED_STREAM:
                return GRPC_UNAVAILABLE;
        case NGHTTP2_CANCEL:
                return GRPC_CANCELLED;
        case NGHTTP2_ENHANCE_YOUR_CALM:
                return GRPC_RESOURCE_EXHAUSTED;
        case NGHTTP2_INADEQUATE_SECURITY:
                return GRPC_PERMISSION_DENIED;
        default:
                return GRPC_INTERNAL;
        }
}

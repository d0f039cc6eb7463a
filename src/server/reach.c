/* server/reach.c: see reach.h. */
#include "server/reach.h"

#include "base/array.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "net/addr.h"
#include "net/tls.h"
#include "server/server.h"
#include <string.h>
#include <unistd.h>

#define PEM_MAX_BYTES (256 * 1024)

struct reach {
        ARRAY(struct addr_net) networks;
        ARRAY(char *) hosts;
        bool any_host;
};

static void add_host(struct reach *r, const char *name, size_t len)
{
        if (len > 0)
                *array_push(&r->hosts) = mem_strndup(name, len);
}

/* "berth.example:8084" */
static void add_address(struct reach *r, const char *address)
{
        const char *colon = address ? strrchr(address, ':') : NULL;
        if (address)
                add_host(r, address, colon ? (size_t)(colon - address) : strlen(address));
}

/* A certificate that cannot be read is somebody else's error. */
static void add_certificate(struct reach *r, const char *path)
{
        _cleanup_(str_finip) struct str pem = STR_INIT;
        struct tls_cert cert = { 0 };
        if (!path || file_read(path, PEM_MAX_BYTES, &pem, NULL) < 0 ||
            tls_cert_read(str_c(&pem), pem.len, &cert, NULL) < 0)
                return;
        for (char **name = cert.dns; name && *name; name++)
                add_host(r, *name, strlen(*name));
        tls_cert_fini(&cert);
}

int reach_create(const struct server_options *opt, struct reach **ret, struct err *err)
{
        const Pb__ServerConfig *f = opt->config;
        struct reach *r = mem_must(sizeof(*r));
        char own[256] = "";
        for (size_t i = 0; f && i < f->n_agent_networks; i++) {
                struct addr_net net;
                int rc = addr_net_parse(f->agent_networks[i], &net, err);
                if (rc < 0) {
                        err_prefix(err, "agent_networks");
                        reach_destroy(r);
                        return rc;
                }
                *array_push(&r->networks) = net;
        }
        for (size_t i = 0; f && i < f->n_allowed_hosts; i++) {
                r->any_host = r->any_host || str_eq(f->allowed_hosts[i], "*");
                add_host(r, f->allowed_hosts[i], strlen(f->allowed_hosts[i]));
        }
        if (gethostname(own, sizeof(own) - 1) == 0)
                add_host(r, own, strlen(own));
        add_address(r, opt->http_address);
        add_address(r, opt->advertise_http);
        add_certificate(r, opt->tls_cert);
        *ret = r;
        return 0;
}

void reach_destroy(struct reach *r)
{
        if (!r)
                return;
        for (size_t i = 0; i < r->hosts.len; i++)
                mem_free(r->hosts.at[i]);
        array_fini(&r->hosts);
        array_fini(&r->networks);
        mem_free(r);
}

bool reach_may_dial(const struct reach *r, const char *caller, const struct sockaddr *sa)
{
        struct addr_net own;
        if (addr_is_nowhere(sa))
                return false;
        if (!str_empty(caller) && addr_net_parse(caller, &own, NULL) == 0 && addr_net_has(&own, sa))
                return true;
        for (size_t i = 0; i < r->networks.len; i++)
                if (addr_net_has(&r->networks.at[i], sa))
                        return true;
        return false;
}

int reach_check_endpoint(const struct reach *r, const char *caller, const char *endpoint,
                         struct err *err)
{
        struct addr a;
        struct sockaddr_storage ss;
        int rc = addr_parse(endpoint, &a, err);
        if (rc < 0)
                return rc;
        if (!addr_of_ip(str_case_eq(a.host, "localhost") ? "127.0.0.1" : a.host, &ss))
                return 0; /* a name: asked again when it is known what it stands for */
        if (reach_may_dial(r, caller, (struct sockaddr *)&ss))
                return 0;
        return err_set(
            err, ERR_DENIED, .msg = fmt("the address %s is not called from here", a.host),
            .detail = fmt("you call from %s", str_empty(caller) ? "an unknown address" : caller),
            .hint = addr_is_nowhere((struct sockaddr *)&ss)
                        ? "give an address that is of the machine, not of its link"
                        : "give your own address, or let the operator of the server allow its "
                          "network: agent_networks");
}

/* A name of a certificate may be "*.example.org". */
static bool is_name(const char *allowed, const char *name)
{
        if (!str_starts(allowed, "*."))
                return str_case_eq(allowed, name);
        const char *dot = strchr(name, '.');
        return dot && str_case_eq(allowed + 1, dot);
}

bool reach_answers(const struct reach *r, const char *host)
{
        char name[256];
        if (!host || r->any_host || host[0] == '[')
                return true;
        size_t len = strcspn(host, ":");
        if (len == 0 || len >= sizeof(name))
                return false;
        memcpy(name, host, len);
        name[len] = 0;
        if (!strchr(name, '.') || tls_is_address(name) || str_ends(name, ".localhost"))
                return true;
        for (size_t i = 0; i < r->hosts.len; i++)
                if (is_name(r->hosts.at[i], name))
                        return true;
        return false;
}

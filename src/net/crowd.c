/* net/crowd.c: see crowd.h. */
#include "net/crowd.h"
#include "base/clock.h"
#include "base/map.h"
#include <assert.h>
#include <netinet/in.h>
#include <string.h>

void crowd_init(struct crowd *crowd, uint32_t max)
{
        struct rng rng;
        rng_seed_system(&rng);
        crowd->max = max;
        crowd->seed = rng_next(&rng);
}

uint32_t crowd_place(const struct crowd *crowd, const struct sockaddr *sa)
{
        struct {
                uint64_t seed, address;
        } key = { .seed = crowd->seed };

        if (sa->sa_family == AF_INET)
                memcpy(&key.address, &((const struct sockaddr_in *)sa)->sin_addr, 4);
        else if (sa->sa_family == AF_INET6) {
                const struct in6_addr *in6 = &((const struct sockaddr_in6 *)sa)->sin6_addr;
                bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(in6);
                memcpy(&key.address, in6->s6_addr + (is_ipv4 ? 12 : 0), is_ipv4 ? 4 : 8);
        }
        return (uint32_t)(hash64(&key, sizeof(key)) % CROWD_PLACES);
}

bool crowd_enter(struct crowd *crowd, uint32_t place)
{
        if (crowd->max == 0)
                return true;
        if (crowd->n[place] >= crowd->max)
                return false;
        crowd->n[place]++;
        return true;
}

void crowd_leave(struct crowd *crowd, uint32_t place)
{
        if (crowd->max == 0)
                return;
        assert(crowd->n[place] > 0);
        crowd->n[place]--;
}

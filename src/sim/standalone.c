/* sim/standalone.c: the simulator as a program of its own, for builds that need nothing else (other
 * compilers, other levels of optimisation). */
#include "sim/sim.h"

int main(int argc, char **argv)
{
        return sim_main(argc - 1, argv + 1);
}

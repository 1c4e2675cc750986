#include "check.h"

#include <stdlib.h>

long check_passed, check_failed;

int check_turns(int most)
{
    const char *share = getenv("CHECK_SHARE");
    return share ? most / atoi(share) : most;
}

bool check_is_drawn(void)
{
    const char *share = getenv("CHECK_SHARE");
    return !share || random_below(atoi(share)) == 0;
}

int check_end(void)
{
    printf("%ld passed, %ld failed\n", check_passed, check_failed);
    return check_failed > 0;
}

uint64_t random_bits(void)
{
    static uint64_t state;
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

int64_t random_below(int64_t n)
{
    return (int64_t)(random_bits() % (uint64_t)n);
}

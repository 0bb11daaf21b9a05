/* Prints what the kernels take for the step of this machine's clock. */
#include <stdio.h>

#include "base/clock.h"

int main(void)
{
    printf("%.17g\n", clock_step_ns());
    return 0;
}

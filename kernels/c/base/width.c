/* See width.h. */
#include "base/width.h"

#include <math.h>

static const double correlation_max = 0.9; /* estimated from few values, it would go to 1 */

/* The normal deviate that a share `level` lies within, on both sides. */
static double normal_quantile(double level)
{
    double low = 0, high = 10;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        *(erf(middle / sqrt(2)) < level ? &low : &high) = middle;
    }
    return low;
}

static double t_quantile(double level, double degrees)
{
    double z = normal_quantile(level), z3 = z * z * z, z5 = z3 * z * z;
    return z + (z3 + z) / (4 * degrees) + (5 * z5 + 16 * z3 + 3 * z) / (96 * degrees * degrees);
}

double width_ratio(const double *values, size_t count, double level)
{
    double mean = 0, squares = 0, together = 0, number = (double)count;
    if (count < WIDTH_VALUES_MIN)
        return (double)NAN;
    for (size_t i = 0; i < count; i++)
        mean += values[i] / number;
    for (size_t i = 0; i < count; i++) {
        squares += (values[i] - mean) * (values[i] - mean);
        together += i ? (values[i] - mean) * (values[i - 1] - mean) : 0;
    }
    if (!(mean > 0))
        return (double)NAN;
    double correlation = squares > 0 ? fmin(fmax(together / squares, 0), correlation_max) : 0;
    double error = sqrt(squares / (number - 1) / number * (1 + correlation) / (1 - correlation));
    return 2 * t_quantile(level, number - 1) * error / mean;
}

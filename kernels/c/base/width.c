/* See width.h. */
#include "base/width.h"

#include <math.h>

enum { APART_MIN = 3 };
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
    double z = normal_quantile(level) * (8 * degrees + 3) / (8 * degrees + 1);
    return sqrt(degrees * expm1(z * z / degrees));
}

/* Of neighbours. From few values it comes out too small, by some (1 + 3 rho) / n (Marriott and Pope 1954). */
static double correlation_of(double together, double squares, double number)
{
    double found = squares > 0 ? together / squares : 0;
    return fmin(fmax(found + (1 + 3 * found) / number, 0), correlation_max);
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
    double correlation = correlation_of(together, squares, number);
    /* Values that are alike count as fewer, for the scatter of their mean and for how well that scatter is known. */
    double apart = fmax(number * (1 - correlation) / (1 + correlation), APART_MIN);
    double variance = squares / number / (1 - 1 / apart);
    return 2 * t_quantile(level, apart - 1) * sqrt(variance / apart) / mean;
}

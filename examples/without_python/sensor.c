/* Learns from a stream of values, one at a time: it predicts each from the eight before it. After 3,000 values the stream
 * changes, and the net follows. No memory is allocated. */
#include <stdio.h>
#include "net.h"

enum { WINDOW = 8, VALUES = 6000, REPORT = 500 };

static _Alignas(NET_ALIGNMENT) unsigned char state[NET_STATE_BYTES];
static _Alignas(NET_ALIGNMENT) unsigned char arena[NET_ARENA_BYTES];

/* A sensor: a wave of 16 or, later, of 10 values, with some noise. */
static float measure(int time) {
    static unsigned noise = 1;
    int period = time < VALUES / 2 ? 16 : 10, place = time % period;
    float up = 2.0f * (place < period / 2 ? place : period - place) / (period / 2) - 1;
    noise = noise * 1664525u + 1013904223u;
    return up + 0.05f * ((float)(noise >> 16) / 32768 - 1);
}

int main(void) {
    float window[WINDOW], value, loss, prediction, total = 0, first = 0;
    const struct net_step_feeds feeds = {.window = window, .value = &value};
    const struct net_step_fetches fetches = {.loss = &loss, .prediction = &prediction};
    net_init(state);
    for (int i = 0; i < WINDOW; i++) window[i] = measure(i);
    for (int time = WINDOW; time < VALUES; time++) {
        value = measure(time);
        if (net_step(state, arena, &feeds, &fetches)) return 1;
        for (int i = 1; i < WINDOW; i++) window[i - 1] = window[i];
        window[WINDOW - 1] = value;
        total += loss;
        if ((time + 1) % REPORT == 0) {
            int thousandths = (int)(1000 * total / REPORT);
            printf("after %d values: mean squared error 0.%03d\n", time + 1, thousandths);
            if (!first) first = total;
            if (time + 1 < VALUES) total = 0;
        }
    }
    return total < first / 4 ? 0 : 2;
}

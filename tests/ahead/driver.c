/* Trains the library "net" with the batches of a file, and writes each loss and then the state: driver BATCHES RESULTS COUNT. */
#include <stdio.h>
#include <stdlib.h>
#include "net.h"
#include "sizes.h"

static union {
    double aligned;
    unsigned char bytes[NET_STATE_BYTES];
} state __attribute__((aligned(64)));
static unsigned char arena[NET_ARENA_BYTES] __attribute__((aligned(64)));
static unsigned char x[X_BYTES] __attribute__((aligned(64))), label[LABEL_BYTES] __attribute__((aligned(64)));
static unsigned char loss[LOSS_BYTES] __attribute__((aligned(64)));

int main(void) {
    const struct net_step_feeds feeds = {(const void *)x, (const void *)label};
    const struct net_step_fetches fetches = {(void *)loss};
    FILE *in = fopen("batches.bin", "rb"), *out = fopen("results.bin", "wb");
    if (!in || !out) return 3;
    net_init(&state);
    while (fread(x, 1, X_BYTES, in) == X_BYTES && fread(label, 1, LABEL_BYTES, in) == LABEL_BYTES) {
        int code = net_step(&state, arena, &feeds, &fetches);
        if (code) {
            puts(net_error(code));
            return 1;
        }
        fwrite(loss, 1, LOSS_BYTES, out);
    }
    fwrite(&state, 1, NET_STATE_BYTES, out);
    return fclose(out) ? 2 : 0;
}

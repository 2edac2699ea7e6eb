/* Trains the net of digits.py on 1,438 images and tests it on 359 others: digits DIGITS.BIN [STATE].
 * Reads the state of a former run from the file STATE, if it is there, and writes it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "net.h"

enum { ROWS = 32, PIXELS = 64, TRAIN = 1438, ALL = 1797, EPOCHS = 8 };

struct sample {
    float image[PIXELS];
    int32_t label;
};

static struct sample samples[ALL];
static _Alignas(NET_ALIGNMENT) unsigned char state[NET_STATE_BYTES];
static _Alignas(NET_ALIGNMENT) unsigned char arena[NET_ARENA_BYTES];

static int read_file(const char *path, void *bytes, size_t size) {
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    size_t count = fread(bytes, 1, size, file);
    fclose(file);
    return count == size;
}

static void shuffle(struct sample *items, int count) {
    for (int i = count - 1; i > 0; i--) {
        int j = rand() % (i + 1);
        struct sample item = items[i];
        items[i] = items[j];
        items[j] = item;
    }
}

/* Train on all images once; returns the mean loss, or stops with the library's message. */
static float train(void) {
    float images[ROWS * PIXELS], loss, total = 0;
    int64_t labels[ROWS];
    const struct net_step_feeds feeds = {.image = images, .label = labels};
    const struct net_step_fetches fetches = {.loss = &loss};
    int steps = TRAIN / ROWS;
    shuffle(samples, TRAIN);
    for (int step = 0; step < steps; step++) {
        for (int row = 0; row < ROWS; row++) {
            const struct sample *sample = &samples[step * ROWS + row];
            memcpy(images + row * PIXELS, sample->image, sizeof sample->image);
            labels[row] = sample->label;
        }
        int code = net_step(state, arena, &feeds, &fetches);
        if (code) {
            fprintf(stderr, "%s\n", net_error(code));
            exit(1);
        }
        total += loss;
    }
    return total / steps;
}

/* The share of unseen images that are recognised. */
static float accuracy(void) {
    int right = 0;
    float scores[10];
    const struct net_predict_fetches fetches = {.prediction = scores};
    for (int i = TRAIN; i < ALL; i++) {
        const struct net_predict_feeds feeds = {.image = samples[i].image};
        int best = 0;
        net_predict_1(state, arena, &feeds, &fetches);
        for (int digit = 1; digit < 10; digit++)
            if (scores[digit] > scores[best]) best = digit;
        right += best == samples[i].label;
    }
    return (float)right / (ALL - TRAIN);
}

int main(int argc, char **argv) {
    if (!read_file(argc > 1 ? argv[1] : "digits.bin", samples, sizeof samples)) {
        fprintf(stderr, "digits.bin cannot be read: python digits.py writes it\n");
        return 1;
    }
    if (argc < 3 || !read_file(argv[2], state, sizeof state)) net_init(state);
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        float loss = train();
        printf("epoch %d: loss %.4f, accuracy %.3f\n", epoch, loss, accuracy());
    }
    if (argc > 2) {
        FILE *file = fopen(argv[2], "wb");
        if (!file || fwrite(state, 1, sizeof state, file) != sizeof state || fclose(file)) return 1;
    }
    return accuracy() > 0.93 ? 0 : 2;
}

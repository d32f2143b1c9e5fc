/* Runs the compiled loops in a process of their own: for another architecture under an emulator, or with a sanitizer.
 *
 * It reads calls from standard input and answers on standard output, as `tests/loops.py` writes and reads them: numbers
 * of 8 bytes, then arrays. Every array has memory of its own, so that a sanitizer sees what goes beyond it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rarely_native.h"

#ifdef _WIN32
#include <fcntl.h>
#include <io.h>
#endif

#define PANEL 128

static void *owned[4096];
static int owners;

static void *take(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory || owners == 4096) exit(3);
    return owned[owners++] = memory;
}

static void *input(size_t bytes) {
    void *memory = take(bytes);
    if (fread(memory, 1, bytes, stdin) != bytes) exit(2);
    return memory;
}

static void output(const void *from, size_t bytes) {
    if (fwrite(from, 1, bytes, stdout) != bytes) exit(2);
}

static void answer(int64_t status) { output(&status, sizeof status); }

static int64_t whole(void) {
    int64_t number;
    if (fread(&number, sizeof number, 1, stdin) != 1) exit(2);
    return number;
}

static double real(void) {
    double number;
    if (fread(&number, sizeof number, 1, stdin) != 1) exit(2);
    return number;
}

/* Numbers in layer l of a network. */
static size_t layer_numbers(const struct rarely_training_task *t, ptrdiff_t l) {
    if (l == t->hidden_layers) return t->units + (t->skip >= 0 ? t->dim : 0);
    return t->units * (l ? t->units : t->dim);
}

static void **network(const struct rarely_training_task *t) {
    void **layers = take((t->hidden_layers + 1) * sizeof *layers);
    for (ptrdiff_t l = 0; l <= t->hidden_layers; l++) layers[l] = input(layer_numbers(t, l) * t->number_bytes);
    return layers;
}

static void write_network(const struct rarely_training_task *t, void *const *layers) {
    for (ptrdiff_t l = 0; l <= t->hidden_layers; l++) output(layers[l], layer_numbers(t, l) * t->number_bytes);
}

static void train(int (*work)(struct rarely_training_task *)) {
    struct rarely_training_task t = {0};
    t.number_bytes = whole(), t.samples = whole(), t.dim = whole(), t.units = whole(), t.hidden_layers = whole();
    t.threads = whole(), t.taken = whole(), t.steps = whole();
    const int momentum = (int)whole();
    t.skip = real(), t.ridge = real(), t.step_size = real(), t.hopeless = real();
    t.contexts = input(t.samples * t.dim * t.number_bytes);
    t.targets = input(t.samples * t.number_bytes);
    t.initial = (const void *const *)network(&t);
    t.weights = network(&t);
    t.previous = momentum ? network(&t) : NULL;
    t.groups = whole();
    if (t.groups) {
        t.shared = whole();
        t.sample_order = input(t.samples * sizeof *t.sample_order);
        t.column_order = input(t.dim * sizeof *t.column_order);
        t.group_samples = input(t.groups * sizeof *t.group_samples);
        t.group_columns = input(t.groups * sizeof *t.group_columns);
    }
    answer(work(&t));
    output(&t.result, sizeof t.result);
    write_network(&t, t.weights);
    if (momentum) write_network(&t, t.previous);
}

static void cross(void) {
    struct rarely_cross_task t = {0};
    t.width = whole(), t.blocks = whole(), t.past = whole(), t.layers = whole(), t.threads = whole();
    const size_t lanes = t.width ? t.blocks * 8 * t.width : t.blocks, count = 2 * t.layers;
    ptrdiff_t *sizes = take(count * sizeof *sizes);
    const double **old_factors = take(count * sizeof *old_factors), **new_factors = take(count * sizeof *new_factors);
    for (size_t l = 0; l < count; l++) sizes[l] = whole();
    for (size_t l = 0; l < count; l++) old_factors[l] = input(t.past * sizes[l] * sizeof(double));
    for (size_t l = 0; l < count; l++) new_factors[l] = input(lanes * sizes[l] * sizeof(double));
    t.sizes = sizes, t.old_factors = old_factors, t.new_factors = new_factors;
    t.out = take(t.past * lanes * sizeof(double));
    answer(rarely_cross(&t));
    output(t.out, t.past * lanes * sizeof(double));
}

static void solve(void) {
    struct rarely_solve_task t = {0};
    t.width = whole(), t.blocks = whole(), t.done = whole(), t.rows = whole(), t.threads = whole();
    const size_t lanes = t.width ? t.blocks * 8 * t.width : t.blocks, panels = (t.rows + PANEL - 1) / PANEL;
    const double **left = take(panels * sizeof *left), **inverse = take(panels * sizeof *inverse);
    for (size_t i = 0; i < panels; i++) left[i] = input(PANEL * PANEL * i * sizeof(double));
    for (size_t i = 0; i < panels; i++) inverse[i] = input(PANEL * PANEL * sizeof(double));
    t.left = left, t.inverse = inverse, t.solution = input(t.rows * lanes * sizeof(double));
    answer(rarely_solve(&t));
    output(t.solution, t.rows * lanes * sizeof(double));
}

static const double *tables(void) { return input((2 * (2 * 9 * 512 + 1) + 32) * sizeof(double)); }

/* A struct word by word: a number after −1, or the array behind a pointer after its size. */
static void of_struct(int (*run)(void *)) {
    const size_t count = whole();
    int64_t *words = take(8 * count), *sizes = take(8 * count);
    for (size_t i = 0; i < count; i++) {
        sizes[i] = whole();
        words[i] = sizes[i] < 0 ? whole() : (int64_t)(intptr_t)input(sizes[i]);
    }
    answer(run(words));
    for (size_t i = 0; i < count; i++)
        if (sizes[i] < 0) output(&words[i], 8);
        else output((void *)(intptr_t)words[i], sizes[i]);
}

static int step(void *task) { return rarely_step(task); }
static int kernel(void *task) { return rarely_kernel(task); }

static void regress(void) {
    const ptrdiff_t order = whole(), dim = whole(), count = whole(), size = 2 * (order + 1) * order * sizeof(double);
    const double *rows = input(count * dim * sizeof(double)), *rewards = input(count * sizeof(double));
    double *block = input(size);
    answer(rarely_regress(order, dim, count, rows, rewards, block));
    output(block, size);
}

static void highest(void) {
    const size_t count = whole(), bytes = count * sizeof(double);
    const int lowest = (int)whole();
    const double tolerance = real(), *means = input(bytes), *deviations = input(bytes), *normal = tables();
    double *out = take(bytes);
    answer(rarely_highest(count, means, deviations, tolerance, lowest, normal, out));
    output(out, bytes);
}

static void factor(void) {
    const size_t order = whole(), bytes = order * order * sizeof(double);
    double *matrix = input(bytes);
    answer(rarely_factor(order, matrix));
    output(matrix, bytes);
}

static void invert(void) {
    const size_t order = whole(), bytes = order * order * sizeof(double);
    const double *lower = input(bytes);
    double *inverse = input(bytes);
    rarely_invert(order, lower, inverse);
    answer(0);
    output(inverse, bytes);
}

static void use_form(void) {
    answer(rarely_use_form(input(16)));
}

static void form(void) {
    char name[16] = {0};
    strncpy(name, rarely_form(), sizeof name - 1);
    answer(0);
    output(name, sizeof name);
}

int main(void) {
#ifdef _WIN32
    _setmode(_fileno(stdin), _O_BINARY), _setmode(_fileno(stdout), _O_BINARY);
#endif
    int64_t call;
    while (fread(&call, sizeof call, 1, stdin) == 1) {
        switch (call) {
        case 0: train(rarely_descend); break;
        case 1: train(rarely_curvature); break;
        case 2: cross(); break;
        case 3: solve(); break;
        case 4: factor(); break;
        case 5: invert(); break;
        case 6: form(); break;
        case 7: use_form(); break;
        case 8: of_struct(step); break;
        case 9: highest(); break;
        case 10: of_struct(kernel); break;
        case 11: regress(); break;
        default: return 1;
        }
        fflush(stdout);
        while (owners) free(owned[--owners]);
    }
    return 0;
}

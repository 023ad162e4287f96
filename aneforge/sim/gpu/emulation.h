/* The kernels on a CPU: each thread of a block is a fibre, and a barrier passes on to the next. For tests of the same
 * source on machines without a GPU; small shapes only. */
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

#include <functional>
#include <memory>
#include <vector>

#define __global__
#define __device__
#define __restrict__
#define __launch_bounds__(...)
#define __forceinline__ inline

struct Place {
    unsigned x, y, z;
};
static Place threadIdx, blockIdx, blockDim, gridDim;
static int any_now, any_before;
static bool has_ended;
static ucontext_t home, *own_fibre;
static std::function<void()> kernel_body;
alignas(16) static unsigned char shared_room[256 * 1024];
#define SHARED(name) unsigned char *name = shared_room

static void __syncthreads() { swapcontext(own_fibre, &home); }
static int __syncthreads_or(int value)
{
    any_now |= value != 0;
    __syncthreads();
    return any_before;
}
static unsigned atomicMax(unsigned *place, unsigned value)
{
    unsigned old = *place;
    *place = old < value ? value : old;
    return old;
}

static void fibre_body()
{
    kernel_body();
    has_ended = true;
}

static void run_block(unsigned threads)
{
    struct Fibre {
        ucontext_t context;
        std::vector<char> stack;
        bool is_over;
    };
    static std::vector<std::unique_ptr<Fibre>> fibres;
    while (fibres.size() < threads) {
        fibres.push_back(std::make_unique<Fibre>());
        fibres.back()->stack.resize(64 * 1024);
    }
    for (unsigned number = 0; number < threads; number++) {
        Fibre &fibre = *fibres[number];
        getcontext(&fibre.context);
        fibre.context.uc_stack.ss_sp = fibre.stack.data();
        fibre.context.uc_stack.ss_size = fibre.stack.size();
        fibre.context.uc_link = &home;
        makecontext(&fibre.context, fibre_body, 0);
        fibre.is_over = false;
    }
    any_now = any_before = 0;
    for (bool is_left = true; is_left; any_before = any_now, any_now = 0) {
        is_left = false;
        for (unsigned number = 0; number < threads; number++) {
            Fibre &fibre = *fibres[number];
            if (fibre.is_over)
                continue;
            threadIdx = {number, 0, 0};
            own_fibre = &fibre.context;
            has_ended = false;
            swapcontext(&home, &fibre.context);
            fibre.is_over = has_ended;
            is_left |= !has_ended;
        }
    }
}

template <typename Arguments>
static void run_grid(void (*kernel)(Arguments), const Arguments *arguments, const unsigned *grid, unsigned threads)
{
    kernel_body = [=] { kernel(*arguments); };
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {threads, 1, 1};
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x++) {
                blockIdx = {x, y, z};
                run_block(threads);
            }
}

/* Every kernel takes one struct, so that one signature starts all of them. */
#define KERNEL(name, Arguments) \
    static void name(Arguments); \
    extern "C" void emulated_##name(const void *arguments, const unsigned *grid, unsigned threads) \
    { \
        run_grid<Arguments>(name, (const Arguments *)arguments, grid, threads); \
    } \
    static void name(Arguments job)

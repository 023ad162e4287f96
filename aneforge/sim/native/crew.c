/* See crew.h. A waiting thread looks for work for some microseconds, as long as waking it would take, and then sleeps.
 * A member takes part in a job only while it is open: who comes too late, because its CPU did something else, is not
 * waited for. The first process to ask owns the crew; a forked one, which has none of its threads, starts its own. */
#include "crew.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#define MOST 63
#define LOOKS 4000  /* before a thread sleeps: about a hundred microseconds */
#define YIELDS 2000
#define PLACES 256
#define CLOSED 128
#define NUMBER 64   /* a state is the number of a job times this, and how many members it wants */

#if defined(__x86_64__) || defined(__i386__)
#define PAUSE() __builtin_ia32_pause()
#else
#define PAUSE() ((void)0)
#endif

static pthread_mutex_t taken = PTHREAD_MUTEX_INITIALIZER; /* held by whoever the crew works for */
static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER;  /* guards sleep */
static pthread_cond_t bell = PTHREAD_COND_INITIALIZER;
static atomic_ulong state; /* one word, so that nobody reads the number of one job and the wants of the next */
static atomic_ulong entry; /* the number of a job times PLACES, CLOSED once it is, and how many members are in it */
static void (*job)(void *);
static void *job_context;
static int members;
static pid_t owner;

/* The next job after one that was seen. */
static unsigned long awaited(unsigned long seen)
{
    unsigned long now;
    for (int looks = 0; looks < LOOKS; looks++) {
        now = atomic_load_explicit(&state, memory_order_acquire);
        if (now / NUMBER != seen)
            return now;
        PAUSE();
    }
    pthread_mutex_lock(&door);
    while ((now = atomic_load_explicit(&state, memory_order_acquire)) / NUMBER == seen)
        pthread_cond_wait(&bell, &door);
    pthread_mutex_unlock(&door);
    return now;
}

/* Whether a member may take part in a job, which then waits for it. */
static int entered(unsigned long number)
{
    unsigned long now = atomic_load_explicit(&entry, memory_order_acquire);
    while (now / PLACES == number && !(now & CLOSED))
        if (atomic_compare_exchange_weak_explicit(&entry, &now, now + 1, memory_order_acq_rel, memory_order_acquire))
            return 1;
    return 0;
}

/* A member that starts late, before the job it was started for, passes over the one before: that did not want it. */
static void *member(void *argument)
{
    size_t own = (size_t)argument;
    for (unsigned long seen = 0;;) {
        unsigned long now = awaited(seen);
        seen = now / NUMBER;
        if (own < now % NUMBER && entered(seen)) {
            job(job_context);
            atomic_fetch_sub_explicit(&entry, 1, memory_order_release);
        }
    }
    return NULL;
}

/* As many members as are asked for, if they can be had. Called by whoever holds the crew. */
static int gathered(int count)
{
    if (owner != getpid()) { /* the first time, or after a fork */
        pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
        pthread_cond_t silent = PTHREAD_COND_INITIALIZER;
        door = fresh;
        bell = silent;
        members = 0;
        atomic_store(&state, 0);
        owner = getpid();
    }
    while (members < count && members < MOST) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, member, (void *)(size_t)members))
            break;
        pthread_detach(thread);
        members++;
    }
    return members < count ? members : count;
}

void aneforge_crew(void (*work)(void *), void *context, int threads)
{
    int others = threads - 1;
    unsigned long next;
    if (others < 1 || pthread_mutex_trylock(&taken)) {
        work(context);
        return;
    }
    others = gathered(others);
    job = work;
    job_context = context;
    pthread_mutex_lock(&door);
    next = (atomic_load(&state) / NUMBER + 1) * NUMBER + (unsigned long)others;
    atomic_store_explicit(&entry, next / NUMBER * PLACES, memory_order_release);
    atomic_store_explicit(&state, next, memory_order_release);
    pthread_cond_broadcast(&bell);
    pthread_mutex_unlock(&door);
    work(context);
    atomic_fetch_or_explicit(&entry, CLOSED, memory_order_acq_rel);
    for (int looks = 0; atomic_load_explicit(&entry, memory_order_acquire) % CLOSED; looks++) {
        PAUSE();
        if (looks > YIELDS) /* a member may wait for this very CPU */
            sched_yield();
    }
    pthread_mutex_unlock(&taken);
}

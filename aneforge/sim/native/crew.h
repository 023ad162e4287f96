/* Threads that wait for work: starting one anew takes longer than most of the work there is. */
#ifndef ANEFORGE_CREW_H
#define ANEFORGE_CREW_H

/* Calls `work` once in this thread and at the same time in up to `threads` - 1 others; returns when all are done. Where
 * the others are busy for somebody else, or cannot be had, this thread does it alone: `work` has to share what there is
 * to do among however many call it. */
void aneforge_crew(void (*work)(void *), void *context, int threads);

#endif

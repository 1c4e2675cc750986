/* The report of a search: each place, and why it was not used. */
#include "forward/cudnn/report.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
    struct text *next;
    char chars[];
} text;

struct rnl_findings {
    rnl_cudnn_report shown; /* first: the callers' pointer is the pointer to all of it */
    atomic_int holders;
    bool no_memory;
    rnl_cudnn_place *places;
    rnl_gpu *gpus;
    text *texts;
};

rnl_findings *rnl_findings_new(void)
{
    rnl_findings *findings = calloc(1, sizeof *findings);
    if (findings)
        atomic_init(&findings->holders, 1);
    return findings;
}

rnl_cudnn_report *rnl_findings_shown(rnl_findings *findings)
{
    return &findings->shown;
}

void rnl_findings_hold(rnl_findings *findings)
{
    atomic_fetch_add(&findings->holders, 1);
}

void rnl_cudnn_report_free(const rnl_cudnn_report *report)
{
    rnl_findings *findings = (rnl_findings *)report;
    if (!findings || atomic_fetch_sub(&findings->holders, 1) > 1)
        return;
    while (findings->texts) {
        text *first = findings->texts;
        findings->texts = first->next;
        free(first);
    }
    free(findings->places);
    free(findings->gpus);
    free(findings);
}

/* The array with room for one more element; NULL, which is noted: no memory. */
static void *grown(rnl_findings *findings, void *array, int n, size_t nbytes)
{
    void *more = realloc(array, ((size_t)n + 1) * nbytes);
    findings->no_memory |= !more;
    return more;
}

const char *rnl_findings_text(rnl_findings *findings, const char *chars)
{
    if (!chars)
        return NULL;
    const size_t nbytes = strlen(chars) + 1;
    text *copy = malloc(sizeof *copy + nbytes);
    findings->no_memory |= !copy;
    if (!copy)
        return NULL;
    copy->next = findings->texts;
    findings->texts = copy;
    return memcpy(copy->chars, chars, nbytes);
}

void rnl_findings_add_place(rnl_findings *findings, const char *origin, const char *path,
                            const char *why_not)
{
    const int n = findings->shown.num_places;
    rnl_cudnn_place *places = grown(findings, findings->places, n, sizeof *places);
    if (!places)
        return;
    findings->shown.places = findings->places = places;
    places[n].origin = rnl_findings_text(findings, origin);
    places[n].path = rnl_findings_text(findings, path);
    places[n].why_not = rnl_findings_text(findings, why_not);
    if (!findings->no_memory)
        findings->shown.num_places = n + 1;
}

void rnl_findings_add_gpu(rnl_findings *findings, const rnl_gpu *gpu)
{
    const int n = findings->shown.num_gpus;
    rnl_gpu *gpus = grown(findings, findings->gpus, n, sizeof *gpus);
    if (!gpus)
        return;
    findings->shown.gpus = findings->gpus = gpus;
    gpus[n] = *gpu;
    gpus[n].why_not = rnl_findings_text(findings, gpu->why_not);
    findings->shown.num_gpus = n + 1;
}

bool rnl_findings_has(const rnl_findings *findings, const char *path)
{
    for (int k = 0; k < findings->shown.num_places; k++)
        if (strcmp(findings->shown.places[k].path, path) == 0)
            return true;
    return false;
}

bool rnl_findings_complete(const rnl_findings *findings)
{
    return !findings->no_memory;
}

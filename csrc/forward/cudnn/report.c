/* Which places were looked at, and why were they not good? */
#include "forward/cudnn/report.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct rnl_findings {
    rnl_cudnn_report shown; /* first: the callers' pointer is that of the whole */
    atomic_int holders;
    bool no_memory;
    rnl_cudnn_place *places;
    rnl_gpu *gpus;
    char **texts;
    int num_texts;
};

rnl_findings *rnl_findings_new(void)
{
    rnl_findings *report = calloc(1, sizeof *report);
    if (report)
        atomic_init(&report->holders, 1);
    return report;
}

rnl_cudnn_report *rnl_findings_shown(rnl_findings *report)
{
    return &report->shown;
}

void rnl_findings_hold(rnl_findings *report)
{
    atomic_fetch_add(&report->holders, 1);
}

void rnl_cudnn_report_free(const rnl_cudnn_report *shown)
{
    rnl_findings *report = (rnl_findings *)shown;
    if (!report || atomic_fetch_sub(&report->holders, 1) > 1)
        return;
    for (int k = 0; k < report->num_texts; k++)
        free(report->texts[k]);
    free(report->texts);
    free(report->places);
    free(report->gpus);
    free(report);
}

/* The array with room for one more element; NULL, and noted, without memory. */
static void *grown(rnl_findings *report, void *array, int n, size_t nbytes)
{
    void *more = realloc(array, ((size_t)n + 1) * nbytes);
    report->no_memory |= !more;
    return more;
}

const char *rnl_findings_text(rnl_findings *report, const char *text)
{
    if (!text)
        return NULL;
    char **texts = grown(report, report->texts, report->num_texts, sizeof *texts);
    if (!texts)
        return NULL;
    report->texts = texts;
    const size_t nbytes = strlen(text) + 1;
    char *copy = malloc(nbytes);
    report->no_memory |= !copy;
    if (copy)
        texts[report->num_texts++] = memcpy(copy, text, nbytes);
    return copy;
}

void rnl_findings_add_place(rnl_findings *report, const char *origin, const char *path,
                            const char *why_not)
{
    const int n = report->shown.num_places;
    rnl_cudnn_place *places = grown(report, report->places, n, sizeof *places);
    if (!places)
        return;
    report->shown.places = report->places = places;
    places[n].origin = rnl_findings_text(report, origin);
    places[n].path = rnl_findings_text(report, path);
    places[n].why_not = rnl_findings_text(report, why_not);
    if (!report->no_memory)
        report->shown.num_places = n + 1;
}

void rnl_findings_add_gpu(rnl_findings *report, const rnl_gpu *gpu)
{
    const int n = report->shown.num_gpus;
    rnl_gpu *gpus = grown(report, report->gpus, n, sizeof *gpus);
    if (!gpus)
        return;
    report->shown.gpus = report->gpus = gpus;
    gpus[n] = *gpu;
    gpus[n].why_not = rnl_findings_text(report, gpu->why_not);
    report->shown.num_gpus = n + 1;
}

bool rnl_findings_has(const rnl_findings *report, const char *path)
{
    for (int k = 0; k < report->shown.num_places; k++)
        if (strcmp(report->shown.places[k].path, path) == 0)
            return true;
    return false;
}

bool rnl_findings_complete(const rnl_findings *report)
{
    return !report->no_memory;
}

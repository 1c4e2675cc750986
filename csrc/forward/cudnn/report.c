/* The report of a search: each place, and why it was not used. */
#include "forward/cudnn/report.h"

#include <stdlib.h>
#include <string.h>

typedef struct rnl_findings_text {
    struct rnl_findings_text *next;
    char chars[];
} text;

/* A copy that lives as long as the report; NULL stays NULL. */
static const char *copy_of(rnl_findings *findings, const char *chars)
{
    if (!chars)
        return NULL;
    const size_t nbytes = strlen(chars) + 1;
    text *const copy = malloc(sizeof *copy + nbytes);
    findings->no_memory |= !copy;
    if (!copy)
        return NULL;
    copy->next = findings->texts;
    findings->texts = copy;
    return memcpy(copy->chars, chars, nbytes);
}

/* The array with room for one more element; NULL, which is noted: no memory. */
static void *grown(rnl_findings *findings, void *array, int n, size_t nbytes)
{
    void *const more = realloc(array, ((size_t)n + 1) * nbytes);
    findings->no_memory |= !more;
    return more;
}

void rnl_findings_add_place(rnl_findings *findings, const char *origin, const char *path,
                            const char *why_not)
{
    rnl_cudnn_report *const report = &findings->report;
    rnl_cudnn_place *const places = grown(findings, findings->places, report->num_places,
                                          sizeof *places);
    if (!places)
        return;
    report->places = findings->places = places;
    places[report->num_places] = (rnl_cudnn_place){origin, copy_of(findings, path),
                                                   copy_of(findings, why_not)};
    if (!findings->no_memory)
        report->num_places++;
}

void rnl_findings_add_gpu(rnl_findings *findings, const rnl_gpu *gpu)
{
    rnl_cudnn_report *const report = &findings->report;
    rnl_gpu *const gpus = grown(findings, findings->gpus, report->num_gpus, sizeof *gpus);
    if (!gpus)
        return;
    report->gpus = findings->gpus = gpus;
    gpus[report->num_gpus] = *gpu;
    gpus[report->num_gpus++].why_not = copy_of(findings, gpu->why_not);
}

bool rnl_findings_has(const rnl_findings *findings, const char *path)
{
    for (int k = 0; k < findings->report.num_places; k++)
        if (strcmp(findings->places[k].path, path) == 0)
            return true;
    return false;
}

void rnl_findings_free(rnl_findings *findings)
{
    if (!findings)
        return;
    while (findings->texts) {
        text *const first = findings->texts;
        findings->texts = first->next;
        free(first);
    }
    free(findings->places);
    free(findings->gpus);
    free(findings);
}

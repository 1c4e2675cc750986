/* The report of a search. Once returned it is not changed, and lives as long as the process. */
#ifndef RNL_CUDNN_REPORT_H
#define RNL_CUDNN_REPORT_H

#include <stdbool.h>

#include "rnnlayout.h"

typedef struct rnl_findings {
    rnl_cudnn_report report;
    struct rnl_findings *earlier; /* of an earlier search, whose callers may still read it */
    rnl_cudnn_place *places;      /* the report's */
    rnl_gpu *gpus;                /* the report's */
    struct rnl_findings_text *texts;
    bool no_memory; /* for a part of it */
} rnl_findings;

/* Add a place; path and why_not are copied. why_not NULL: this one is used. */
void rnl_findings_add_place(rnl_findings *findings, const char *origin, const char *path,
                            const char *why_not);

/* Add a GPU; why_not is copied. */
void rnl_findings_add_gpu(rnl_findings *findings, const rnl_gpu *gpu);

/* Is this path in the report already? */
bool rnl_findings_has(const rnl_findings *findings, const char *path);

/* Free a report that was not returned. Accepts NULL. */
void rnl_findings_free(rnl_findings *findings);

#endif

/* The report of a search: written once, then shared and not changed. */
#ifndef RNL_CUDNN_REPORT_H
#define RNL_CUDNN_REPORT_H

#include <stdbool.h>

#include "rnnlayout.h"

typedef struct rnl_findings rnl_findings;

/* An empty report with one holder; NULL: no memory. */
rnl_findings *rnl_findings_new(void);

/* The part that callers see. */
rnl_cudnn_report *rnl_findings_shown(rnl_findings *findings);

/* Add a holder; each calls rnl_cudnn_report_free() at the end. */
void rnl_findings_hold(rnl_findings *findings);

/* A copy of a text that lives as long as the report; NULL stays NULL. */
const char *rnl_findings_text(rnl_findings *findings, const char *chars);

/* Add a place; texts are copied. why_not NULL: this one is used. */
void rnl_findings_add_place(rnl_findings *findings, const char *origin, const char *path,
                            const char *why_not);

/* Add a GPU. */
void rnl_findings_add_gpu(rnl_findings *findings, const rnl_gpu *gpu);

/* Is this path in the report already? */
bool rnl_findings_has(const rnl_findings *findings, const char *path);

/* False: memory ran out for a part of it. */
bool rnl_findings_complete(const rnl_findings *findings);

#endif

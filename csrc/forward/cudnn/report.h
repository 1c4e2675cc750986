/* The report of a search: written once, then shared and never changed. */
#ifndef RNL_CUDNN_REPORT_H
#define RNL_CUDNN_REPORT_H

#include <stdbool.h>

#include "rnnlayout.h"

typedef struct rnl_findings rnl_findings;

/* An empty report with one holder; NULL: no memory. */
rnl_findings *rnl_findings_new(void);

/* What is shown of it. */
rnl_cudnn_report *rnl_findings_shown(rnl_findings *findings);

/* One more holder; each ends with rnl_cudnn_report_free(). */
void rnl_findings_hold(rnl_findings *findings);

/* A copy of a text that lives as long as the report; NULL stays NULL. */
const char *rnl_findings_text(rnl_findings *findings, const char *chars);

/* One more place, texts copied; why_not NULL: this is the one. */
void rnl_findings_add_place(rnl_findings *findings, const char *origin, const char *path,
                            const char *why_not);

/* One more GPU. */
void rnl_findings_add_gpu(rnl_findings *findings, const rnl_gpu *gpu);

/* Has this path been looked at? */
bool rnl_findings_has(const rnl_findings *findings, const char *path);

/* Was there memory for all of it? */
bool rnl_findings_complete(const rnl_findings *findings);

#endif

/* The functions of both libraries, called as device->dnn->cudnnRNNForward(...). A pointer is NULL
 * if only the other major version has the function, or if an old driver lacks it. */
#ifndef RNL_CUDNN_TABLE_H
#define RNL_CUDNN_TABLE_H

#include "forward/cudnn/abi.h"

typedef struct rnl_cudnn_table {
#define CUDNN(major, returns, name, arguments) returns(*name) arguments;
#include "forward/cudnn/symbols.def"
} rnl_cudnn_table;

typedef struct rnl_driver_table {
#define DRIVER(needed, returns, name, arguments) returns(*name) arguments;
#include "forward/cudnn/symbols.def"
} rnl_driver_table;

#endif

/* The report on drivers and GPUs. */
#ifndef CUDNN_DRIVER_H
#define CUDNN_DRIVER_H

void check_drivers(void);

#endif

/* The part of system.h that macOS, Windows and WebAssembly lack: the CPU of a thread, and tiles. */
#include "system/system.h"

int rnl_current_cpu(void)
{
    return -1;
}

void rnl_leave_cpu(int cpu)
{
    (void)cpu;
}

/* EnableProcessOptionalXStateFeatures() of Windows 11 could allow tiles; not tested. */
bool rnl_allow_tiles(void)
{
    return false;
}

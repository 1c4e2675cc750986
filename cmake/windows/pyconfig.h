/* What Python.h asks of pyconfig.h in a module of the stable ABI, with the answers of 64-bit
 * Windows (CPython, PC/pyconfig.h). tools/wheels puts it beside the headers of the Python that
 * builds. */
#ifndef PYCONFIG_H
#define PYCONFIG_H

#define MS_WINDOWS
#define MS_WIN64
#define HAVE_DECLSPEC_DLL
#define Py_ENABLE_SHARED 1
#define HAVE_STDDEF_H 1
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_WCHAR_T 2
#define SIZEOF_TIME_T 8
#define SIZEOF_PID_T 4

#endif

/* Calls that take long: Python's threads run meanwhile, and Ctrl-C ends a call. */
#define _DEFAULT_SOURCE /* clock_gettime; NOLINT(bugprone-reserved-identifier,cert-*) */
#include "native.h"

#include <time.h>

/* A thread that waits for the interpreter's lock waits 5 ms if another thread is busy in Python. So
 * a call takes the lock as rarely as a user who presses Ctrl-C accepts. */
enum { POLL_MS = 50 };

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Let signal handlers run, every POLL_MS; non-zero: stop. */
static int poll_signals(void *arg)
{
    long_call *const call = arg;
    if (now_ms() - call->polled_ms < POLL_MS)
        return 0;
    PyEval_RestoreThread(call->thread);
    const int stop = PyErr_CheckSignals();
    call->thread = PyEval_SaveThread();
    call->polled_ms = now_ms();
    return stop;
}

/* Is this the thread that runs Python's signal handlers? -1: an exception is set. */
static int in_main_thread(const native_state *state)
{
    PyObject *thread = PyObject_CallNoArgs(state->main_thread);
    PyObject *ident = thread ? PyObject_GetAttr(thread, state->words[WORD_IDENT]) : NULL;
    const unsigned long number = ident ? PyLong_AsUnsignedLong(ident) : 0;
    Py_XDECREF(thread);
    Py_XDECREF(ident);
    return PyErr_Occurred() ? -1 : number == PyThread_get_thread_ident();
}

int long_call_begin(const native_state *state, double work, long_call *call)
{
    *call = (long_call){.polled_ms = now_ms()};
    if (work < LONG_WORK)
        return 0;
    const int polls = in_main_thread(state);
    if (polls < 0)
        return -1;
    if (polls)
        call->poll = poll_signals;
    call->thread = PyEval_SaveThread();
    return 0;
}

void long_call_end(long_call *call)
{
    if (call->thread)
        PyEval_RestoreThread(call->thread);
}

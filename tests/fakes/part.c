/* A part of the fake libcudnn: it only has a name. Its functions are in libcuda.so.1, which the
 * main library needs. */
typedef int fake_part;

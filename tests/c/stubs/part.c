/* A part of cuDNN, or a library that it needs: only a name. With NEEDS it does not open, because it
 * needs an undefined function. */
extern int stub_part;
int stub_part;

#ifdef NEEDS
int stub_nowhere(void);
extern int (*stub_needs)(void);
int (*stub_needs)(void) = stub_nowhere;
#endif

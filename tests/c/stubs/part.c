/* A part of cuDNN, or a library that it needs: nothing but its name. With NEEDS one that does not
 * open, for a function that nobody has. */
extern int stub_part;
int stub_part;

#ifdef NEEDS
int stub_nowhere(void);
extern int (*stub_needs)(void);
int (*stub_needs)(void) = stub_nowhere;
#endif

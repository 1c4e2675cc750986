/* A part of cuDNN, or a library that it needs: nothing but its name. */
extern int stub_part;
int stub_part;

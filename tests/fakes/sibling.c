/* A sub-library of the fake libcudnn: it only has a name. */
typedef int fake_sibling;

/* A sub-library of the fake libcudnn: its name is all it has. */
typedef int fake_sibling;

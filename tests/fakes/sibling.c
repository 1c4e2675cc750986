/* A sub-library of the fake libcudnn: its name is all it has. */
extern const int fake_sibling;
const int fake_sibling = 1;

/* Folders of stubs: each kind of cuDNN in each place where one is looked for. */
#ifndef CUDNN_FOLDERS_H
#define CUDNN_FOLDERS_H

enum { MOST_NCHARS = 512 };

typedef struct kind {
    const char *name;
    const char *stub;                   /* the main library's folder; NULL: there is none */
    const char *major;                  /* of its file's name                             */
    const char *spoil;                  /* what is done to a whole folder                 */
    const char *why;                    /* why it is not taken; NULL: it is               */
    enum { NOTHING, PARTS, ALL } opens; /* until that is known           */
} kind;

extern const kind kinds[];
extern const int num_kinds;
enum { EMPTY, GOOD9, GOOD8, LONE9, PIPE }; /* the first ones */

typedef struct place {
    const char *name, *origin, *under;
} place;

extern const place places[];
enum { LOADED, SITE, USER, CONDA, VENV, CUDNN, CUDA_HOME = 8, FIRST, SECOND, LOADER, NUM_PLACES };

/* The folder, as the stubs' main one; then under `root` all kinds in all places, and away again. */
void make_folder(const char *folder, const kind *k);
void make_all(void);
void remove_all(void);

/* The root of a place, as a machine has it that has such a cuDNN there. */
const char *root_of(int place_at, int kind_at);

/* And the folder there that has the libraries. */
const char *folder_of(int place_at, int kind_at);

/* One of the last texts made. */
const char *format(const char *text, ...);

/* Of a shell; one that fails ends the program. */
void command(const char *text);

#endif

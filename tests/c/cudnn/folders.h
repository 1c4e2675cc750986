/* Folders of stubs: each kind of cuDNN in each place that is searched. */
#ifndef CUDNN_FOLDERS_H
#define CUDNN_FOLDERS_H

enum { MOST_NCHARS = 512 };

typedef struct kind {
    const char *name;
    const char *stub;                   /* the main library's folder; NULL: none     */
    const char *major;                  /* in its file name                          */
    const char *spoil;                  /* the command that damages the whole folder */
    const char *why;                    /* why it is refused; NULL: it is used       */
    enum { NOTHING, PARTS, ALL } opens; /* libraries opened before that is known     */
} kind;

extern const kind kinds[];
extern const int num_kinds;
enum { EMPTY, GOOD9, GOOD8, LONE9, PIPE }; /* the first ones */

typedef struct place {
    const char *name, *origin, *under;
} place;

extern const place places[];
enum { LOADED, SITE, USER, CONDA, VENV, CUDNN, CUDA_HOME = 8, FIRST, SECOND, LOADER, NUM_PLACES };

/* Make one folder of a kind; make all kinds in all places under a temporary root, and remove them.
 */
void make_folder(const char *folder, const kind *k);
void make_all(void);
void remove_all(void);

/* The root of a place on a machine with such a cuDNN there. */
const char *root_of(int place_at, int kind_at);

/* The folder under it that has the libraries. */
const char *folder_of(int place_at, int kind_at);

/* Format a text; the last 16 stay valid. */
const char *format(const char *text, ...);

/* Run a shell command; if it fails, the program ends. */
void command(const char *text);

#endif

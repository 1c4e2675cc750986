/*
 * Read a tensor of a row from text: the name "weight_ih_l{layer}{direction:|_reverse}" and the
 * contents "W + R (I + H, G*H)". Both become the letters of format.h.
 */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"
#include "layout/user_rows.h"

/* Is this the letter of a gate of a cell? */
static bool is_gate(char letter)
{
    for (int cell = 0; letter && cell < RNL_NUM_CELLS; cell++)
        if (strchr(rnl_cell_facts_of((rnl_cell)cell)->gates, letter))
            return true;
    return false;
}

/* ------------------------------------------------------------------------------- the name -- */

/* A text that is built step by step; too long: nbytes > sizeof text. */
typedef struct builder {
    char text[2 * RNL_WORD];
    size_t nbytes;
} builder;

static void put(builder *to, const char *from, size_t nbytes)
{
    for (size_t k = 0; k < nbytes && to->nbytes + 1 < sizeof to->text; k++)
        to->text[to->nbytes++] = from[k];
    to->text[to->nbytes] = '\0';
}

static bool begins(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* Read the names of gates, "i=input f=forget", as "i:input f:forget". *longest: of a name. */
static rnl_status read_gate_names(rnl_row_reader *reader, const char *from, const char *end,
                                  rnl_slot *slot, size_t *longest)
{
    builder names = {.nbytes = 0};
    for (const char *c = from; c < end;) {
        const char *const to = c + strcspn(c, " }");
        if (!is_gate(*c) || c[1] != '=' || memchr(c + 2, '{', (size_t)(to - c) - 2))
            return rnl_wrong_field(reader, "need {gate:i=input f=forget ...}: the letter of a gate,"
                                           " one of i f g o r z n h, =, and the name of the gate");
        put(&names, names.nbytes ? " " : "", names.nbytes ? 1 : 0);
        put(&names, c, 1);
        put(&names, ":", 1);
        put(&names, c + 2, (size_t)(to - c) - 2);
        if ((size_t)(to - c) - 2 > *longest)
            *longest = (size_t)(to - c) - 2;
        c = to + strspn(to, " ");
    }
    slot->gate_names = rnl_keep_text(reader, names.text);
    return RNL_OK;
}

/* Read the placeholder [from, end) between braces. *longest: bytes that it adds to a name. */
static rnl_status read_placeholder(rnl_row_reader *reader, const char *from, const char *end,
                                   rnl_slot *slot, builder *name, size_t *longest)
{
    const size_t nbytes = (size_t)(end - from);
    *longest = strlen("131072");
    if (begins(from, "layer}")) {
        put(name, "{l}", 3);
    } else if (begins(from, "pseudo_layer}")) {
        put(name, "{p}", 3);
    } else if (begins(from, "gate}") || begins(from, "gate:")) {
        if (strstr(name->text, "{g}"))
            return rnl_wrong_field(reader, "{gate} occurs twice");
        put(name, "{g}", 3);
        *longest = 1;
        if (begins(from, "gate:"))
            return read_gate_names(reader, from + strlen("gate:"), end, slot, longest);
    } else if (begins(from, "direction:")) {
        const char *const bar = memchr(from, '|', nbytes);
        if (!bar || memchr(bar + 1, '|', (size_t)(end - bar) - 1) || strstr(name->text, "{d:"))
            return rnl_wrong_field(reader, "need {direction:a|b} once: the text a stands for the"
                                           " forward direction, b for the backward one");
        put(name, "{d:", 3);
        put(name, from + strlen("direction:"), nbytes - strlen("direction:"));
        put(name, "}", 1);
        *longest = nbytes;
    } else {
        return rnl_wrong_field(reader,
                               "'{%.40s' is unknown, need {layer}, {direction:a|b}, {gate},"
                               " {gate:i=a f=b ...}, {pseudo_layer}",
                               from);
    }
    return RNL_OK;
}

/* Names without a layer get the prefix {s} of a stack, "1/" or "1/backward/". */
rnl_status rnl_read_slot_name(rnl_row_reader *reader, const char *text, rnl_slot *slot)
{
    builder name = {.nbytes = 0};
    size_t length = 0, longest;
    const bool has_layer = strstr(text, "{layer}") || strstr(text, "{pseudo_layer}");
    if (!*text || strlen(text) >= RNL_WORD - 1 || strchr(text, '?') || strchr(text, '\x7f'))
        return rnl_wrong_field(reader,
                               "a tensor's name has 1 to %d printable ASCII characters,"
                               " without ?",
                               RNL_WORD - 2);
    if (!slot->repeats && !has_layer) {
        put(&name, "{s}", 3);
        length += strlen("65536/backward/");
    }
    for (const char *c = text; *c; c++) {
        const char *const end = strchr(c, '}');
        if (*c == '}' || (*c == '{' && !end))
            return rnl_wrong_field(reader, "a brace without the other one");
        if (*c == '{') {
            const rnl_status status = read_placeholder(reader, c + 1, end, slot, &name, &longest);
            if (status)
                return status;
            length += longest;
            c = end;
        } else {
            put(&name, c, 1);
            length++;
        }
    }
    if (length >= RNL_MAX_NAME)
        return rnl_wrong_field(reader,
                               "the name may have %zu bytes with a layer, direction and"
                               " gate, need at most %d; prefix= takes the part that all"
                               " tensors share",
                               length, RNL_MAX_NAME - 1);
    slot->name = rnl_keep_text(reader, name.text);
    return RNL_OK;
}

/* --------------------------------------------------------------------------- the contents -- */

enum { MAX_AXES = 24 };

/* An axis as it is written, and the dimension and the piece in whose part it is. */
typedef struct axis {
    const char *word;     /* of words[] */
    int dimension, piece; /* piece -1: of all pieces */
} axis;

static const char *const words[] = {"1", "D", "G", "H", "H_in", "I", "P"};

typedef struct contents {
    const char *at; /* the next character */
    axis axes[MAX_AXES];
    int num_axes, num_dimensions, num_pieces;
    int joined; /* the dimension with a `+`; -1: none */
    rnl_slot *slot;
} contents;

static bool take(contents *of, char wanted)
{
    of->at += strspn(of->at, " ");
    if (*of->at != wanted)
        return false;
    of->at++;
    of->at += strspn(of->at, " ");
    return true;
}

static size_t word_length(const contents *of)
{
    size_t n = 0;
    while (isalnum((unsigned char)of->at[n]) || of->at[n] == '_')
        n++;
    return n;
}

static bool is_word(const contents *of, const char *word)
{
    return word_length(of) == strlen(word) && begins(of->at, word);
}

static rnl_status read_piece(rnl_row_reader *reader, contents *of)
{
    int role = RNL_W;
    while (role <= RNL_PEEP && !is_word(of, rnl_name(RNL_NAMES_ROLE, role)))
        role++;
    if (role > RNL_PEEP)
        return rnl_wrong_field(reader,
                               "'%.40s', need W, R, P, bW, bR or peephole, and a shape:"
                               " \"W (G*H, I)\" or \"W + R (I + H, G*H)\"",
                               of->at);
    if (of->num_pieces == RNL_MAX_PIECES)
        return rnl_wrong_field(reader, "more than %d matrices or biases in a tensor",
                               RNL_MAX_PIECES);
    rnl_piece *const piece = &of->slot->pieces[of->num_pieces++];
    piece->role = (rnl_role)role;
    of->at += word_length(of);
    if (!take(of, '['))
        return RNL_OK;
    builder gates = {.nbytes = 0};
    for (; *of->at && *of->at != ']'; of->at++) {
        if (!is_gate(*of->at) || strchr(gates.text, *of->at))
            return rnl_wrong_field(reader,
                                   "[%.20s, need letters of gates, each once: i f g o r z n"
                                   " h",
                                   of->at);
        put(&gates, of->at, 1);
    }
    if (!gates.nbytes || !take(of, ']'))
        return rnl_wrong_field(reader, "need the letters of gates between [ and ]");
    piece->gates = rnl_keep_text(reader, gates.text);
    return RNL_OK;
}

static rnl_status read_axis(rnl_row_reader *reader, contents *of, int piece)
{
    size_t k = 0;
    of->at += strspn(of->at, " ");
    while (k < sizeof words / sizeof *words && !is_word(of, words[k]))
        k++;
    if (k == sizeof words / sizeof *words)
        return rnl_wrong_field(reader,
                               "'%.20s', need a size: G (gates), H (hidden units), I"
                               " (inputs), P (projected), D (directions), 1, or a product"
                               " as G*H",
                               of->at);
    if (of->num_axes == MAX_AXES)
        return rnl_wrong_field(reader, "more than %d sizes", MAX_AXES);
    of->axes[of->num_axes++] = (axis){words[k], of->num_dimensions, piece};
    of->at += word_length(of);
    return RNL_OK;
}

/* Read a dimension: a product, or as many products as pieces, with `+` between them. */
static rnl_status read_dimension(rnl_row_reader *reader, contents *of)
{
    const int first = of->num_axes;
    int products = 0;
    rnl_status status;
    if (of->num_dimensions == RNL_MAX_DIMS)
        return rnl_wrong_field(reader, "more than %d dimensions", RNL_MAX_DIMS);
    do {
        do
            if ((status = read_axis(reader, of, products)))
                return status;
        while (take(of, '*'));
        products++;
    } while (take(of, '+'));
    if (products > 1 && (products != of->num_pieces || of->joined >= 0))
        return rnl_wrong_field(reader,
                               "the shape adds %d sizes, need one for each of the %d matrices"
                               " or biases, in a single dimension, as in \"W + R (I + H,"
                               " G*H)\"",
                               products, of->num_pieces);
    if (products > 1)
        of->joined = of->num_dimensions;
    for (int k = first; k < of->num_axes && products == 1; k++)
        of->axes[k].piece = -1;
    of->num_dimensions++;
    return RNL_OK;
}

/* Are two axes in the same product? */
static bool beside(const axis *a, const axis *b)
{
    return a->dimension == b->dimension && a->piece == b->piece;
}

/* Is this H of a recurrent matrix the input? Of two, the output is the one beside G; else the one
 * that the matrix shares with W. *clear: false if neither decides. */
static bool is_input(const contents *of, int piece, const axis *H, bool *clear)
{
    const axis *twin = NULL;
    bool gate[2] = {false, false}, names_input = false;
    for (int k = 0; k < of->num_axes; k++) {
        const axis *const a = &of->axes[k];
        if (a->piece != -1 && a->piece != piece)
            continue;
        names_input |= !strcmp(a->word, "H_in") || !strcmp(a->word, "P");
        if (a != H && !strcmp(a->word, "H"))
            twin = a;
    }
    if (names_input || !twin)
        return false;
    for (int k = 0; k < of->num_axes; k++)
        if (!strcmp(of->axes[k].word, "G")) {
            gate[0] |= beside(&of->axes[k], H);
            gate[1] |= beside(&of->axes[k], twin);
        }
    if (gate[0] != gate[1])
        return gate[1];
    *clear = (H->piece == -1) != (twin->piece == -1);
    return H->piece != -1;
}

/* Return the letter of an axis in a piece; '\0': the role has no such axis. */
static char letter_of(const contents *of, int piece, const axis *a, bool *clear)
{
    const rnl_role role = of->slot->pieces[piece].role;
    switch (*a->word) {
    case '1': return 'l';
    case 'D': return 'd';
    case 'G': return role == RNL_P ? '\0' : 'g';
    case 'I': return role == RNL_W ? 'i' : '\0';
    case 'P':
        if (role == RNL_P)
            return 'o';
        return role == RNL_R ? 'i' : '\0';
    default: break;
    }
    if (role == RNL_P || (role == RNL_R && (a->word[1] || is_input(of, piece, a, clear))))
        return 'i';
    return a->word[1] && role != RNL_PEEP ? '\0' : 'o';
}

static rnl_status find_letter(rnl_row_reader *reader, const contents *of, const axis *a,
                              char *letter)
{
    *letter = '\0';
    for (int piece = 0; piece < of->num_pieces; piece++) {
        bool clear = true;
        if (a->piece != -1 && a->piece != piece)
            continue;
        const rnl_role role = of->slot->pieces[piece].role;
        const char *const name = rnl_name(RNL_NAMES_ROLE, (int)role);
        const char of_piece = letter_of(of, piece, a, &clear);
        if (!of_piece)
            return rnl_wrong_field(reader, "%s has no size %s", name, a->word);
        if (!clear)
            return rnl_wrong_field(reader, "R has two sizes H, and one of them is h's, which R is"
                                           " multiplied with: write H_in for that one, as in \"R"
                                           " (H, H_in)\" for R h, \"R (H_in, H)\" for h R");
        if (role == RNL_PEEP && of->num_pieces > 1 && of_piece == 'o')
            continue; /* o and i are the same of a peephole: the other pieces decide */
        if (*letter && *letter != of_piece)
            return rnl_wrong_field(reader,
                                   "%s is the output of one matrix and the input of"
                                   " another",
                                   a->word);
        *letter = of_piece;
    }
    if (!*letter)
        *letter = 'o';
    return RNL_OK;
}

/* Write the shape and the fills of the slot with the letters of format.h. */
static rnl_status write_letters(rnl_row_reader *reader, contents *of)
{
    builder shape = {.nbytes = 0}, fills[RNL_MAX_PIECES] = {{.nbytes = 0}};
    int dimension = 0;
    for (int k = 0; k < of->num_axes; k++) {
        const axis *const a = &of->axes[k];
        char letter;
        const rnl_status status = find_letter(reader, of, a, &letter);
        if (status)
            return status;
        for (; dimension < a->dimension; dimension++)
            put(&shape, ",", 1);
        if (a->piece == -1)
            put(&shape, &letter, 1);
        else
            put(&fills[a->piece], &letter, 1);
        if (a->piece != -1 && (!shape.nbytes || shape.text[shape.nbytes - 1] != '+'))
            put(&shape, "+", 1);
    }
    of->slot->shape = rnl_keep_text(reader, shape.text);
    assert(of->num_pieces <= RNL_MAX_PIECES); /* read_piece() */
    for (int piece = 0; piece < of->num_pieces && of->joined >= 0; piece++)
        of->slot->pieces[piece].fill = rnl_keep_text(reader, fills[piece].text);
    return RNL_OK;
}

static rnl_status read_suffix(rnl_row_reader *reader, const contents *of)
{
    of->slot->repeats = !strcmp(of->at, "per layer and direction") ? "ld"
                        : !strcmp(of->at, "per layer")             ? "l"
                                                                   : NULL;
    of->slot->ravels = !strcmp(of->at, "raveled");
    if (*of->at && !of->slot->repeats && !of->slot->ravels)
        return rnl_wrong_field(
            reader,
            *of->at == '+' ? "after the shape is '%.40s': write the shape of the whole"
                             " tensor last, as in \"W + R (I + H, G*H)\""
                           : "after the shape is '%.40s', need the end, \"per layer\", \"per"
                             " layer and direction\" or \"raveled\"",
            of->at);
    if (of->slot->repeats && of->num_dimensions > 1)
        return rnl_wrong_field(reader, "a vector of all layers has %d dimensions, need 1",
                               of->num_dimensions);
    if (of->slot->ravels && (of->num_pieces > 1 || of->slot->pieces[0].role > RNL_R))
        return rnl_wrong_field(reader, "only W alone or R alone can be raveled");
    return RNL_OK;
}

rnl_status rnl_read_slot(rnl_row_reader *reader, const char *text, rnl_slot *slot)
{
    contents of = {.at = text, .joined = -1, .slot = slot};
    rnl_status status;
    of.at += strspn(of.at, " ");
    do
        if ((status = read_piece(reader, &of)))
            return status;
    while (take(&of, '+'));
    if (!take(&of, '('))
        return rnl_wrong_field(reader, "'%.40s', need a shape in parentheses, as in \"W (G*H, I)\"",
                               of.at);
    do
        if ((status = read_dimension(reader, &of)))
            return status;
    while (take(&of, ',') && *of.at != ')');
    if (!take(&of, ')'))
        return rnl_wrong_field(reader, "'%.40s', need ',' or ')'", of.at);
    if (of.num_pieces > 1 && of.joined < 0)
        return rnl_wrong_field(reader,
                               "the shape does not show how %d matrices or biases lie one"
                               " after another: add their sizes in one dimension, as in \"W"
                               " + R (I + H, G*H)\" or \"bW + bR (1 + 1, G*H)\"",
                               of.num_pieces);
    status = write_letters(reader, &of);
    return status ? status : read_suffix(reader, &of);
}

/* ------------------------------------------------------------------------ do the slots fit? -- */

void rnl_axes_of_piece(const rnl_slot *slot, const rnl_piece *piece, char *letters, size_t nbytes)
{
    snprintf(letters, nbytes, "%s%s", slot->shape, piece->fill ? piece->fill : "");
}

/* Does the row have a cell with two gates or more in this piece? */
static bool has_gates(const rnl_row *row, const rnl_piece *piece)
{
    for (int cell = 0; cell < RNL_NUM_CELLS; cell++) {
        const rnl_form form = {.row = row, .spec = {.cell = (rnl_cell)cell}};
        if (row->gates[cell] && rnl_form_num_gates(&form, piece) > 1)
            return true;
    }
    return false;
}

static int count(const char *letters, char letter)
{
    int n = 0;
    for (; *letters; letters++)
        n += *letters == letter;
    return n;
}

static rnl_status check_piece(rnl_row_reader *reader, const rnl_slot *slot, const rnl_piece *piece)
{
    char letters[2 * RNL_WORD];
    rnl_axes_of_piece(slot, piece, letters, sizeof letters);
    const rnl_role role = piece->role;
    const char *const name = rnl_name(RNL_NAMES_ROLE, (int)role);
    const bool is_matrix = role <= RNL_P, has_name = strstr(slot->name, "{g}") != NULL;
    const int D = count(letters, 'd'), G = count(letters, 'g');
    const int out = count(letters, 'o'), in = count(letters, 'i');
    const int start = snprintf(reader->place, sizeof reader->place, "tensors.");
    rnl_slot_name_as_written(slot, reader->place + start, sizeof reader->place - (size_t)start);
    if (is_matrix ? out != 1 || in != 1 : out + in != 1 || (in && role != RNL_PEEP))
        return rnl_wrong_field(reader, "%s needs %s, each once", name,
                               role == RNL_W   ? "the sizes H and I"
                               : role == RNL_R ? "the sizes H and H_in"
                               : role == RNL_P ? "the sizes P and H"
                                               : "the size H");
    if (role != RNL_P &&
        (G > 1 || (G && has_name) || (!G && !has_name && has_gates(reader->row, piece))))
        return rnl_wrong_field(reader,
                               "%s needs the size G once, as in G*H, or {gate} in the name"
                               " of the tensor if each gate has a tensor",
                               name);
    const bool is_apart = strchr(reader->row->per, 'd') ||
                          (slot->repeats && strchr(slot->repeats, 'd'));
    if (D != !is_apart)
        return rnl_wrong_field(reader, "%s %s", name,
                               D > 1      ? "has the size D twice"
                               : is_apart ? "has the size D, but the directions are apart"
                                          : "lacks the size D, which other tensors have");
    return RNL_OK;
}

rnl_status rnl_check_axes(rnl_row_reader *reader)
{
    const rnl_row *const row = reader->row;
    for (const rnl_slot *slot = row->slots; slot->name; slot++) {
        snprintf(reader->place, sizeof reader->place, "tensors");
        if ((slot->repeats != NULL) != !strchr(row->per, 'l'))
            return rnl_wrong_field(reader, "some tensors are vectors of all layers (per layer),"
                                           " others are not: need one kind");
        for (int k = 0; k < rnl_num_pieces(slot); k++) {
            const rnl_status status = check_piece(reader, slot, &slot->pieces[k]);
            if (status)
                return status;
        }
    }
    return RNL_OK;
}

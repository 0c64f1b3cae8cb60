// SPDX-License-Identifier: GPL-2.0-only
//
// Texts as bytes whose order as bytes is the order of a collation, and that end themselves.
//
// A collation turns a text into weights, which are numbers. The image writes these weights so that
// another key part may follow: `docs/format/sql-key.md` has the bytes. Without padding (NO PAD) a
// shorter text sorts first. With padding (PAD SPACE) a text continues with endless spaces, so the
// image leaves trailing spaces out and writes each inner run of spaces with its length.
//
// This file knows no server: `server_collation.h` implements `Collation` with the server's tables.

#pragma once

#include <vector>

#include "bytes.h"

namespace alluvium_sql {

// Most passes of a collation.
constexpr unsigned levels_max = 6;

enum class TextForm : uint8_t {
    // NO PAD: a shorter text sorts first.
    Escaped,
    // PAD SPACE: a text continues with endless spaces.
    Spaces,
    // NO PAD in a CHAR column: as Escaped, and runs of spaces are written with their length.
    Counted,
};

// Order of texts. Its objects live until the process ends.
class Collation {
public:
    virtual ~Collation() = default;

    // The weights are the text's own bytes, so the image gives the text back, but for cut spaces.
    // Bytes that are no character are preceded by `bad_byte`, which sorts them last.
    bool restores = false;
    // Weights are written in 1 to 6 bytes, because most weights of this collation are small.
    bool compact = false;
    // Bytes of each weight that is not compact: 1 or 2.
    unsigned unit_bytes = 1;
    // Number of passes: each gives its weights, and decides if all earlier passes are equal.
    unsigned levels = 1;
    // Form and weight of a space in each pass.
    TextForm form[levels_max] = {TextForm::Spaces};
    uint32_t space_weight[levels_max] = {0x20};
    // Trailing spaces of a CHAR do not count, so they may be cut before the weights are made.
    bool trims_char = true;
    Space space;
    // Fills the least text of a LIKE in a CHAR, where it is above texts that end in characters
    // without weight. A low limit leaves it out. Length 0: none.
    Space low_filler{{}, 0};
    // Most bytes of a character.
    size_t character_bytes_max = 1;

    // Length in bytes of the first `characters` characters of a text, or of all of it.
    virtual size_t prefix_bytes(const uint8_t *text, size_t length, size_t characters) const = 0;

    // True if the weights of this text are its bytes as they are.
    virtual bool is_plain(const uint8_t *text, size_t length) const = 0;

    // Upper bound of the number of weights of a text in a pass, whatever its bytes.
    virtual size_t weights_max(size_t length) const = 0;

    // Appends the weights of a text in one pass, without padding.
    virtual void append_weights(unsigned level, const uint8_t *text, size_t length,
                                std::vector<uint32_t> &weights) const = 0;
};

// Weight before a byte that is no character, in collations that restore.
constexpr uint8_t bad_byte = 0xff;

// Appends the image of a text. `collation` null: binary, without padding.
void append_text(const Collation *collation, const uint8_t *text, size_t length, std::string &out);

// Skips an image, each byte of which was xored with `invert` (0 or 0xff). False: damage.
bool skip_text(const Collation *collation, Bytes &cursor, uint8_t invert);

// Takes an image and writes the text without its cut spaces. Only for binary, and for a collation
// that restores. False: damage, or more than `capacity` bytes.
bool take_text(const Collation *collation, Bytes &cursor, uint8_t invert, uint8_t *to,
               size_t capacity, size_t &length);

// Upper bound of the bytes of an image of a text of `length` bytes, valid or not.
size_t text_image_bytes_max(const Collation *collation, size_t length);

} // namespace alluvium_sql

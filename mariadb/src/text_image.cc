// SPDX-License-Identifier: GPL-2.0-only
//
// All constants here are part of the format `docs/format/sql-key.md` and never change.

#include "text_image.h"

#include <algorithm>
#include <memory>

namespace alluvium_sql {

namespace {

// After a zero weight: the text ends here, or the zero is a weight of the text.
constexpr uint8_t text_ends = 0x01;
constexpr uint8_t zero_weight = 0xff;

// After the weight of a space. With padding the text ends here; else the byte begins the length of
// a run of spaces: below `text_ends_in_spaces` if the next weight is below a space, inverted and
// above it if the next weight is above a space.
constexpr uint8_t text_ends_in_spaces = 0x80;
// A run of this many spaces continues in the next byte.
constexpr uint8_t run_continues = 0x7e;

// Compact weights: one byte below `compact_two`, two bytes from it on, and after `compact_wide` two
// bytes of the weight, or all ones and three bytes.
constexpr uint32_t compact_two = 0xe0;
constexpr uint32_t compact_wide = 0xff;
constexpr uint32_t compact_two_end = compact_two + (compact_wide - compact_two) * 256;
constexpr uint32_t compact_widest = 0xffff;
constexpr size_t compact_bytes_max = 6;

// Weights of binary texts.
class BinaryCollation final : public Collation {
public:
    BinaryCollation() {
        form[0] = TextForm::Escaped;
        restores = true;
    }
    size_t prefix_bytes(const uint8_t *, size_t length, size_t characters) const override {
        return std::min(length, characters);
    }
    bool is_plain(const uint8_t *, size_t) const override { return true; }
    size_t weights_max(size_t length) const override { return length; }
    void append_weights(unsigned, const uint8_t *text, size_t length,
                        std::vector<uint32_t> &weights) const override {
        weights.insert(weights.end(), text, text + length);
    }
};

const Collation &or_binary(const Collation *collation) {
    static const BinaryCollation binary;
    return collation ? *collation : binary;
}

// Greater than any weight.
constexpr uint32_t no_weight = 0xffffffff;

// Bytes of a weight. Its fields are copies, because the compiler must assume that writing bytes
// changes those of the collation.
struct WeightForm {
    bool is_compact;
    bool has_two_bytes;

    explicit WeightForm(const Collation &c)
        : is_compact(c.compact), has_two_bytes(!c.compact && c.unit_bytes == 2) {}

    uint8_t *write(uint8_t *to, uint32_t weight) const {
        if (is_compact) return write_compact(to, weight);
        if (has_two_bytes) *to++ = static_cast<uint8_t>(weight >> 8);
        *to++ = static_cast<uint8_t>(weight);
        return to;
    }

private:
    static uint8_t *write_big(uint8_t *to, uint32_t number, unsigned count) {
        for (unsigned shift = 8 * count; shift > 0; shift -= 8) {
            *to++ = static_cast<uint8_t>(number >> (shift - 8));
        }
        return to;
    }

    static uint8_t *write_compact(uint8_t *to, uint32_t weight) {
        if (weight < compact_two) return write_big(to, weight, 1);
        if (weight < compact_two_end) {
            return write_big(to, (compact_two << 8) + weight - compact_two, 2);
        }
        if (weight < compact_widest) return write_big(to, (compact_wide << 16) + weight, 3);
        return write_big(write_big(to, 0xffffff, 3), weight, 3);
    }
};

// Writes the length of a run of spaces: inverted if the next weight is above a space.
template <class Flush> uint8_t *write_run(uint8_t *to, size_t spaces, bool above, Flush flush) {
    const uint8_t invert = above ? 0xff : 0;
    for (; spaces >= run_continues; spaces -= run_continues) {
        *to++ = run_continues ^ invert;
        to = flush(to);
    }
    *to++ = static_cast<uint8_t>(spaces) ^ invert;
    return to;
}

// Writes the weights of one pass, which are bytes or numbers. They are collected first: appending
// them to the string one by one takes several times as long.
template <class Weight>
void write_weights(const Collation &c, unsigned level, const Weight *at, const Weight *end,
                   std::string &out) {
    const TextForm text_form = c.form[level];
    const uint32_t space = c.space_weight[level];
    // The weights that have a mark, or `no_weight`.
    const uint32_t run = text_form == TextForm::Escaped ? no_weight : space;
    const uint32_t zero = text_form == TextForm::Spaces ? no_weight : 0;
    const WeightForm form(c);
    uint8_t buffer[256];
    // Leaves room for two weights and their marks.
    uint8_t *const full = buffer + sizeof buffer - 2 * (compact_bytes_max + 1);
    const auto flush = [&](uint8_t *to) {
        if (to < full) return to;
        append_bytes(out, buffer, static_cast<size_t>(to - buffer));
        return buffer + 0;
    };
    uint8_t *to = buffer;
    while (at < end) {
        for (; at < end && *at != run && *at != zero && to < full; at++) to = form.write(to, *at);
        to = flush(to);
        if (at < end && *at == zero) {
            at++;
            to = form.write(to, 0);
            *to++ = zero_weight;
        } else if (at < end && *at == run) {
            const Weight *start = at;
            while (at < end && *at == run) at++;
            // With padding the end follows, which stands for all further spaces.
            if (at == end && text_form == TextForm::Spaces) break;
            to = form.write(to, space);
            to = write_run(to, static_cast<size_t>(at - start), at < end && *at > space, flush);
        }
    }
    const bool pads = text_form == TextForm::Spaces;
    to = form.write(flush(to), pads ? space : 0);
    *to++ = pads ? text_ends_in_spaces : text_ends;
    append_bytes(out, buffer, static_cast<size_t>(to - buffer));
}

// Reader of the weights of one pass. `text` receives the bytes of a collation that restores, if not
// null.
class Reader {
public:
    Reader(const Collation &collation, unsigned level, Bytes cursor, uint8_t invert)
        : c_(collation), form_(c_.form[level]), space_(c_.space_weight[level]), cursor_(cursor),
          invert_(invert) {}

    const Bytes &rest() const { return cursor_; }

    bool read(uint8_t *text, size_t capacity, size_t &text_length) {
        size_t length = 0;
        bool is_bad_byte = false;
        while (true) {
            uint32_t weight;
            uint64_t count = 1;
            bool ends = false;
            if (!is_bad_byte && !take_plain(text, capacity, length)) return false;
            if (!take_weight(weight) || !take_mark(weight, count, ends)) return false;
            if (ends) {
                text_length = length;
                return !is_bad_byte;
            }
            if (!text) continue;
            if (is_escaped() && weight == bad_byte && !is_bad_byte) {
                is_bad_byte = true;
                continue;
            }
            is_bad_byte = false;
            if (count > capacity - length) return false;
            for (; count > 0; count--) text[length++] = static_cast<uint8_t>(weight);
        }
    }

private:
    // Binary texts and character sets of one byte have no bad bytes.
    bool is_escaped() const { return c_.character_bytes_max > 1; }

    // Takes all weights of one byte up to one that has a mark or precedes a bad byte.
    bool take_plain(uint8_t *text, size_t capacity, size_t &length) {
        if (c_.compact || c_.unit_bytes > 1) return true;
        const uint32_t run = form_ == TextForm::Escaped ? no_weight : space_;
        const uint32_t zero = form_ == TextForm::Spaces ? no_weight : 0;
        const uint32_t bad = is_escaped() ? bad_byte : no_weight;
        const uint8_t invert = invert_;
        const uint8_t *at = cursor_.at;
        const uint8_t *const end = cursor_.end;
        for (; at < end; at++) {
            const uint8_t weight = *at ^ invert;
            if (weight == run || weight == zero || weight == bad) break;
        }
        const size_t count = static_cast<size_t>(at - cursor_.at);
        if (text) {
            if (count > capacity - length) return false;
            for (size_t i = 0; i < count; i++) text[length + i] = cursor_.at[i] ^ invert;
            length += count;
        }
        cursor_.at = at;
        return true;
    }

    bool take_byte(uint8_t &byte) {
        if (!cursor_.take_byte(byte)) return false;
        byte ^= invert_;
        return true;
    }

    bool take_big(unsigned count, uint32_t &value) {
        value = 0;
        for (; count > 0; count--) {
            uint8_t byte;
            if (!take_byte(byte)) return false;
            value = value << 8 | byte;
        }
        return true;
    }

    bool take_weight(uint32_t &weight) {
        return c_.compact ? take_compact(weight) : take_big(c_.unit_bytes, weight);
    }

    bool take_compact(uint32_t &weight) {
        if (!take_big(1, weight)) return false;
        if (weight < compact_two) return true;
        if (weight == compact_wide) {
            if (!take_big(2, weight)) return false;
            if (weight < compact_widest) return weight >= compact_two_end;
            return take_big(3, weight) && weight >= compact_widest;
        }
        uint32_t low;
        if (!take_big(1, low)) return false;
        weight = (weight - compact_two) * 256 + low + compact_two;
        return true;
    }

    // Takes the byte that follows a zero or a space.
    bool take_mark(uint32_t weight, uint64_t &count, bool &ends) {
        uint8_t mark;
        if (form_ != TextForm::Spaces && weight == 0) {
            if (!take_byte(mark)) return false;
            ends = mark == text_ends;
            return ends || mark == zero_weight;
        }
        if (form_ == TextForm::Escaped || weight != space_) return true;
        if (!take_byte(mark)) return false;
        if (mark == text_ends_in_spaces) {
            ends = true;
            return form_ == TextForm::Spaces;
        }
        return take_run(mark, count);
    }

    bool take_run(uint8_t mark, uint64_t &count) {
        const uint8_t above = mark > text_ends_in_spaces ? 0xff : 0;
        count = 0;
        while (true) {
            const uint8_t spaces = mark ^ above;
            if (spaces > run_continues) return false;
            count += spaces;
            if (spaces < run_continues) return count > 0;
            if (!take_byte(mark)) return false;
        }
    }

    const Collation &c_;
    const TextForm form_;
    const uint32_t space_;
    Bytes cursor_;
    const uint8_t invert_;
};

} // namespace

void append_text(const Collation *collation, const uint8_t *text, size_t length, std::string &out) {
    const Collation &c = or_binary(collation);
    if (c.restores && c.is_plain(text, length)) {
        write_weights(c, 0, text, text + length, out);
        return;
    }
    // Kept for the next text of this thread.
    static thread_local std::vector<uint32_t> weights;
    for (unsigned level = 0; level < c.levels; level++) {
        weights.clear();
        c.append_weights(level, text, length, weights);
        write_weights(c, level, weights.data(), weights.data() + weights.size(), out);
    }
}

bool skip_text(const Collation *collation, Bytes &cursor, uint8_t invert) {
    const Collation &c = or_binary(collation);
    for (unsigned level = 0; level < c.levels; level++) {
        Reader reader(c, level, cursor, invert);
        size_t length;
        if (!reader.read(nullptr, 0, length)) return false;
        cursor = reader.rest();
    }
    return true;
}

bool take_text(const Collation *collation, Bytes &cursor, uint8_t invert, uint8_t *to,
               size_t capacity, size_t &length) {
    Reader reader(or_binary(collation), 0, cursor, invert);
    if (!reader.read(to, capacity, length)) return false;
    cursor = reader.rest();
    return true;
}

size_t text_image_bytes_max(const Collation *collation, size_t length) {
    const Collation &c = or_binary(collation);
    const size_t weights = c.weights_max(length);
    const size_t unit_bytes = c.compact ? compact_bytes_max : c.unit_bytes;
    // A zero has a mark of its own. Runs of one space that alternate with other weights have most
    // marks: one for two weights.
    const bool has_zero_marks = c.form[0] != TextForm::Spaces;
    const size_t marks = has_zero_marks ? weights : (weights + 1) / 2;
    const size_t end = unit_bytes + 1;
    return c.levels * (weights * unit_bytes + marks + end);
}

} // namespace alluvium_sql

// SPDX-License-Identifier: GPL-2.0-only
//
// The choices of form, weights and padding here are part of the format `docs/format/sql-key.md`.
//
// Order comes from `strnxfrm`, with four corrections where the server's own comparison differs:
//
// - A byte that is no character ends `strnxfrm` of most character sets, but not the comparison.
// - The comparison pads the later passes of NO PAD collations.
// - The two Czech collations cut spaces first.
// - The Chinese collations of big5 have another order altogether.
//
// The test `tests/unit/collations.cc` compares every collation with `strnncollsp`.

#include <my_global.h>

#include <m_ctype.h>

#include "server_collation.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace alluvium_sql {

namespace {

// Weight of a byte that is no character: the server's WEIGHT_ILSEQ, above all others.
constexpr uint32_t bad_byte_weight = 0xff0000;

// Most weights that the server's tables give for a character. A contraction of two characters has
// at most twice as many.
constexpr size_t character_weights_max = MY_UCA_MAX_WEIGHT_SIZE - 1;

bool is_named(const CHARSET_INFO *cs, const char *name) { return !strcmp(cs->coll_name.str, name); }

bool is_czech(const CHARSET_INFO *cs) {
    return is_named(cs, "latin2_czech_cs") || is_named(cs, "cp1250_czech_cs");
}

// Its comparison takes characters of two bytes by their code, but `strnxfrm` by their strokes.
bool is_big5_chinese(const CHARSET_INFO *cs) {
    return is_named(cs, "big5_chinese_ci") || is_named(cs, "big5_chinese_nopad_ci");
}

bool is_thai(const CHARSET_INFO *cs) {
    return is_named(cs, "tis620_thai_ci") || is_named(cs, "tis620_thai_nopad_ci");
}

class ServerCollation final : public Collation {
public:
    ServerCollation(const CHARSET_INFO *cs, TextColumn column) : cs_(cs) {
        space.length = static_cast<uint8_t>(cs->mbminlen);
        my_ci_fill(cs, reinterpret_cast<char *>(space.bytes), space.length, ' ');
        character_bytes_max = cs->mbmaxlen;
        restores = cs->state & MY_CS_BINSORT && cs->mbminlen == 1;
        // Only the character sets of one byte have no bytes that are not characters.
        has_bad_bytes_ = cs->mbmaxlen > 1 && !cs->uca;
        choose_weights();
        choose_form(column);
        choose_spaces();
    }

    size_t prefix_bytes(const uint8_t *text, size_t length, size_t characters) const override {
        const char *start = reinterpret_cast<const char *>(text);
        return std::min(length, my_ci_charpos(cs_, start, start + length, characters));
    }

    bool is_plain(const uint8_t *text, size_t length) const override {
        return !has_bad_bytes_ || well_formed_end(text, text + length) == text + length;
    }

    size_t weights_max(size_t length) const override {
        const size_t characters = length / cs_->mbminlen + 1;
        if (cs_->uca) return characters * character_weights_max;
        // The terminators of its passes are weights too.
        if (is_czech(cs_)) return cs_->coll->strnxfrmlen(cs_, length);
        // Each byte may be bad, which is two weights in bytes.
        return std::max<size_t>(2, cs_->strxfrm_multiply) * length;
    }

    void append_weights(unsigned level, const uint8_t *text, size_t length,
                        std::vector<uint32_t> &weights) const override {
        if (is_czech(cs_)) length = space.trimmed(text, length);
        const uint8_t *end = text + length;
        // An empty text has weights too: the terminators of a Czech one.
        do {
            const uint8_t *valid = has_bad_bytes_ ? well_formed_end(text, end) : end;
            if (restores) {
                weights.insert(weights.end(), text, valid);
            } else if (is_big5_chinese(cs_)) {
                append_big5(text, valid, weights);
            } else {
                append_valid(level, text, valid, weights);
            }
            if (valid < end) append_bad_byte(*valid++, weights);
            text = valid;
        } while (text < end);
        if (ends_at_zero_) {
            weights.erase(std::find(weights.begin(), weights.end(), 0), weights.end());
        }
    }

private:
    void choose_weights() {
        if (cs_->uca) {
            unit_bytes = raw_bytes_ = 2;
            levels = 0;
            for (unsigned i = 0; i < levels_max; i++) {
                if (cs_->levels_for_order >> i & 1) level_flag_[levels++] = MY_STRXFRM_LEVEL1 << i;
            }
        } else if (cs_->state & MY_CS_UNICODE && !restores) {
            compact = true;
            raw_bytes_ = cs_->state & MY_CS_BINSORT && cs_->mbmaxlen > 2 ? 3 : 2;
        }
    }

    void choose_form(TextColumn column) {
        const bool pads = !(cs_->state & MY_CS_NOPAD) && !is_czech(cs_);
        const bool is_char = column == TextColumn::Char;
        for (unsigned level = 0; level < levels; level++) {
            if (pads) {
                form[level] = TextForm::Spaces;
            } else if (is_czech(cs_)) {
                form[level] = TextForm::Escaped;
            } else if (is_char) {
                form[level] = TextForm::Counted;
            } else {
                // The server pads the later passes of a comparison without padding.
                form[level] = level == 0 ? TextForm::Escaped : TextForm::Spaces;
            }
        }
        trims_char = form[0] == TextForm::Spaces || is_czech(cs_);
        // Only the Unicode algorithm has characters without weight.
        if (cs_->uca && form[0] == TextForm::Counted) {
            low_filler.length = space.length;
            my_ci_fill(cs_, reinterpret_cast<char *>(low_filler.bytes), low_filler.length,
                       static_cast<int>(cs_->min_sort_char));
        }
        if (!is_thai(cs_)) return;
        // Tone marks move to the end of the text, so spaces before them count; and without padding
        // the server compares only up to a zero.
        trims_char = false;
        if (is_char) form[0] = TextForm::Spaces;
        ends_at_zero_ = form[0] == TextForm::Escaped;
    }

    void choose_spaces() {
        for (unsigned level = 0; level < levels; level++) {
            std::vector<uint32_t> weights;
            append_weights(level, space.bytes, space.length, weights);
            space_weight[level] = weights.empty() ? 0 : weights[0];
        }
    }

    const uint8_t *well_formed_end(const uint8_t *text, const uint8_t *end) const {
        MY_STRCOPY_STATUS status;
        my_ci_well_formed_char_length(cs_, reinterpret_cast<const char *>(text),
                                      reinterpret_cast<const char *>(end),
                                      static_cast<size_t>(end - text), &status);
        const char *error = status.m_well_formed_error_pos;
        return error ? reinterpret_cast<const uint8_t *>(error) : end;
    }

    void append_valid(unsigned level, const uint8_t *text, const uint8_t *end,
                      std::vector<uint32_t> &weights) const {
        // Kept for the next text of this thread.
        static thread_local std::vector<uint8_t> buffer(256);
        const size_t length = static_cast<size_t>(end - text);
        size_t bytes;
        // Each turn doubles the room, and `weights_max` bounds the need.
        while (true) {
            bytes = cs_->coll->strnxfrm(cs_, buffer.data(), buffer.size(), UINT_MAX32, text, length,
                                        level_flag_[level]);
            if (bytes < buffer.size()) break;
            buffer.resize(2 * buffer.size());
        }
        const size_t from = weights.size();
        weights.resize(from + bytes / raw_bytes_);
        const uint8_t *at = buffer.data();
        for (uint32_t *to = weights.data() + from; to < weights.data() + weights.size(); to++) {
            uint32_t weight = *at++;
            for (unsigned i = 1; i < raw_bytes_; i++) weight = weight << 8 | *at++;
            *to = weight;
        }
    }

    void append_big5(const uint8_t *text, const uint8_t *end,
                     std::vector<uint32_t> &weights) const {
        while (text < end) {
            const uint8_t byte = *text++;
            const bool is_single = byte < 0x80;
            weights.push_back(is_single ? cs_->sort_order[byte] : byte);
            if (!is_single && text < end) weights.push_back(*text++);
        }
    }

    void append_bad_byte(uint8_t byte, std::vector<uint32_t> &weights) const {
        if (compact) {
            weights.push_back(bad_byte_weight + byte);
        } else {
            weights.push_back(bad_byte);
            weights.push_back(byte);
        }
    }

    const CHARSET_INFO *cs_;
    bool has_bad_bytes_ = false;
    bool ends_at_zero_ = false;
    // Bytes of a weight that `strnxfrm` writes.
    unsigned raw_bytes_ = 1;
    uint level_flag_[levels_max] = {0};
};

} // namespace

const Collation *server_collation(const charset_info_st *charset, TextColumn column) {
    static std::mutex mutex;
    static std::map<std::pair<uint, TextColumn>, std::unique_ptr<ServerCollation>> known;
    // Names of files: its order is not that of its weights.
    if (is_named(charset, "filename")) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex);
    std::unique_ptr<ServerCollation> &collation = known[{charset->number, column}];
    if (!collation) collation.reset(new ServerCollation(charset, column));
    return collation.get();
}

} // namespace alluvium_sql

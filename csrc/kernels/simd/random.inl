// Blocks are computed side by side, one in each 64-bit lane: the multiply of two 32-bit numbers
// that every instruction set has leaves its 64-bit product there.

constexpr int block_lanes = width / 2;
constexpr int group_blocks = 16;
typedef uint64_t vl __attribute__((vector_size(8 * block_lanes)));
typedef uint32_t vhalf __attribute__((vector_size(4 * block_lanes)));
typedef uint32_t vhalf_unaligned
    __attribute__((vector_size(4 * block_lanes), aligned(4), may_alias));

// Product of the low 32 bits of each lane.
inline vl multiply(vl a, vl b) {
#if SIMD_WIDTH == 16
  return reinterpret_cast<vl>(
      _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
#elif SIMD_WIDTH == 8
  return reinterpret_cast<vl>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
#else
  return reinterpret_cast<vl>(
      _mm_mul_epu32(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
#endif
}

inline vl splat_lane(uint64_t x) { return x - vl{}; }

// One block in each lane; only the low 32 bits of a lane count.
struct Blocks {
  vl word[4];
};

constexpr int rounds = 10;

// The keys of the rounds.
struct Keys {
  uint64_t first[rounds], second[rounds];

  explicit Keys(const Draw& draw) {
    uint32_t key0 = draw.seed[0], key1 = draw.seed[1];
    for (int round = 0; round < rounds; ++round) {
      first[round] = key0;
      second[round] = key1;
      key0 += 0x9E3779B9;
      key1 += 0xBB67AE85;
    }
  }
};

// The upper halves of the lanes moved down; what comes into the upper halves does not count.
inline vl upper(vl x) {
#if SIMD_WIDTH == 16
  return reinterpret_cast<vl>(_mm512_maskz_shuffle_epi32(
      0xffff, reinterpret_cast<__m512i>(x), static_cast<_MM_PERM_ENUM>(0xf5)));
#else
  return x >> 32;
#endif
}

inline vl exclusive_or(vl x, vl y, vl z) {
#if SIMD_WIDTH == 16
  return reinterpret_cast<vl>(_mm512_ternarylogic_epi64(reinterpret_cast<__m512i>(x),
                                                        reinterpret_cast<__m512i>(y),
                                                        reinterpret_cast<__m512i>(z), 0x96));
#else
  return x ^ y ^ z;
#endif
}

[[gnu::always_inline]] inline Blocks philox(const Draw& draw, const Keys& keys,
                                            uint32_t first_block) {
  Blocks x;
  for (int i = 0; i < block_lanes; ++i) {
    x.word[0][i] = first_block + static_cast<uint32_t>(i);
  }
  x.word[1] = splat_lane(draw.counter);
  x.word[2] = splat_lane(draw.salt);
  x.word[3] = splat_lane(draw.replica);
#pragma GCC unroll 10
  for (int round = 0; round < rounds; ++round) {
    const vl a = multiply(x.word[0], splat_lane(0xD2511F53));
    const vl b = multiply(x.word[2], splat_lane(0xCD9E8D57));
    x = {{exclusive_or(upper(b), x.word[1], splat_lane(keys.first[round])), b,
          exclusive_or(upper(a), x.word[3], splat_lane(keys.second[round])), a}};
  }
  return x;
}

inline void random_words(const Draw& draw, int64_t first, int64_t groups, uint32_t* out) {
  const Keys keys(draw);
  for (int64_t group = 0; group < groups; ++group, out += random_group) {
    const auto block = static_cast<uint32_t>((first + group) * group_blocks);
    for (int lane = 0; lane < group_blocks; lane += block_lanes) {
      const Blocks x = philox(draw, keys, block + static_cast<uint32_t>(lane));
      for (int word = 0; word < 4; ++word) {
        *reinterpret_cast<vhalf_unaligned*>(out + word * group_blocks + lane) =
            __builtin_convertvector(x.word[word], vhalf);
      }
    }
  }
}

inline void random_dropout(const Draw& draw, int64_t first, int64_t n, uint32_t threshold,
                           float scale, const float* x, float* out) {
  constexpr int32_t flip = INT32_MIN;  // makes the signed comparison one of unsigned numbers
  const vi least = splat(static_cast<int32_t>(threshold ^ 0x80000000u));
  const vf factor = splat(scale);
  constexpr int64_t most = 4 * random_group;  // words made at once
  uint32_t words[most];
  for (int64_t done = 0; done < n; done += most) {
    const int64_t count = std::min<int64_t>(most, n - done);
    random_words(draw, (first + done) / random_group, (count + random_group - 1) / random_group,
                 words);
    int64_t i = 0;
    for (; i + width <= count; i += width) {
      const vi word = load(reinterpret_cast<const int32_t*>(words) + i) ^ flip;
      store(out + done + i, load(x + done + i) * select(word >= least, factor, vf{}));
    }
    for (; i < count; ++i) out[done + i] = x[done + i] * (words[i] >= threshold ? scale : 0.0f);
  }
}

// Words as numbers in (0, 1], of 24 bits.
inline vf unit_open(const uint32_t* words) {
  const vi bits = reinterpret_cast<vi>(
      reinterpret_cast<vu>(load(reinterpret_cast<const int32_t*>(words))) >> 8);
  return (to_float(bits) + 1.0f) * 0x1p-24f;
}

inline void random_normal(const uint32_t* a, const uint32_t* b, int64_t n, float mean, float std,
                          float* out) {
  for (int64_t i = 0; i < n; i += width) {
    uint32_t first[width] = {}, second[width] = {};
    const int64_t count = std::min<int64_t>(width, n - i);
    std::memcpy(first, a + i, static_cast<size_t>(count) * 4);
    std::memcpy(second, b + i, static_cast<size_t>(count) * 4);
    const vf radius = sqrt(-2.0f * log(unit_open(first)));
    const vf value = mean + std * (radius * cos(6.28318530717958648f * unit_open(second)));
    store_part(out + i, value, count);
  }
}

// Magnitude `rest` rounded, but for what is beyond `most`, the format's largest number: from
// `infinite` on infinity is nearer. NaN stays.
inline vi in_range(vi rest, vi rounded, int32_t most, int32_t infinite) {
  constexpr int32_t infinity = 0x7f800000;
  const vi beyond = select(rest >= infinite, splat(infinity), splat(most));
  const vi finite = select(rest > most, beyond, rounded);
  return select(rest > infinity, rest, finite);
}

// The random bits stand where the bits are that go: they carry into those that stay as often as
// the part that goes is large.
inline vf chance_bf16(vf x, vi word) {
  const vi rest = as_int(x) & INT32_MAX;
  const vi rounded = (rest + ((word >> 16) & 0xffff)) & -0x10000;
  return as_float((as_int(x) & INT32_MIN) | in_range(rest, rounded, 0x7f7f0000, 0x7f7f8000));
}

inline vf chance_f16(vf x, vi word) {
  constexpr int32_t least_normal = 0x38800000;
  const vi rest = as_int(x) & INT32_MAX;
  const vi normal = (rest + (word & 0x1fff)) & -0x2000;
  // Below it numbers lie 2^-24 apart. The 23 bits of chance are the middles of their intervals.
  const vf steps = as_float(rest) * 0x1p24f, whole = trunc(steps);
  const vf chance = (to_float((word >> 9) & 0x7fffff) + 0.5f) * 0x1p-23f;
  const vf up = select(chance < steps - whole, splat(1.0f), vf{});
  const vi rounded = select(rest < least_normal, as_int((whole + up) * 0x1p-24f), normal);
  return as_float((as_int(x) & INT32_MIN) | in_range(rest, rounded, 0x477fe000, 0x477ff000));
}

template <vf (*round_one)(vf, vi)>
inline void random_round(const Draw& draw, int64_t first, int64_t n, const float* x, float* out) {
  constexpr int64_t most = 4 * random_group;  // words made at once
  uint32_t words[most];
  for (int64_t done = 0; done < n; done += most) {
    const int64_t count = std::min<int64_t>(most, n - done);
    random_words(draw, (first + done) / random_group, (count + random_group - 1) / random_group,
                 words);
    for (int64_t i = 0; i < count; i += width) {
      const vi word = load(reinterpret_cast<const int32_t*>(words) + i);
      const int64_t rest = count - i;
      if (rest >= width) {
        store(out + done + i, round_one(load(x + done + i), word));
      } else {
        store_part(out + done + i, round_one(load_part(x + done + i, rest), word), rest);
      }
    }
  }
}

inline constexpr RandomTable random_functions = {random_words, random_dropout, random_normal,
                                                 random_round<chance_f16>,
                                                 random_round<chance_bf16>};

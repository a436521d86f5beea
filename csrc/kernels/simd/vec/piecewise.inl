// Functions by pieces: their range is cut into equal pieces with a polynomial of degree 5 for each,
// whose coefficients are looked up by permuting registers. Narrower instruction sets have no such
// permutation and take a formula. Included by each_isa.h after math.inl.

#if SIMD_WIDTH == 16

struct Piece {
  vi number;  // in its low bits
  vf offset;  // from the middle, in pieces: at most 1/2
};

[[gnu::always_inline]] inline Piece piece_of(vf x, float pieces_per_unit) {
  constexpr float shift = 12582912.0f;  // adding 1.5 * 2^23 rounds to a whole number
  const vf scale = splat(pieces_per_unit), rounded = multiply_add(x, scale, splat(shift));
  return {as_int(rounded), multiply_add(x, scale, shift - rounded)};
}

constexpr int piece_terms = 6;

[[gnu::always_inline]] inline vf pick(const float (&table)[16], vi number) {
  return _mm512_maskz_permutexvar_ps(0xffff, reinterpret_cast<__m512i>(number), load(table));
}
[[gnu::always_inline]] inline vf pick(const float (&table)[32], vi number) {
  return _mm512_maskz_permutex2var_ps(0xffff, load(table), reinterpret_cast<__m512i>(number),
                                      load(table + 16));
}

// Coefficients by power, then by piece.
template <int pieces>
[[gnu::always_inline]] inline vf polynomial(const float (&table)[piece_terms][pieces], Piece at) {
  vf p = pick(table[piece_terms - 1], at.number);
#pragma GCC unroll 8
  for (int i = piece_terms - 2; i >= 0; --i) {
    p = multiply_add(p, at.offset, pick(table[i], at.number));
  }
  return p;
}

// The normal distribution's cdf less 1/2; from 5.75 on it rounds to 1/2.
constexpr float cdf_end = 5.75f, cdf_pieces = 2.6086957454681396f;  // a unit
alignas(64) constexpr float cdf_table[piece_terms][16] = {
    {1.63603645e-11f, 1.49263680e-01f, 2.78360128e-01f, 3.74928057e-01f, 4.37403113e-01f,
     4.72359866e-01f, 4.89275903e-01f, 4.96355385e-01f, 4.98917699e-01f, 4.99719709e-01f,
     4.99936789e-01f, 4.99987602e-01f, 4.99997884e-01f, 4.99999702e-01f, 4.99999970e-01f,
     5.00000000e-01f},
    {1.52927861e-01f, 1.42094761e-01f, 1.13986209e-01f, 7.89422393e-02f, 4.72008027e-02f,
     2.43653227e-02f, 1.08586997e-02f, 4.17797919e-03f, 1.38783432e-03f, 3.98008007e-04f,
     9.85437000e-05f, 2.10643884e-05f, 3.88733406e-06f, 6.19352420e-07f, 8.51936051e-08f,
     1.01171809e-08f},
    {5.34156861e-08f, -1.04397200e-02f, -1.67493075e-02f, -1.74000543e-02f, -1.38718765e-02f,
     -8.95102601e-03f, -4.78697615e-03f, -2.14878144e-03f, -8.15722160e-04f, -2.63161957e-04f,
     -7.23893972e-05f, -1.70185831e-05f, -3.42549856e-06f, -5.91082255e-07f, -8.75262529e-08f,
     -1.11312435e-08f},
    {-3.74574936e-03f, -2.96861096e-03f, -1.15077861e-03f, 6.23470580e-04f, 1.56183890e-03f,
     1.59541110e-03f, 1.14088377e-03f, 6.34432363e-04f, 2.85662070e-04f, 1.06271509e-04f,
     3.30490147e-05f, 8.65586935e-06f, 1.91898448e-06f, 3.61417932e-07f, 5.79812642e-08f,
     7.93948995e-09f},
    {1.49896505e-06f, 3.61573155e-04f, 4.91207233e-04f, 3.56048753e-04f, 1.11145615e-04f,
     -7.21801698e-05f, -1.33166308e-04f, -1.10267487e-04f, -6.41446022e-05f, -2.89129184e-05f,
     -1.05050558e-05f, -3.14011709e-06f, -7.81640267e-07f, -1.63310474e-07f, -2.87970057e-08f,
     -4.30265779e-09f},
    {8.05367818e-05f, 5.44232207e-05f, -3.54320150e-06f, -4.48741375e-05f, -4.71510903e-05f,
     -2.43302420e-05f, -1.60115474e-06f, 8.65854417e-06f, 8.71606608e-06f, 5.25383712e-06f,
     2.33207584e-06f, 8.13553982e-07f, 2.29884037e-07f, 5.35119469e-08f, 1.03709796e-08f,
     1.68566139e-09f},
};

// tanh(x) / x; from 9.02 on tanh rounds to 1.
constexpr float tanh_end = 9.02f, tanh_pieces = 3.436807155609131f;  // a unit
alignas(64) constexpr float tanh_table[piece_terms][32] = {
    {1.00000000e+00f, 9.72703278e-01f, 9.00565028e-01f, 8.05182278e-01f, 7.06519365e-01f,
     6.16319537e-01f, 5.38946569e-01f, 4.74542379e-01f, 4.21507448e-01f, 3.77830476e-01f,
     3.41645628e-01f, 3.11401814e-01f, 2.85869926e-01f, 2.64095932e-01f, 2.45344087e-01f,
     2.29046330e-01f, 2.14761600e-01f, 2.02144697e-01f, 1.90922946e-01f, 1.80878878e-01f,
     1.71837330e-01f, 1.63655877e-01f, 1.56217650e-01f, 1.49425939e-01f, 1.43200055e-01f,
     1.37472153e-01f, 1.32184818e-01f, 1.27289116e-01f, 1.22743092e-01f, 1.18510582e-01f,
     1.14560232e-01f, 1.10864744e-01f},
    {-3.42862805e-08f, -5.28065898e-02f, -8.76075998e-02f, -9.97250006e-02f, -9.56730992e-02f,
     -8.40585455e-02f, -7.07054213e-02f, -5.83905093e-02f, -4.80229259e-02f, -3.96443084e-02f,
     -3.29837762e-02f, -2.77078301e-02f, -2.35139634e-02f, -2.01557931e-02f, -1.74418911e-02f,
     -1.52266184e-02f, -1.33999977e-02f, -1.18789757e-02f, -1.06005557e-02f, -9.51661915e-03f,
     -8.59010313e-03f, -7.79219810e-03f, -7.10030133e-03f, -6.49651233e-03f, -5.96652552e-03f,
     -5.49880927e-03f, -5.08399028e-03f, -4.71438933e-03f, -4.38366970e-03f, -4.08656523e-03f,
     -3.81867099e-03f, -3.57628008e-03f},
    {-2.82199401e-02f, -2.29477324e-02f, -1.15002301e-02f, -1.25250989e-03f, 4.54833731e-03f,
     6.58329250e-03f, 6.55008107e-03f, 5.69761451e-03f, 4.67094686e-03f, 3.73216835e-03f,
     2.95684370e-03f, 2.34447792e-03f, 1.86989061e-03f, 1.50414801e-03f, 1.22180325e-03f,
     1.00255990e-03f, 8.30924080e-04f, 6.95304188e-04f, 5.87093935e-04f, 4.99907997e-04f,
     4.28991916e-04f, 3.70783906e-04f, 3.22595268e-04f, 2.82379158e-04f, 2.48563505e-04f,
     2.19929978e-04f, 1.95526052e-04f, 1.74600544e-04f, 1.56556140e-04f, 1.40914155e-04f,
     1.27288004e-04f, 1.15363320e-04f},
    {-6.86527346e-06f, 3.22616054e-03f, 3.94793088e-03f, 2.71162367e-03f, 1.21274986e-03f,
     2.45513947e-04f, -1.98250971e-04f, -3.35701567e-04f, -3.35283112e-04f, -2.86951021e-04f,
     -2.30219724e-04f, -1.79525989e-04f, -1.38507123e-04f, -1.06741703e-04f, -8.26127653e-05f,
     -6.44049360e-05f, -5.06577271e-05f, -4.02294390e-05f, -3.22622327e-05f, -2.61234691e-05f,
     -2.13500625e-05f, -1.76034027e-05f, -1.46351631e-05f, -1.22622505e-05f, -1.03487237e-05f,
     -8.79286017e-06f, -7.51790094e-06f, -6.46543185e-06f, -5.59061482e-06f, -4.85874398e-06f,
     -4.24273640e-06f, -3.72129102e-06f},
    {9.82346828e-04f, 5.32496721e-04f, -1.32392204e-04f, -3.95205745e-04f, -3.18100821e-04f,
     -1.68691913e-04f, -6.45085092e-05f, -1.23119344e-05f, 8.35251285e-06f, 1.40258944e-05f,
     1.37039724e-05f, 1.14942295e-05f, 9.04604713e-06f, 6.91812602e-06f, 5.22975961e-06f,
     3.94430435e-06f, 2.98382679e-06f, 2.27116811e-06f, 1.74251602e-06f, 1.34887046e-06f,
     1.05391860e-06f, 8.31208752e-07f, 6.61610727e-07f, 5.31307023e-07f, 4.30293028e-07f,
     3.51290055e-07f, 2.88969119e-07f, 2.39399981e-07f, 1.99661386e-07f, 1.67564238e-07f,
     1.41454663e-07f, 1.20072912e-07f},
    {-4.79474802e-05f, -1.40371892e-04f, -1.01598453e-04f, -8.41455676e-06f, 2.96377548e-05f,
     2.67231135e-05f, 1.50315354e-05f, 6.58331965e-06f, 2.21266441e-06f, 3.32589622e-07f,
     -3.38494942e-07f, -4.97098142e-07f, -4.66345426e-07f, -3.81869796e-07f, -2.94984915e-07f,
     -2.21804868e-07f, -1.64881882e-07f, -1.22219220e-07f, -9.07966538e-08f, -6.78103191e-08f,
     -5.10058378e-08f, -3.86817867e-08f, -2.95933269e-08f, -2.28437820e-08f, -1.77915123e-08f,
     -1.39779068e-08f, -1.10746052e-08f, -8.84536089e-09f, -7.11928738e-09f, -5.77187675e-09f,
     -4.71180694e-09f, -3.87151067e-09f},
};

[[gnu::always_inline]] inline vf at_most(float limit, vf x) {  // NaN stays
  return _mm512_maskz_min_ps(0xffff, splat(limit), x);
}

// Within 2 units in the last place.
[[gnu::always_inline]] inline vf tanh(vf x) {
  const vf t = at_most(tanh_end, abs(x));
  const vf out = t * polynomial(tanh_table, piece_of(t, tanh_pieces));
  return copysign(at_most(1.0f, out), x);
}

// The probability that a normal variable is below x, within 2^-24.
[[gnu::always_inline]] inline vf normal_cdf(vf x) {
  const vf t = at_most(cdf_end, abs(x));
  return 0.5f + copysign(polynomial(cdf_table, piece_of(t, cdf_pieces)), x);
}

#else

[[gnu::always_inline]] inline vf tanh(vf x) {
  const vf a = abs(x);
  const vf t = expm1_within(select(a > 10.0f, splat(20.0f), a + a));
  return copysign(t * reciprocal(t + 2.0f), x);
}

[[gnu::always_inline]] inline vf normal_cdf(vf x) {
  return 0.5f * (1.0f + erf(x * 0.707106781f));
}

#endif

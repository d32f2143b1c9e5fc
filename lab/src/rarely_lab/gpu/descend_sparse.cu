// J gradient steps of many small networks whose samples differ from one row in few columns: one-hot contexts, say.
//
//   u(x) = sum_j v_j max(0, w_j.x)      loss = sum_i (u(x_i) - y_i)^2/2 + ridge |theta - theta_0|^2/2
//   x_i = base + sum_p value_p e(column_p)
//
// One block a replica. W lies in shared memory column by column, so that a lane reads its units j = lane + 32 k, k < U,
// without conflicts. Forward, a warp takes a sample and adds the columns in which it differs to W base; it leaves the
// residual and a bit for each active unit. Backward, a warp takes a column and sums, in registers, over the samples that
// have it: no two warps write one weight, and sums are always added in one order.
//
// D, U and WARPS are defined by the compiler's options; arrays of units have 32 U, those beyond the last are 0.

// Lanes read 32 entries of a list together, and hand them around: an entry that all lanes read at once would be waited for.
// Beyond the end there are zeros, which add nothing.
__device__ __forceinline__ int2 entry(const int2* list, int at, int end) { return at < end ? __ldg(list + at) : int2{0, 0}; }

extern "C" __global__ __launch_bounds__(32 * WARPS, 1)
void descend_sparse(const int2* by_row, const int* row_ends, const int2* by_column, const int* column_ends,
                    const float* base, const float* y, const float* w0, const float* v0, float* w_out, float* v_out,
                    const int* counts, const float* step_sizes, int rows, int steps, float ridge) {
  extern __shared__ float shared[];
  const int units = 32 * U, replica = blockIdx.x, t = threadIdx.x, lane = t & 31, warp = t >> 5;
  float* w = shared;                          // (D, units)
  float* v = w + D * units;                   // (units,)
  float* common = v + units;                  // (units,), W base
  float* parts = common + units;              // (WARPS, 2, units), sums of e [h > 0] and of e max(0, h)
  float* residual = parts + 2 * WARPS * units;         // (rows,)
  unsigned* active = (unsigned*)(residual + rows);     // (rows, U)
  const int n = counts[replica];
  const float step = step_sizes[replica];
  row_ends += (size_t)replica * rows; column_ends += (size_t)replica * D;
  base += (size_t)replica * D; y += (size_t)replica * rows;
  w0 += (size_t)replica * D * units; v0 += (size_t)replica * units;
  w_out += (size_t)replica * D * units; v_out += (size_t)replica * units;
  for (int at = t; at < D * units; at += 32 * WARPS) w[at] = w0[at];
  for (int j = t; j < units; j += 32 * WARPS) v[j] = v0[j];
  __syncthreads();
  for (int taken = 0; taken < steps; ++taken) {
    for (int j = t; j < units; j += 32 * WARPS) {
      float sum = 0.f;
      #pragma unroll 8
      for (int d = 0; d < D; ++d) sum = fmaf(w[d * units + j], __ldg(base + d), sum);
      common[j] = sum;
    }
    __syncthreads();
    float slopes[U], lasts[U];
    #pragma unroll
    for (int k = 0; k < U; ++k) slopes[k] = lasts[k] = 0.f;
    for (int i = warp; i < n; i += WARPS) {
      float h[U], u = 0.f;
      #pragma unroll
      for (int k = 0; k < U; ++k) h[k] = common[lane + 32 * k];
      // Ends are counted over all replicas, so an entry's place is where the one before ends.
      const int first = replica | i ? __ldg(row_ends + i - 1) : 0, end = __ldg(row_ends + i);
      for (int from = first; from < end; from += 32) {
        const int2 own = entry(by_row, from + lane, end);
        const int count = min(32, end - from);
        for (int p = 0; p < count; p += 4)
          #pragma unroll
          for (int q = p; q < p + 4; ++q) {
            const float* column = w + __shfl_sync(~0u, own.x, q) * units + lane;
            const float value = __int_as_float(__shfl_sync(~0u, own.y, q));
            #pragma unroll
            for (int k = 0; k < U; ++k) h[k] = fmaf(column[32 * k], value, h[k]);
          }
      }
      #pragma unroll
      for (int k = 0; k < U; ++k) u = fmaf(v[lane + 32 * k], fmaxf(h[k], 0.f), u);
      #pragma unroll
      for (int half = 16; half; half /= 2) u += __shfl_xor_sync(~0u, u, half);
      const float e = u - __ldg(y + i);
      #pragma unroll
      for (int k = 0; k < U; ++k) {
        const unsigned bits = __ballot_sync(~0u, h[k] > 0.f);
        if (lane == 0) active[i * U + k] = bits;
        slopes[k] += h[k] > 0.f ? e : 0.f;
        lasts[k] = fmaf(e, fmaxf(h[k], 0.f), lasts[k]);
      }
      if (lane == 0) residual[i] = e;
    }
    #pragma unroll
    for (int k = 0; k < U; ++k) {
      parts[(2 * warp) * units + lane + 32 * k] = slopes[k];
      parts[(2 * warp + 1) * units + lane + 32 * k] = lasts[k];
    }
    __syncthreads();
    for (int at = t; at < 2 * units; at += 32 * WARPS) {
      float sum = 0.f;
      for (int from = 0; from < WARPS; ++from) sum += parts[2 * from * units + at];
      parts[at] = sum;
    }
    __syncthreads();
    for (int d = warp; d < D; d += WARPS) {
      float sums[U];
      const float shared_by_all = __ldg(base + d);
      #pragma unroll
      for (int k = 0; k < U; ++k) sums[k] = shared_by_all * parts[lane + 32 * k];
      const int first = replica | d ? __ldg(column_ends + d - 1) : 0, end = __ldg(column_ends + d);
      for (int from = first; from < end; from += 32) {
        const int2 own = entry(by_column, from + lane, end);
        const float slope = residual[own.x] * __int_as_float(own.y);
        unsigned bits[U];
        #pragma unroll
        for (int k = 0; k < U; ++k) bits[k] = active[own.x * U + k];
        const int count = min(32, end - from);
        for (int p = 0; p < count; p += 4)
          #pragma unroll
          for (int q = p; q < p + 4; ++q) {
            const float e = __shfl_sync(~0u, slope, q);
            #pragma unroll
            for (int k = 0; k < U; ++k) sums[k] += __shfl_sync(~0u, bits[k], q) >> lane & 1u ? e : 0.f;
          }
      }
      #pragma unroll
      for (int k = 0; k < U; ++k) {
        const int at = d * units + lane + 32 * k;
        w[at] -= step * (v[lane + 32 * k] * sums[k] + ridge * (w[at] - w0[at]));
      }
    }
    __syncthreads();
    for (int j = t; j < units; j += 32 * WARPS) v[j] -= step * (parts[units + j] + ridge * (v[j] - v0[j]));
    __syncthreads();
  }
  for (int at = t; at < D * units; at += 32 * WARPS) w_out[at] = w[at];
  for (int j = t; j < units; j += 32 * WARPS) v_out[j] = v[j];
}

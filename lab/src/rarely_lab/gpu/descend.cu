// J gradient steps of many small networks: one block a replica, all of its units in every warp.
//
//   u(x) = sum_j v_j max(0, w_j.x)      loss = sum_i (u(x_i) - y_i)^2/2 + ridge |theta - theta_0|^2/2
//
// A lane owns the units j = lane + 32 k, k < U, and keeps the sums of their gradients in registers for a whole step; their
// weights it reads from shared memory, four columns at a time. A warp takes SAMPLES samples at a time: all lanes read them
// from one address, u is summed by shuffles, and the activations never leave the registers, so that a step costs its two
// products 4nmd and little else. Warps meet once a step. v's gradient needs no sum of its own: sum_i e_i max(0, h_ij) = w_j . sum_i e_i [h_ij > 0] x_i.
//
// D (a multiple of 4), M, U, WARPS and SAMPLES are defined by the compiler's options.

#define AT(d, j) (((d) & ~3) * 32 * U + 4 * (j) + ((d) & 3))  // of weight d of unit j in shared memory

extern "C" __global__ __launch_bounds__(32 * WARPS, 1)
void descend(const float* x, const float* y, const float* w0, const float* v0, float* w_out, float* v_out,
             const int* counts, const float* step_sizes, int rows, int steps, float ridge) {
  extern __shared__ float shared[];
  float* w = shared;                 // (D/4, 32 U, 4)
  float* v = w + D * 32 * U;         // (32 U,)
  float* sums = v + 32 * U;          // (WARPS, D, 32 U)
  const int replica = blockIdx.x, t = threadIdx.x, lane = t & 31, warp = t >> 5, units = 32 * U;
  const int n = counts[replica];
  const float step = step_sizes[replica];
  x += (size_t)replica * rows * D; y += (size_t)replica * rows;
  w0 += (size_t)replica * M * D; v0 += (size_t)replica * M;
  for (int j = t; j < units; j += 32 * WARPS) {
    for (int d = 0; d < D; ++d) w[AT(d, j)] = j < M ? w0[j * D + d] : 0.f;
    v[j] = j < M ? v0[j] : 0.f;
  }
  __syncthreads();
  for (int taken = 0; taken < steps; ++taken) {
    float grown[U][D];
    #pragma unroll
    for (int k = 0; k < U; ++k)
      #pragma unroll
      for (int d = 0; d < D; ++d) grown[k][d] = 0.f;
    for (int first = warp * SAMPLES; first < n; first += WARPS * SAMPLES) {
      float here[SAMPLES][D], h[SAMPLES][U], u[SAMPLES];
      #pragma unroll
      for (int s = 0; s < SAMPLES; ++s) {
        const float4* row = (const float4*)(x + (size_t)min(first + s, n - 1) * D);
        #pragma unroll
        for (int d = 0; d < D; d += 4) *(float4*)(here[s] + d) = __ldg(row + d / 4);
        u[s] = 0.f;
      }
      #pragma unroll
      for (int k = 0; k < U; ++k) {
        float own[D];
        const float out = v[lane + 32 * k];
        #pragma unroll
        for (int d = 0; d < D; d += 4) *(float4*)(own + d) = *(const float4*)(w + d * units + 4 * (lane + 32 * k));
        #pragma unroll
        for (int s = 0; s < SAMPLES; ++s) {
          float sum = 0.f;
          #pragma unroll
          for (int d = 0; d < D; ++d) sum = fmaf(own[d], here[s][d], sum);
          h[s][k] = sum;
          u[s] = fmaf(out, fmaxf(sum, 0.f), u[s]);
        }
      }
      #pragma unroll
      for (int half = 16; half; half /= 2)
        #pragma unroll
        for (int s = 0; s < SAMPLES; ++s) u[s] += __shfl_xor_sync(~0u, u[s], half);
      #pragma unroll
      for (int s = 0; s < SAMPLES; ++s) u[s] = first + s < n ? u[s] - __ldg(y + first + s) : 0.f;
      #pragma unroll
      for (int k = 0; k < U; ++k)
        #pragma unroll
        for (int s = 0; s < SAMPLES; ++s) {
          const float e = h[s][k] > 0.f ? u[s] : 0.f;
          #pragma unroll
          for (int d = 0; d < D; ++d) grown[k][d] = fmaf(e, here[s][d], grown[k][d]);
        }
    }
    #pragma unroll
    for (int k = 0; k < U; ++k)
      #pragma unroll
      for (int d = 0; d < D; ++d) sums[(warp * D + d) * units + lane + 32 * k] = grown[k][d];
    __syncthreads();
    for (int j = t; j < M; j += 32 * WARPS) {
      const float before = v[j];
      float slope = 0.f;
      for (int d = 0; d < D; ++d) {
        float sum = 0.f;
        for (int from = 0; from < WARPS; ++from) sum += sums[(from * D + d) * units + j];
        const float weight = w[AT(d, j)];
        slope = fmaf(weight, sum, slope);
        w[AT(d, j)] = weight - step * (before * sum + ridge * (weight - w0[j * D + d]));
      }
      v[j] = before - step * (slope + ridge * (before - v0[j]));
    }
    __syncthreads();
  }
  for (int j = t; j < M; j += 32 * WARPS) {
    for (int d = 0; d < D; ++d) w_out[((size_t)replica * M + j) * D + d] = w[AT(d, j)];
    v_out[(size_t)replica * M + j] = v[j];
  }
}

"""Why some ops are slow, in Markdown."""

# Of the ops that were slow on an H200. Times are in the tables alone.
CAUSES = """\
What keeps them slow, as far as it is known, and what was tried. Shares of cycles are Nsight Compute's, of a call in
`ncu --clock-control none python -m benchmarks.gpu run --only '/mish$' --size 28 --dtype f32`, for example.

- scatter_add: each sum has the same bits on every run, so its elements are added one after the other in the order of
  their positions, where PyTorch adds with atomics. Lines that fit into shared memory are summed there, longer ones in
  the cache, where each step of a wave waits for the previous one. Votes in place of match.any took longer. The rows
  "both in any order" and "both deterministic" compare like with like. More than a thousand indexes are checked in a
  launch of their own, since nothing may be written if one is out of range.
- divide by a number: PyTorch multiplies by the reciprocal, which rounds twice; tallow divides. So does recip of
  halves, whose quotient in f32 takes a subroutine of the compiler for large and small numbers.
- linear of f32 at 2^16: the same kernel of cuBLAS as PyTorch's, in a profile of both. No cause was found.
- floor_divide: it takes the remainder by fmod, as Python does, which is exact for any quotient.
- Small calls: they wait for their launch, and then for the code of the kernel. One element for each thread of about
  as many blocks as there are multiprocessors took less time than whole packs in fewer blocks, and so did the code of
  few elements in front of that of many. What remains is the size of that code.
- gelu, gelu_erf, silu, sigmoid, rsqrt, sin, cos and tan in f32, and what halves share with them: they are accurate to
  4 units in the last place everywhere, which is more arithmetic. It shows where memory does not bound a call: at 2^20
  elements, which stay in the cache.
- mish in f32, sinh and hypot of halves, remainder of f16 and rand_normal at 2^28 are bound by instructions. Warps
  issue in 78 % of the cycles of rand_normal and in 84 % of those of sinh, whose two exponentials keep the unit of
  special functions busy for 70 %; in mish they did in 77 % when six blocks filled a multiprocessor. Kernels of one
  operand now use at most 32 registers, so that eight do: that took mish from 0.88 of PyTorch's speed to 0.94, atanh
  from 0.92 to 1.00 and log1p of bf16 from 0.94 to 1.01. With two operands div would spill. CuPy draws by XORWOW,
  which is shorter than Philox.
- index_select and index_add: each index is compared with the size and with the mark, and one out of range is
  recorded. Of many rows a thread has four accesses in flight, which took index_select from 0.90 of PyTorch's speed to
  0.99; of few rows that took longer.
- softmax and log_softmax, rows of 64: 4 or 8 threads take a row however many rows there are, so that the bits of a
  row do not depend on the others. 1,024 rows take 16 or 32 blocks, where PyTorch has 128.
- sum and max over the first dim of 2^10 elements: one block, whose threads join what they have of 4 or 8 columns in
  five or six steps through shared memory. rms_norm of a single row: one warp takes it, and writes it as well.
- sum over the last dim of 2^20 elements: each of 1,024 rows takes a block, whose 8 warps join their sums through
  shared memory. They issue in 66 % of the cycles, and a thread reads one access alone.
- sum over all: a second launch adds up what the blocks of the first one have. The last block could do that in one.
- attention of one token each at 2^28: one block of 181 registers a thread fills a multiprocessor, and memory is busy
  for 85 % of the time.
- attention of one token: a third of the time is not spent reading keys: it is the launch, and the last block joining
  the splits, which waits for what the others write, for their counter and for its own reads. Halves go from memory
  straight to the registers of products on matrix cores, which takes a fifth less time than dot products of what comes
  through shared memory. More splits, two blocks for each multiprocessor, keys fetched ahead into the cache and
  accesses that bypass the nearest one took longer. In f32 there are no matrix cores, since they round to TF32.
- attention by own kernels: groups of four warps multiply by Hopper's wgmma, as cuDNN's does, and take turns: one
  makes weights while the other multiplies. The weights take most of what warps issue; the tensor cores wait for them:
  in bf16 they work in 52 % of the cycles of an H100, and a scheduler issues in 39 %.
- attention in f32: tiles of 128 rows leave multiprocessors without a block in small calls, where a warp takes 8 rows:
  the units of multiply-add are not what it keeps busiest. At 2^28 elements these work in 59 % of the cycles, and a
  scheduler issues in 77 %. Lanes side by side that share columns, which take two thirds of the time to read shared
  memory, made no difference. Scores and results take 233 registers, so that one block of 8 warps fits a
  multiprocessor, and no other block works while it waits at its barriers.
- matmul of halves by own kernels: groups of warps multiply by wgmma, as cuBLAS does. Threads copy the operands, where
  cuBLAS has one thread copy tiles for several multiprocessors at once. With sides of 8,192 the tensor cores work in
  81 % of the cycles; then warps wait for each other between the steps. Sides of 1,024 and less make fewer tiles of
  128 by 128 than there are multiprocessors; tiles of 128 by 64 take a fifth less time there. Nobody shares the depth.
- matmul of f32 by own kernels: 512 of the 604 instructions of a step multiply; the rest read shared memory, find
  addresses and wait. A scheduler issues in 79 % of the cycles, and a multiply-add in 65 %. Half of the time of these
  reads went with lanes side by side that share columns (4 -> 2 cycles a read). Tiles of 256 by 128 took 5 % longer
  with one block a multiprocessor than two blocks with tiles of 128 by 128; addresses kept in registers made no
  difference. Few tiles are of 64 by 64, each thread of which reads shared memory twice as often for what it
  multiplies.
- On the host: about half of a small call is the vendor's call that enqueues the kernel, made through Python. The rest
  is the key of its plan, the memory and the object of the result. matmul and linear also pay for what nvmath-python
  checks, and random numbers for a lock around their counter.
"""

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/cuda/backend.h"
#include "kernels/dispatch.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/reduce.h"

namespace lockstep {
namespace {

template <typename... Ops>
void register_all() {
  ((cuda_implementation<Ops> =
        [](Queue& queue, const Ops& op) { run_on_cuda(static_cast<CudaQueue&>(queue), op); }),
   ...);
}

}  // namespace

void register_cuda_kernels() {
  register_all<ActivationBackward,
               AdamW,
               AttentionBackward,
               AttentionForward,
               BiasActivation,
               CastToBFloat16,
               ClassMaxima,
               ClassSums,
               ColumnSum,
               CombineBlocks,
               Dropout,
               Embedding,
               EmbeddingBackward,
               FillZero,
               LossSum,
               MatMul,
               NormBackward,
               NormForward,
               Rotary,
               Sgd,
               SoftmaxCrossEntropy,
               SquaredSums,
               SumTree,
               Swiglu,
               SwigluBackward>();
}

}  // namespace lockstep

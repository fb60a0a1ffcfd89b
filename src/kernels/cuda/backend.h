// The CUDA implementation of every kernel: one line a kernel. register_cuda_kernels lets `dispatch` call them.
// Each reads its op's contract in the header that declares the op.
#pragma once

#include "device/cuda/cuda_queue.h"

namespace lockstep {

struct ActivationBackward;
struct AdamW;
struct AttentionBackward;
struct AttentionForward;
struct BiasActivation;
struct CastToBFloat16;
struct ClassMaxima;
struct ClassSums;
struct ColumnSum;
struct CombineBlocks;
struct Dropout;
struct Embedding;
struct EmbeddingBackward;
struct FillZero;
struct LossSum;
struct MatMul;
struct NormBackward;
struct NormForward;
struct Rotary;
struct Sgd;
struct SoftmaxCrossEntropy;
struct SquaredSums;
struct SumTree;
struct Swiglu;
struct SwigluBackward;

void run_on_cuda(CudaQueue& queue, const ActivationBackward& op);
void run_on_cuda(CudaQueue& queue, const AdamW& op);
void run_on_cuda(CudaQueue& queue, const AttentionBackward& op);
void run_on_cuda(CudaQueue& queue, const AttentionForward& op);
void run_on_cuda(CudaQueue& queue, const BiasActivation& op);
void run_on_cuda(CudaQueue& queue, const CastToBFloat16& op);
void run_on_cuda(CudaQueue& queue, const ClassMaxima& op);
void run_on_cuda(CudaQueue& queue, const ClassSums& op);
void run_on_cuda(CudaQueue& queue, const ColumnSum& op);
void run_on_cuda(CudaQueue& queue, const CombineBlocks& op);
void run_on_cuda(CudaQueue& queue, const Dropout& op);
void run_on_cuda(CudaQueue& queue, const Embedding& op);
void run_on_cuda(CudaQueue& queue, const EmbeddingBackward& op);
void run_on_cuda(CudaQueue& queue, const FillZero& op);
void run_on_cuda(CudaQueue& queue, const LossSum& op);
void run_on_cuda(CudaQueue& queue, const MatMul& op);
void run_on_cuda(CudaQueue& queue, const NormBackward& op);
void run_on_cuda(CudaQueue& queue, const NormForward& op);
void run_on_cuda(CudaQueue& queue, const Rotary& op);
void run_on_cuda(CudaQueue& queue, const Sgd& op);
void run_on_cuda(CudaQueue& queue, const SoftmaxCrossEntropy& op);
void run_on_cuda(CudaQueue& queue, const SquaredSums& op);
void run_on_cuda(CudaQueue& queue, const SumTree& op);
void run_on_cuda(CudaQueue& queue, const Swiglu& op);
void run_on_cuda(CudaQueue& queue, const SwigluBackward& op);

/// To be called once, before anything is launched on a CUDA queue.
void register_cuda_kernels();

}  // namespace lockstep

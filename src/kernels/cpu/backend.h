// The CPU's implementation of every kernel: what `dispatch` calls. One line a kernel.
// Each reads its op's contract in the header that declares the op.
#pragma once

#include "device/cpu/cpu_queue.h"

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

void run_on_cpu(CpuQueue& queue, const ActivationBackward& op);
void run_on_cpu(CpuQueue& queue, const AdamW& op);
void run_on_cpu(CpuQueue& queue, const AttentionBackward& op);
void run_on_cpu(CpuQueue& queue, const AttentionForward& op);
void run_on_cpu(CpuQueue& queue, const BiasActivation& op);
void run_on_cpu(CpuQueue& queue, const CastToBFloat16& op);
void run_on_cpu(CpuQueue& queue, const ClassMaxima& op);
void run_on_cpu(CpuQueue& queue, const ClassSums& op);
void run_on_cpu(CpuQueue& queue, const ColumnSum& op);
void run_on_cpu(CpuQueue& queue, const CombineBlocks& op);
void run_on_cpu(CpuQueue& queue, const Dropout& op);
void run_on_cpu(CpuQueue& queue, const Embedding& op);
void run_on_cpu(CpuQueue& queue, const EmbeddingBackward& op);
void run_on_cpu(CpuQueue& queue, const FillZero& op);
void run_on_cpu(CpuQueue& queue, const LossSum& op);
void run_on_cpu(CpuQueue& queue, const MatMul& op);
void run_on_cpu(CpuQueue& queue, const NormBackward& op);
void run_on_cpu(CpuQueue& queue, const NormForward& op);
void run_on_cpu(CpuQueue& queue, const Rotary& op);
void run_on_cpu(CpuQueue& queue, const Sgd& op);
void run_on_cpu(CpuQueue& queue, const SoftmaxCrossEntropy& op);
void run_on_cpu(CpuQueue& queue, const SquaredSums& op);
void run_on_cpu(CpuQueue& queue, const SumTree& op);
void run_on_cpu(CpuQueue& queue, const Swiglu& op);
void run_on_cpu(CpuQueue& queue, const SwigluBackward& op);

}  // namespace lockstep

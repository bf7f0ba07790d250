// Package gpu computes models on an NVIDIA GPU, with the kernels of package cuda/kernels. A Device is a GPU.
// A Model has weights on a Device. Its method NewRunner makes an engine.ModelRunner.
//
// Activations are F16 or BF16. Keys and values have the type of the activations, or E4M3 or E5M2. Weights are
// stored as in the file if a kernel reads their type, and otherwise in the type of the activations. Sums and
// logits are float32.
//
// The bits of a token's logits depend only on its sequence, because every kernel computes a row in the same
// way in every batch.
//
// The GPU chooses the tokens that sampling.Sampler would choose from the same logits, and sends only logits of which log
// probabilities are asked for.
//
// Decoding steps are padded, so that few different shapes occur, and are captured as graphs.
//
// Check refuses models that cannot be computed, such as those with experts. If there is no kernel for the
// size of a model's heads, the heads are padded with zeros.
package gpu

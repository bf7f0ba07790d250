// Package gpu computes models on an NVIDIA GPU, with the kernels of package cuda/kernels. A Device is a
// GPU. A Model has its weights there; its NewRunner makes an engine.ModelRunner.
//
// Activations are F16 or BF16, and so are keys and values, or E4M3 or E5M2. Weights are stored as in the file if a kernel reads their
// type, else in the activations' type. Sums are float32, and logits too.
//
// The bits of a token's logits depend on its sequence alone, because every kernel computes a row in the same way in every batch.
//
// Decoding steps are padded, so that few shapes occur, and captured as graphs.
//
// Check refuses models that cannot be computed, such as those with experts. Heads of a size that the kernels do
// not have are padded with zeros.
package gpu

package v0

import "fmt"

// Kernel is which of the two attention kernels decodes a batch.
type Kernel uint8

const (
	KernelV1 Kernel = 1 // a sequence and head is one thread block's work
	KernelV2 Kernel = 2 // split into partitions, whose results are then reduced
)

// Partition is how many tokens of context a thread block of KernelV2 takes.
const Partition = 512

// ChooseKernel decides: one partition needs no reduction, and many sequences
// and heads keep the GPU busy without partitions; but the shared memory of
// KernelV1 ends at 8,192 tokens of context (§7). A block must divide Partition.
func ChooseKernel(sequences, heads, maxContext, blockSize int) (Kernel, error) {
	if blockSize < 1 || Partition%blockSize != 0 {
		return 0, fmt.Errorf("%w: blocks of %d tokens do not divide a partition of %d", ErrConfig, blockSize, Partition)
	}
	if maxContext <= 8192 && (ceil(maxContext, Partition) == 1 || sequences*heads > 512) {
		return KernelV1, nil
	}
	return KernelV2, nil
}

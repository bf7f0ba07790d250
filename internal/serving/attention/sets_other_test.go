//go:build !amd64

package attention

func instructionSets() []kernels { return []kernels{portable{}} }

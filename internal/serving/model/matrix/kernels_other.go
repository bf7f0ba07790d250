//go:build !amd64 || purego

package matrix

import "math"

// Kernels names the instruction set in use.
func Kernels() string { return "portable" }

const tileRows = 8

func maxDirectRows(Type) int { return 0 }

func (m *Matrix) multiply(*float32, int, *float32, int, *byte, int) {}

func (m *Matrix) decode(dst *float32, p, k, n int) { m.portableDecode(dst, p, k, n) }

func tile(dst *float32, dstStride int, x *float32, xStride int, w *byte, _ uintptr, k, rows int) {
	portableTile(dst, dstStride, x, xStride, w, k, rows)
}

func groupOf(int) int { return 0 }

func kernelRows(rows int) int { return rows }

func (m *Matrix) wide([]float32, *words, int, int, int, *Scratch) {}

func addPanels(_, _ []float32) int { return 0 }

func gather([]float32, int, *[4][]float32) int { return 0 }

func exp([]float32, float32, float32) int { return 0 }

func largest([]float32) (int, float32) { return 0, float32(math.Inf(-1)) }

func siluMul(_, _, _ []float32) int { return 0 }

func shortsOf(_, _ []float32) int { return 0 }

func pairsOf(_, _ []float32) int { return 0 }

func quantize([]int8, []step, []step, []float32) bool { return false }

func (m *Matrix) dotSlab(sums []float32, x *Input, p, k, n int, _ *Scratch) {
	m.portableDot(sums, x, p, k, n)
}

func (m *Matrix) writesResult(int) bool { return false }

// Tiles returns the forms for which products use tiles of AMX: none.
func Tiles() Form { return 0 }

func (m *Matrix) chooseKernels() {}

func (m *Matrix) compute([]float32, int, *Input, int, *Scratch) {}

func updateState(_, _, _, _, _ []float32, _ float32) int { return 0 }

func readState(_, _, _ []float32) int { return 0 }

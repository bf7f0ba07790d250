package kernels_test

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

var (
	ptxKernel  = regexp.MustCompile(`(?ms)^\.visible \.entry (\w+)\(.*?^\{\n(.*?)^\}`)
	ptxLabel   = regexp.MustCompile(`^(\$\w+):`)
	ptxBranch  = regexp.MustCompile(`^(@!?%\w+\s+)?bra(?:\.uni)?\s+(\$\w+);`)
	ptxMMA     = regexp.MustCompile(`^mma\.sync\S+ \{[^}]*\}, \{([^}]*)\}`)
	ptxVector  = regexp.MustCompile(`^ld\.shared\.v4\.u32 \{([^}]*)\}`)
	ptxRounded = regexp.MustCompile(`^cvt\.rn\.b?f16x2\.f32 (%\w+),`)
)

// A basicBlock is a run of PTX instructions that are executed one after the other.
type basicBlock struct {
	instructions []string
	next         []int // the blocks that can follow
}

// ptxKernels returns the instructions of the kernels of a file, as basic blocks.
func ptxKernels(t *testing.T, file string) map[string][]basicBlock {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	all := map[string][]basicBlock{}
	for _, found := range ptxKernel.FindAllSubmatch(text, -1) {
		all[string(found[1])] = basicBlocks(string(found[2]))
	}
	return all
}

func basicBlocks(body string) []basicBlock {
	blocks, labels := []basicBlock{{}}, map[string]int{}
	targets, falls := map[int]string{}, map[int]bool{}
	end := func(target string, falling bool) {
		i := len(blocks) - 1
		targets[i], falls[i] = target, falling
		blocks = append(blocks, basicBlock{})
	}
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		if found := ptxLabel.FindStringSubmatch(line); found != nil {
			end("", true)
			labels[found[1]] = len(blocks) - 1
			continue
		}
		if line == "" || strings.HasPrefix(line, ".") || strings.HasPrefix(line, "//") {
			continue
		}
		b := &blocks[len(blocks)-1]
		b.instructions = append(b.instructions, line)
		if found := ptxBranch.FindStringSubmatch(line); found != nil {
			end(found[2], found[1] != "")
		} else if line == "ret;" {
			end("", false)
		}
	}
	for i := range blocks {
		if falls[i] && i+1 < len(blocks) {
			blocks[i].next = append(blocks[i].next, i+1)
		}
		if to, ok := labels[targets[i]]; ok {
			blocks[i].next = append(blocks[i].next, to)
		}
	}
	return blocks
}

func (b *basicBlock) count(prefix string) (n int) {
	for _, line := range b.instructions {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// Ensure that the four registers of each first operand of mma come from one load in their order, or were each rounded
// for it. The GPU needs them in consecutive registers. From two loads it would have to copy them, before every mma if no
// registers are left.
func TestOperandsOfMMAComeFromOneLoad(t *testing.T) {
	level.SkipNormal(t)
	files, err := filepath.Glob("*.ptx")
	require.NoError(t, err)
	operands := 0
	for _, file := range files {
		for name, blocks := range ptxKernels(t, file) {
			loaded, rounded := map[string]bool{}, map[string]bool{}
			for _, b := range blocks {
				for _, line := range b.instructions {
					if found := ptxVector.FindStringSubmatch(line); found != nil {
						loaded[found[1]] = true
					} else if found := ptxRounded.FindStringSubmatch(line); found != nil {
						rounded[found[1]] = true
					}
				}
			}
			for _, b := range blocks {
				for _, line := range b.instructions {
					found := ptxMMA.FindStringSubmatch(line)
					if found == nil {
						continue
					}
					operands++
					if !loaded[found[1]] {
						for _, register := range strings.Split(found[1], ", ") {
							require.True(t, rounded[register], "%s: %s", name, line)
						}
					}
				}
			}
		}
	}
	require.Greater(t, operands, 1000)
}

// Ensure that a step of the kernel for products of many rows has at most 150 instructions for its 64 mma, and no moves:
// the shortest way around its loop, which is that of 256 threads.
func TestAStepOfManyRowsHasFewInstructions(t *testing.T) {
	for _, kind := range []string{"f16", "bf16"} {
		blocks := ptxKernels(t, "products_"+kind+".ptx")["product_plain_"+kind+"_many"]
		mma := slices.IndexFunc(blocks, func(b basicBlock) bool { return b.count("mma.sync") > 0 })
		require.Positive(t, mma)
		require.Equal(t, 64, blocks[mma].count("mma.sync"))
		require.Zero(t, blocks[mma].count("mov."))
		least := math.MaxInt
		for i, b := range blocks {
			if b.count("cp.async.cg") >= 4 {
				least = min(least, distance(blocks, mma, i)+distance(blocks, i, mma))
			}
		}
		require.LessOrEqual(t, least, 150, kind)
	}
}

// distance returns the number of instructions from the beginning of a block to the beginning of another one, on the
// shortest way, or a large number if there is no way.
func distance(blocks []basicBlock, start, end int) int {
	least := make([]int, len(blocks))
	for i := range least {
		least[i] = math.MaxInt / 4
	}
	for _, next := range blocks[start].next {
		least[next] = len(blocks[start].instructions)
	}
	for range blocks { // Bellman and Ford
		for i, b := range blocks {
			for _, next := range b.next {
				least[next] = min(least[next], least[i]+len(b.instructions))
			}
		}
	}
	return least[end]
}

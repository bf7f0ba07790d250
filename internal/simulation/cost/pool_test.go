package cost

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that a token's keys and values have the right number of bytes (simulation/PAPER.md §1, §5).
func TestKVBytesPerToken(t *testing.T) {
	for name, bytes := range map[string]int64{
		"opt-13b": 819_200, "opt-66b": 2_359_296, "opt-175b": 4_718_592, "llama-13b": 819_200, "llama-3-8b": 131_072,
		"llama-3.1-405b": 516_096, "mixtral-8x7b": 131_072, "qwen2.5-0.5b": 12_288, "qwen3-32b": 262_144,
	} {
		require.Equal(t, bytes, llm(t, name).KVBytesPerToken(), name)
	}
}

// Ensure that pools have the sizes in the paper: 983 blocks for OPT-13B, and Table 1 for other models
// (simulation/PAPER.md §1).
func TestThePoolsAreThePapers(t *testing.T) {
	for name, c := range map[string]struct {
		blocks    int
		tolerance float64 // of blocks
		slots     int     // table 1
		gib       float64
	}{
		"paper-opt-13b":  {983, 0, 15_700, 12},
		"paper-opt-66b":  {603, 0, 9_700, 21.2},
		"paper-opt-175b": {3752, 0.01, 60_100, 263.9},
	} {
		s := setup(t, name)
		gpu, cpu, err := s.Pool(16)
		require.NoError(t, err)
		require.InDelta(t, c.blocks, gpu, c.tolerance*float64(c.blocks), name)
		require.InEpsilon(t, c.slots, gpu*16, 0.01, name)
		require.InEpsilon(t, c.gib, float64(gpu*16)*float64(s.LLM.KVBytesPerToken())/(1<<30), 0.01, name)
		require.Equal(t, int(20<<30*int64(s.Workers)/(16*s.LLM.KVBytesPerToken())), cpu, name)
	}
}

// Ensure that blocks of other sizes share the same bytes.
func TestPoolOfOtherBlocks(t *testing.T) {
	s := setup(t, "paper-opt-13b")
	for block, want := range map[int][2]int{1: {15_728, 26_208}, 8: {1966, 3276}, 16: {983, 1638}, 32: {491, 819},
		48: {327, 546}, 256: {61, 102}} {
		gpu, cpu, err := s.Pool(block)
		require.NoError(t, err)
		require.Equal(t, want, [2]int{gpu, cpu}, "blocks of %d", block)
	}
	for _, block := range []int{0, -1, 1<<20 + 1} {
		_, _, err := s.Pool(block)
		require.ErrorIs(t, err, ErrFile)
		_, err = s.Model(block)
		require.ErrorIs(t, err, ErrFile)
	}
	_, _, err := s.Pool(1 << 20)
	require.ErrorIs(t, err, ErrMemory)
}

// Ensure that each worker has its share of the matrices and a copy of all other weights (artifact's rule,
// simulation/PAPER.md §1).
func TestEachWorkersMemoryAddsUp(t *testing.T) {
	s := setup(t, "paper-opt-13b")
	const logits = 2 * 2560 * 50272 * 2
	// weightBytes also counts weights that the artifact leaves out: two rows of the position embedding, and the last
	// norm. These are 20,480 parameters of 2 bytes.
	require.EqualValues(t, 25_706_905_600+2*20_480, s.LLM.weightBytes(1))
	require.EqualValues(t, 25_706_905_600+2*20_480+logits+(1<<30), s.used())
	require.EqualValues(t, 514_785_280, logits)

	big := setup(t, "paper-opt-66b")
	require.EqualValues(t, 32_899_645_440+2*4*9216, big.LLM.weightBytes(4))

	// Where the vocabulary is small, a layer's widest matrix decides.
	l := tiny(1).LLM
	l.Vocabulary = 10
	require.EqualValues(t, 2*50*(256+100), l.activationElements(50, 1))
	require.EqualValues(t, 2*50*(128+100), l.activationElements(50, 2))
	l.Gated = true
	require.EqualValues(t, 2*50*(512+100), l.activationElements(50, 1))
	l.FFN = 10
	require.EqualValues(t, 2*50*(128+100), l.activationElements(50, 1), "queries, keys and values")

	s.Memory.Swap = 0
	_, cpu, err := s.Pool(16)
	require.NoError(t, err)
	require.Zero(t, cpu)
}

// Ensure that more workers than KV heads do not enlarge the pool, because each further worker stores a copy
// of a head.
func TestPoolWithCopiesOfHeads(t *testing.T) {
	s := roofline(t, "qwen2.5-7b", "a100-40gb", 4)
	four := pool(t, s)
	s.Workers = 28
	many := pool(t, s)
	require.Less(t, many, four*5/4, "only weights and activations shrink")
	require.Greater(t, many, four)
}

// Ensure that the error for a model too large for the memory also says how many workers would suffice.
func TestTheErrorForAModelThatDoesNotFitStatesTheMissingBytes(t *testing.T) {
	s := roofline(t, "opt-66b", "a100-40gb", 1)
	_, _, err := s.Pool(16)
	require.ErrorIs(t, err, ErrMemory)
	require.ErrorContains(t, err, "4 workers would do")

	// The error says how many bytes are missing. If the GPU had the usable memory and this number of bytes more, and
	// the utilization were 1, exactly one block would fit.
	text := err.Error()
	missing, err := strconv.ParseInt(text[strings.Index(text, "GB (")+4:strings.Index(text, " bytes) more")], 10, 64)
	require.NoError(t, err)
	usable := int64(float64(s.GPU.MemoryBytes) * s.Memory.Utilization)
	s.Memory.Utilization = 1
	s.GPU.MemoryBytes = usable + missing
	gpu := pool(t, s)
	require.Equal(t, 1, gpu)
	s.GPU.MemoryBytes--
	_, _, err = s.Pool(16)
	require.ErrorIs(t, err, ErrMemory)

	s = roofline(t, "opt-66b", "a100-40gb", 4)
	_ = pool(t, s)
	s = roofline(t, "opt-66b", "a100-40gb", 3)
	gpu, _, err = s.Pool(16)
	require.True(t, err != nil || gpu*16 < s.LLM.MaxLength, "3 would not do")

	// Four GPUs have memory for blocks, but not for a sequence of this length.
	s = roofline(t, "llama-3-70b", "a100-40gb", 1)
	s.LLM.MaxLength = 40_000
	_, _, err = s.Pool(16)
	require.ErrorContains(t, err, "8 workers would do")

	// Three would have the memory, but cannot share 40 heads.
	s = roofline(t, "opt-13b", "a100-40gb", 1)
	s.GPU.MemoryBytes = 13_000_000_000
	_, _, err = s.Pool(16)
	require.ErrorContains(t, err, "4 workers would do")

	s = roofline(t, "opt-175b", "l4", 1)
	s.Memory.Utilization = 0.05
	_, _, err = s.Pool(16)
	require.ErrorContains(t, err, "no number of workers would do")
}

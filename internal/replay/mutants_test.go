package replay

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/mutants"
)

// Ensure that the recordings notice most changes of the managers and schedulers. (The rest costs time only, is reached by
// no recording, or is noticed by a recording that is too long for this test.)
func TestRecordingsNoticeChanges(t *testing.T) {
	if !level.Long() {
		t.Skip("builds five programs and runs each about 40 times; set LLM_TEST_LONG=1")
	}
	for _, tc := range []struct {
		name       string
		files      []string
		recordings string // beginnings of names
	}{
		{"pool", []string{"../vllm/v1/pool/pool.go", "../vllm/v1/pool/keys.go", "../vllm/v1/pool/index.go", "../vllm/v1/pool/register.go"}, "p0|m_"},
		{"kvcache", []string{"../vllm/v1/kvcache/[agmpr]*.go", "../vllm/v1/kvcache/need.go", "../vllm/v1/kvcache/lookup*.go"}, "[ms]_"},
		{"sched", []string{
			"../vllm/v1/sched/schedule.go", "../vllm/v1/sched/admit.go", "../vllm/v1/sched/update.go",
			"../vllm/v1/sched/queue.go", "../vllm/v1/sched/write.go",
		}, "s_"},
		{"V0", []string{"../vllm/v0/*.go", "../vllm/device/*.go"}, "v0_"},
		{"the paper", []string{"../paper/manager.go", "../paper/swap.go", "../paper/buddy.go", "../paper/orca.go"}, "sosp_"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			missed, tried := mutants.Build(t, tc.files...).Missed(t, 7, "-test.run=^TestEveryRecording/^("+tc.recordings+")")
			require.LessOrEqual(t, len(missed), tried/2, "of %d changes, nothing notices those at %q", tried, missed)
		})
	}
}

package openai_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
)

// vllmMetrics lists the metrics of vLLM's v1/metrics/loggers.py and v1/spec_decode/metrics.py. In the names of counters
// it includes the suffix _total, which Prometheus's Python client adds.
var vllmMetrics = []struct {
	name, kind string
	absent     string // why there is none here
}{
	{name: "num_requests_running", kind: "gauge"},
	{name: "num_requests_waiting", kind: "gauge"},
	{name: "num_requests_waiting_by_reason", kind: "gauge"},
	{name: "engine_sleep_state", kind: "gauge"},
	{name: "kv_cache_usage_perc", kind: "gauge"},
	{name: "cache_config_info", kind: "gauge"},
	{name: "lora_requests_info", kind: "gauge", absent: "requests are not counted by adapter"},
	{name: "corrupted_requests_total", kind: "counter"}, // in vLLM if VLLM_COMPUTE_NANS_IN_LOGITS is set
	{name: "prefix_cache_queries_total", kind: "counter"},
	{name: "prefix_cache_hits_total", kind: "counter"},
	{name: "external_prefix_cache_queries_total", kind: "counter"},
	{name: "external_prefix_cache_hits_total", kind: "counter"},
	{name: "mm_cache_queries_total", kind: "counter", absent: "models read text only"},
	{name: "mm_cache_hits_total", kind: "counter", absent: "models read text only"},
	{name: "num_preemptions_total", kind: "counter"},
	{name: "prompt_tokens_total", kind: "counter"},
	{name: "prompt_tokens_by_source_total", kind: "counter"},
	{name: "prompt_tokens_cached_total", kind: "counter"},
	{name: "generation_tokens_total", kind: "counter"},
	{name: "request_success_total", kind: "counter"},
	{name: "spec_decode_num_drafts_total", kind: "counter"},
	{name: "spec_decode_num_draft_tokens_total", kind: "counter"},
	{name: "spec_decode_num_accepted_tokens_total", kind: "counter"},
	{name: "spec_decode_num_accepted_tokens_per_pos_total", kind: "counter"},
	{name: "request_prompt_tokens", kind: "histogram"},
	{name: "request_generation_tokens", kind: "histogram"},
	{name: "iteration_tokens_total", kind: "histogram"},
	{name: "request_max_num_generation_tokens", kind: "histogram"},
	{name: "request_params_n", kind: "histogram"},
	{name: "request_params_max_tokens", kind: "histogram"},
	{name: "time_to_first_token_seconds", kind: "histogram"},
	{name: "inter_token_latency_seconds", kind: "histogram"},
	{name: "request_time_per_output_token_seconds", kind: "histogram"},
	{name: "e2e_request_latency_seconds", kind: "histogram"},
	{name: "request_queue_time_seconds", kind: "histogram"},
	{name: "request_inference_time_seconds", kind: "histogram"},
	{name: "request_prefill_time_seconds", kind: "histogram"},
	{name: "request_decode_time_seconds", kind: "histogram"},
	{name: "request_prefill_kv_computed_tokens", kind: "histogram"},
	{name: "kv_block_lifetime_seconds", kind: "histogram", absent: "vLLM samples blocks only with --kv-cache-metrics"},
	{name: "kv_block_idle_before_evict_seconds", kind: "histogram", absent: "as above"},
	{name: "kv_block_reuse_gap_seconds", kind: "histogram", absent: "as above"},
}

// Ensure that the server has the metrics of vLLM, with the same names and kinds. The list vllmMetrics has these
// metrics. If an element of the list has a reason in the field absent, the server must not have this metric. The
// server must have no other metrics whose names begin with "vllm:".
func TestMetricsHaveVLLMsNames(t *testing.T) {
	s := start(t, func(_ *openai.Config, c *engine.Config) { c.NumSpeculativeTokens = 2 })
	s.complete(t, story+"The code of", 10, "")
	var got, want []string
	for _, found := range regexp.MustCompile(`(?m)^# TYPE vllm:(\S+) (\S+)$`).FindAllStringSubmatch(s.metrics(t), -1) {
		got = append(got, found[1]+" "+found[2])
	}
	for _, m := range vllmMetrics {
		if m.absent == "" {
			want = append(want, m.name+" "+m.kind)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	require.Equal(t, want, got)
}

// Ensure that metrics count the work of two requests. The second one has a cached prompt and two answers.
func TestMetricsCountWhatWasDone(t *testing.T) {
	s := start(t, nil)
	s.complete(t, story, 5, "")
	s.requireMetrics(t, []string{
		`vllm:generation_tokens_total{engine="0",model_name="demo"} 5`,
		`vllm:prompt_tokens_total{engine="0",model_name="demo"} 50`,
		`vllm:prompt_tokens_cached_total{engine="0",model_name="demo"} 0`,
		`vllm:num_requests_running{engine="0",model_name="demo"} 0`,
		`vllm:num_requests_waiting_by_reason{engine="0",model_name="demo",reason="capacity"} 0`,
		`vllm:kv_cache_usage_perc{engine="0",model_name="demo"} 0`,
		`vllm:request_success_total{engine="0",finished_reason="length",model_name="demo"} 1`,
		`vllm:request_success_total{engine="0",finished_reason="abort",model_name="demo"} 0`,
		`vllm:time_to_first_token_seconds_count{engine="0",model_name="demo"} 1`,
		`vllm:inter_token_latency_seconds_count{engine="0",model_name="demo"} 4`,
		`vllm:e2e_request_latency_seconds_count{engine="0",model_name="demo"} 1`,
		`cache_dtype="float32"`, `block_size="16"`, `enable_prefix_caching="true"`,
	})
	again := s.complete(t, story, 3, `, "n": 2, "ignore_eos": true`)
	require.Equal(t, 48, again.Usage.Details.Cached)
	s.requireMetrics(t, []string{
		`vllm:generation_tokens_total{engine="0",model_name="demo"} 11`,
		`vllm:prompt_tokens_total{engine="0",model_name="demo"} 100`,
		`vllm:prompt_tokens_cached_total{engine="0",model_name="demo"} 48`,
		`vllm:prompt_tokens_by_source_total{engine="0",model_name="demo",source="local_cache_hit"} 48`,
		`vllm:prompt_tokens_by_source_total{engine="0",model_name="demo",source="local_compute"} 52`,
		`vllm:request_prefill_kv_computed_tokens_sum{engine="0",model_name="demo"} 54`,
		`vllm:request_success_total{engine="0",finished_reason="length",model_name="demo"} 3`,
		`vllm:request_params_n_sum{engine="0",model_name="demo"} 3`,
		`vllm:request_max_num_generation_tokens_sum{engine="0",model_name="demo"} 8`,
	})
}

// Ensure that accepted tokens are counted by their index in the proposal.
func TestMetricsCountProposalsByPlace(t *testing.T) {
	s := start(t, func(_ *openai.Config, c *engine.Config) { c.NumSpeculativeTokens = 2 })
	s.complete(t, story+"The code of", 10, "")
	s.requireMetrics(t, []string{`vllm:generation_tokens_total{engine="0",model_name="demo"} 10`})
	text := s.metrics(t)
	value := func(name, label string) int {
		found := regexp.MustCompile(`(?m)^vllm:spec_decode_` + name + `_total{engine="0",model_name="demo"` + label +
			`} (\d+)$`).FindStringSubmatch(text)
		require.Len(t, found, 2, "%s\n%s", name, text)
		n, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		return n
	}
	first, second := value("num_accepted_tokens_per_pos", `,position="0"`),
		value("num_accepted_tokens_per_pos", `,position="1"`)
	require.Positive(t, second)
	require.GreaterOrEqual(t, first, second, "the second token counts only after the first one")
	require.GreaterOrEqual(t, value("num_drafts", ""), first)
	require.Equal(t, first+second, value("num_accepted_tokens", ""))
	require.Greater(t, value("num_draft_tokens", ""), value("num_drafts", ""))
	require.Less(t, value("num_drafts", ""), 9, "9 tokens come after the first one, several of them in one step")
}

func (s *served) metrics(t *testing.T) string {
	_, a := s.roundTrip(t, "GET", "/metrics", "")
	return a.Text
}

// requireMetrics waits until all lines appear, because the last step of a request is counted just
// after its answer is sent.
func (s *served) requireMetrics(t *testing.T, lines []string) {
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		text := s.metrics(t)
		for _, line := range lines {
			assert.True(c, strings.Contains(text, line), "%s\n%s", line, text)
		}
	}, 10*time.Minute, time.Millisecond)
}

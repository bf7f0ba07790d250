package openai

import (
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/engine"
)

// Metrics observe an engine and provide metrics with vLLM's names (v1/metrics/loggers.py, v1/spec_decode/metrics.py).
// TestMetricsHaveVLLMsNames lists the metrics of vLLM that are missing, with reasons.
type Metrics struct {
	registry *prometheus.Registry
	labels   prometheus.Labels

	preemptions, prompt, cached, generation, queries, hits prometheus.Counter
	corrupted                                              prometheus.Counter
	externalQueries, externalHits                          prometheus.Counter
	drafts, draftTokens, accepted                          prometheus.Counter
	success, source, position                              *prometheus.CounterVec

	iteration, firstToken, interToken, perToken            prometheus.Histogram
	endToEnd, queue, inference, prefill, decode            prometheus.Histogram
	promptTokens, generationTokens, n, maxTokens, computed prometheus.Histogram
	longest                                                prometheus.Histogram
}

// NewMetrics makes the metrics of a model.
func NewMetrics(model string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), labels: prometheus.Labels{"model_name": model, "engine": "0"}}
	m.counters()
	m.histograms()
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *Metrics) counters() {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "vllm:" + name, Help: help, ConstLabels: m.labels})
		m.registry.MustRegister(c)
		return c
	}
	labelled := func(name, help, label string, values ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "vllm:" + name, Help: help, ConstLabels: m.labels},
			[]string{label})
		m.registry.MustRegister(c)
		for _, v := range values {
			c.WithLabelValues(v) // from the beginning, with 0
		}
		return c
	}
	m.preemptions = counter("num_preemptions_total", "Requests that lost their blocks and were computed again.")
	m.prompt = counter("prompt_tokens_total",
		"Tokens of prompts that are computed, those found in the prefix cache or loaded from tiers included.")
	m.source = labelled("prompt_tokens_by_source_total", "Tokens of prompts by where their keys and values came from.",
		"source",
		"local_compute", "local_cache_hit", "external_kv_transfer")
	m.cached = counter("prompt_tokens_cached_total", "Tokens of prompts that were found in the prefix cache or loaded from tiers.")
	m.generation = counter("generation_tokens_total", "Tokens that were generated.")
	m.queries = counter("prefix_cache_queries_total", "Tokens that were looked up in the prefix cache.")
	m.hits = counter("prefix_cache_hits_total", "Tokens that were found in the prefix cache.")
	m.externalQueries = counter("external_prefix_cache_queries_total", "Tokens that were not in the prefix cache and were looked up in tiers outside the process.")
	m.externalHits = counter("external_prefix_cache_hits_total", "Tokens that such a tier had, and that were loaded.")
	m.drafts = counter("spec_decode_num_drafts_total", "Proposals of one or more tokens by speculation.")
	m.draftTokens = counter("spec_decode_num_draft_tokens_total", "Tokens that were proposed by speculation.")
	m.accepted = counter("spec_decode_num_accepted_tokens_total", "Proposed tokens that the model sampled as well.")
	m.position = labelled("spec_decode_num_accepted_tokens_per_pos_total", "The same by the place in the proposal.",
		"position")
	m.corrupted = counter("corrupted_requests_total", "Requests that failed because the model's logits were NaN or infinite.")
	m.success = labelled("request_success_total", "Answers that have ended.", "finished_reason", "stop", "length",
		"abort", "error")
}

func (m *Metrics) histograms() {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "vllm:" + name, Help: help, ConstLabels: m.labels,
			Buckets: buckets})
		m.registry.MustRegister(h)
		return h
	}
	m.iteration = histogram("iteration_tokens_total", "Tokens of a step.", []float64{1, 8, 16, 32, 64, 128, 256, 512,
		1024, 2048, 4096, 8192, 16384})
	m.firstToken = histogram("time_to_first_token_seconds", "From the arrival of a request to its first token.",
		[]float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640,
			2560})
	tokens := []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	m.interToken = histogram("inter_token_latency_seconds", "From a token to the next one.", tokens)
	m.perToken = histogram("request_time_per_output_token_seconds",
		"From the first token of an answer to its end, for each further token.", tokens)
	latencies := []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	m.endToEnd = histogram("e2e_request_latency_seconds", "From the arrival of a request to its end.", latencies)
	m.queue = histogram("request_queue_time_seconds", "Time that a request waits.", latencies)
	m.inference = histogram("request_inference_time_seconds", "Time that a request is served.", latencies)
	m.prefill = histogram("request_prefill_time_seconds", "From the first step of a request to its first token.",
		latencies)
	m.decode = histogram("request_decode_time_seconds", "From the first token of a request to its last.", latencies)
	sizes := []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000}
	m.promptTokens = histogram("request_prompt_tokens", "Tokens of a prompt.", sizes)
	m.computed = histogram("request_prefill_kv_computed_tokens",
		"Tokens of a prompt that were neither found in the prefix cache nor loaded from tiers.", sizes)
	m.generationTokens = histogram("request_generation_tokens", "Tokens of an answer.", sizes)
	m.longest = histogram("request_max_num_generation_tokens", "Tokens of the longest of the answers to a request.", sizes)
	m.n = histogram("request_params_n", "Answers that a request asks for.", []float64{1, 2, 5, 10, 20})
	m.maxTokens = histogram("request_params_max_tokens", "Tokens that an answer may have.", sizes)
}

// Watch adds the metrics whose values are read from an engine when a client requests them.
func (m *Metrics) Watch(e *engine.Engine) {
	gauge := func(name, help string, f func() float64, labels ...string) {
		all := prometheus.Labels{}
		maps.Copy(all, m.labels)
		for i := 0; i < len(labels); i += 2 {
			all[labels[i]] = labels[i+1]
		}
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "vllm:" + name, Help: help,
			ConstLabels: all}, f))
	}
	waiting := func() float64 { return float64(e.Load().Waiting) }
	gauge("num_requests_running", "Requests that are in the batch.", func() float64 { return float64(e.Load().Running) })
	gauge("num_requests_waiting", "Requests that wait.", waiting)
	const reasons = "Requests that wait, by reason: for capacity, or for something else (deferred)."
	gauge("num_requests_waiting_by_reason", reasons, waiting, "reason", "capacity")
	gauge("num_requests_waiting_by_reason", reasons, func() float64 { return 0 }, "reason", "deferred")
	gauge("kv_cache_usage_perc", "Part of the blocks in use, from 0 to 1.", func() float64 {
		l := e.Load()
		return 1 - float64(l.FreeBlocks)/float64(l.Blocks)
	})
	awake := func() float64 {
		if asleep, _ := e.Asleep(); asleep {
			return 0
		}
		return 1
	}
	const sleep = "Whether the engine is awake, or sleeps without weights (discard_all): 1 or 0."
	gauge("engine_sleep_state", sleep, awake, "sleep_state", "awake")
	gauge("engine_sleep_state", sleep, func() float64 { return 0 }, "sleep_state", "weights_offloaded")
	gauge("engine_sleep_state", sleep, func() float64 { return 1 - awake() }, "sleep_state", "discard_all")
	m.watchOffload(e)
	c := e.Config()
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "vllm:cache_config_info", Help: "How keys and values are kept; the value is always 1.",
		ConstLabels: prometheus.Labels{
			"engine": "0", "block_size": strconv.Itoa(c.BlockSize), "num_gpu_blocks": strconv.Itoa(e.Load().Blocks + 1),
			"cache_dtype": cacheTypes[c.KVCacheDType], "enable_prefix_caching": strconv.FormatBool(!c.NoPrefixCaching),
			"kv_cache_memory_bytes": strconv.FormatInt(c.KVCacheBytes, 10),
			"sliding_window":        strconv.Itoa(c.Model.SlidingWindow),
		},
	}, func() float64 { return 1 }))
}

// cacheTypes are vLLM's names for the types of keys and values. The name of float32 is from vLLM's
// ModelDType, and the other names are from its CacheDType.
var cacheTypes = map[attention.DType]string{
	attention.F32: "float32", attention.F16: "float16", attention.BF16: "bfloat16", attention.E4M3: "fp8_e4m3",
	attention.E5M2: "fp8_e5m2", attention.Int8: "int8_per_token_head",
}

// watchOffload adds the metrics of the tiers. If the engine has no tiers, it adds nothing.
func (m *Metrics) watchOffload(e *engine.Engine) {
	if _, ok := e.OffloadStats(); !ok {
		return
	}
	const bytes, seconds = "Bytes of blocks stored in tiers outside the process and loaded from them.", "Time that this took."
	for _, c := range []struct {
		name, transfer, help string
		value                func(s engine.OffloadStats) float64
	}{
		{"vllm:kv_offload_total_bytes", "CPU_to_tier", bytes, func(s engine.OffloadStats) float64 { return float64(s.StoredBytes) }},
		{"vllm:kv_offload_total_bytes", "tier_to_CPU", bytes, func(s engine.OffloadStats) float64 { return float64(s.LoadedBytes) }},
		{"vllm:kv_offload_total_time", "CPU_to_tier", seconds, func(s engine.OffloadStats) float64 { return s.StoreTime.Seconds() }},
		{"vllm:kv_offload_total_time", "tier_to_CPU", seconds, func(s engine.OffloadStats) float64 { return s.LoadTime.Seconds() }},
		{"llmserve:kv_offload_dropped_blocks_total", "", "Blocks that were not stored, because the tier was too slow or had just failed.",
			func(s engine.OffloadStats) float64 { return float64(s.Dropped) }},
		{"llmserve:kv_offload_failures_total", "", "Stores, searches and loads that failed.",
			func(s engine.OffloadStats) float64 { return float64(s.Failures) }},
		{"llmserve:kv_offload_computed_blocks_total", "", "Blocks that a tier had and that were computed, which was faster.",
			func(s engine.OffloadStats) float64 { return float64(s.Computed) }},
		{"llmserve:kv_offload_queued_blocks", "", "Blocks that wait to be stored.",
			func(s engine.OffloadStats) float64 { return float64(s.Queued) }},
		{"llmserve:kv_offload_load_tokens_per_second", "", "How fast a tier is, lately; 0: not known.",
			func(s engine.OffloadStats) float64 { return s.LoadRate * float64(e.Config().BlockSize) }},
		{"llmserve:kv_offload_compute_tokens_per_second", "", "How fast prompts are computed, lately; 0: not known.",
			func(s engine.OffloadStats) float64 { return s.ComputeRate }},
	} {
		read := func() float64 {
			stats, _ := e.OffloadStats()
			return c.value(stats)
		}
		options := prometheus.Opts{Name: c.name, Help: c.help, ConstLabels: maps.Clone(m.labels)}
		if c.transfer != "" {
			options.ConstLabels["transfer_type"] = c.transfer
		}
		if strings.Contains(c.name, "_total") {
			m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts(options), read))
		} else {
			m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts(options), read))
		}
	}
}

func (m *Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Step implements engine.Observer.
func (m *Metrics) Step(r engine.StepReport) {
	m.preemptions.Add(float64(r.Preempted))
	m.generation.Add(float64(r.GenerationTokens))
	m.queries.Add(float64(r.CacheQueries))
	m.hits.Add(float64(r.CacheHits))
	m.externalQueries.Add(float64(r.ExternalQueries))
	m.externalHits.Add(float64(r.ExternalHits))
	m.iteration.Observe(float64(r.Tokens))
	if r.PromptTokens > 0 {
		m.prompt.Add(float64(r.PromptTokens))
		m.cached.Add(float64(r.CachedTokens))
		m.source.WithLabelValues("local_cache_hit").Add(float64(r.CachedTokens - r.ExternalTokens))
		m.source.WithLabelValues("external_kv_transfer").Add(float64(r.ExternalTokens))
		m.source.WithLabelValues("local_compute").Add(float64(r.PromptTokens - r.CachedTokens))
	}
	if r.Drafts > 0 {
		m.drafts.Add(float64(r.Drafts))
		m.draftTokens.Add(float64(r.DraftTokens))
		for i, n := range r.Accepted {
			if n > 0 {
				m.accepted.Add(float64(n))
				m.position.WithLabelValues(strconv.Itoa(i)).Add(float64(n))
			}
		}
	}
}

// FirstToken implements engine.Observer.
func (m *Metrics) FirstToken(d time.Duration) { m.firstToken.Observe(d.Seconds()) }

// NextToken implements engine.Observer.
func (m *Metrics) NextToken(d time.Duration) { m.interToken.Observe(d.Seconds()) }

// Finished implements engine.Observer.
func (m *Metrics) Finished(r engine.RequestReport) {
	m.success.WithLabelValues(r.Reason).Inc()
	m.endToEnd.Observe(r.EndToEnd.Seconds())
	m.queue.Observe(r.Queue.Seconds())
	m.inference.Observe(r.Inference.Seconds())
	m.prefill.Observe(r.Prefill.Seconds())
	m.decode.Observe(r.Decode.Seconds())
	if r.GenerationTokens > 1 {
		m.perToken.Observe(r.Decode.Seconds() / float64(r.GenerationTokens-1))
	}
	m.promptTokens.Observe(float64(r.PromptTokens))
	m.computed.Observe(float64(r.PromptTokens - r.CachedTokens))
	m.generationTokens.Observe(float64(r.GenerationTokens))
	m.maxTokens.Observe(float64(r.MaxTokens))
	if r.NotFinite {
		m.corrupted.Inc()
	}
	if r.Longest > 0 { // the request has ended
		m.longest.Observe(float64(r.Longest))
		m.n.Observe(float64(r.N))
	}
}

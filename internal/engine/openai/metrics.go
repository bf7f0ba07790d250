package openai

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"llmmemory/internal/engine"
)

// Metrics are counted under vLLM's names. They observe an engine.
type Metrics struct {
	registry *prometheus.Registry

	preemptions, prompt, generation, queries, hits prometheus.Counter
	drafts, accepted                               prometheus.Counter
	success                                        *prometheus.CounterVec

	iteration, firstToken, interToken, perToken  prometheus.Histogram
	endToEnd, queue, inference, prefill, decode  prometheus.Histogram
	promptTokens, generationTokens, n, maxTokens prometheus.Histogram
}

// NewMetrics makes the metrics of a model.
func NewMetrics(model string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	labels := prometheus.Labels{"model_name": model, "engine": "0"}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "vllm:" + name, Help: help, ConstLabels: labels})
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "vllm:" + name, Help: help, ConstLabels: labels, Buckets: buckets})
		m.registry.MustRegister(h)
		return h
	}
	m.preemptions = counter("num_preemptions_total", "Requests that lost their blocks and were computed again.")
	m.prompt = counter("prompt_tokens_total", "Tokens of prompts that were computed.")
	m.generation = counter("generation_tokens_total", "Tokens that were generated.")
	m.queries = counter("prefix_cache_queries_total", "Tokens that were looked up in the prefix cache.")
	m.hits = counter("prefix_cache_hits_total", "Tokens that were found there.")
	m.drafts = counter("spec_decode_num_draft_tokens_total", "Tokens that were proposed by speculation.")
	m.accepted = counter("spec_decode_num_accepted_tokens_total", "Of these, those that the model said, too.")
	m.success = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "vllm:request_success_total", Help: "Answers that have ended.", ConstLabels: labels,
	}, []string{"finished_reason"})
	m.registry.MustRegister(m.success)
	seconds := []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	sizes := []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000}
	m.iteration = histogram("iteration_tokens_total", "Tokens of a step.", []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384})
	m.firstToken = histogram("time_to_first_token_seconds", "From the arrival of a request to its first token.", seconds)
	m.interToken = histogram("inter_token_latency_seconds", "From a token to the next one.", seconds)
	m.perToken = histogram("request_time_per_output_token_seconds", "From the first token of an answer to its end, for each further token.", seconds)
	latencies := []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	m.endToEnd = histogram("e2e_request_latency_seconds", "From the arrival of a request to its end.", latencies)
	m.queue = histogram("request_queue_time_seconds", "Time that a request waits.", latencies)
	m.inference = histogram("request_inference_time_seconds", "Time that a request is served.", latencies)
	m.prefill = histogram("request_prefill_time_seconds", "From the first step of a request to its first token.", latencies)
	m.decode = histogram("request_decode_time_seconds", "From the first token of a request to its last.", latencies)
	m.promptTokens = histogram("request_prompt_tokens", "Tokens of a prompt.", sizes)
	m.generationTokens = histogram("request_generation_tokens", "Tokens of an answer.", sizes)
	m.n = histogram("request_params_n", "Answers that a request asks for.", []float64{1, 2, 5, 10, 20})
	m.maxTokens = histogram("request_params_max_tokens", "Tokens that an answer may have.", sizes)
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Watch adds what is read from the engine when somebody asks.
func (m *Metrics) Watch(e *engine.Engine, model string) {
	labels := prometheus.Labels{"model_name": model, "engine": "0"}
	gauge := func(name, help string, f func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "vllm:" + name, Help: help, ConstLabels: labels}, f))
	}
	gauge("num_requests_running", "Requests that are in the batch.", func() float64 { return float64(e.Load().Running) })
	gauge("num_requests_waiting", "Requests that wait.", func() float64 { return float64(e.Load().Waiting) })
	gauge("kv_cache_usage_perc", "Part of the blocks in use, from 0 to 1.", func() float64 {
		l := e.Load()
		return 1 - float64(l.FreeBlocks)/float64(l.Blocks)
	})
}

func (m *Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Step implements engine.Observer.
func (m *Metrics) Step(r engine.StepReport) {
	m.preemptions.Add(float64(r.Preempted))
	m.prompt.Add(float64(r.PromptTokens))
	m.generation.Add(float64(r.GenerationTokens))
	m.queries.Add(float64(r.CacheQueries))
	m.hits.Add(float64(r.CacheHits))
	m.drafts.Add(float64(r.Drafts))
	m.accepted.Add(float64(r.AcceptedDrafts))
	m.iteration.Observe(float64(r.Tokens))
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
	m.generationTokens.Observe(float64(r.GenerationTokens))
	m.n.Observe(float64(r.N))
	m.maxTokens.Observe(float64(r.MaxTokens))
}

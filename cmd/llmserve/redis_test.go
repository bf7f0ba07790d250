//go:build long

package main

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
)

// One server computes prompts, another one loads them and generates.
func TestAConsumerLoadsWhatAProducerHasStored(t *testing.T) {
	redis := miniredis.RunT(t)
	redis.RequireAuth("secret")
	t.Setenv("LLMSERVE_REDIS_PASSWORD", "secret")
	question := longQuestion(t, "demo")
	want := serveDemo(t).ask(t, question)
	url := "redis://" + redis.Addr()
	producer := serveDemo(t, "--kv-offload-url", url, "--kv-role", "producer")
	consumer := serveDemo(t, "--kv-offload-url", url, "--kv-role", "consumer")
	require.Equal(t, want, consumer.ask(t, question))
	require.Empty(t, redis.Keys(), "a consumer stores nothing")
	require.Equal(t, want, producer.ask(t, question))
	producer.storesAll(t)
	fresh := serveDemo(t, "--kv-offload-url", url, "--kv-role", "consumer")
	got := fresh.ask(t, question)
	require.Equal(t, string(want.Choices), string(got.Choices))
	require.Greater(t, got.Usage.Details.Cached, 500)

	late := serveDemo(t, "--kv-offload-url", url)
	redis.Close() // from now on there is none
	got = late.ask(t, question)
	require.Equal(t, want, got)
	late.waitForMetric(t, `llmserve:kv_offload_failures_total\{.*\} [1-9]`)
}

package main

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/testkit/cudatest"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/weightfile"
)

// emulated makes the commands that run in this process use an emulated GPU. The parameter memory is its size
// in MiB.
func emulated(t *testing.T, memory int) *cudatest.Driver {
	t.Helper()
	d := cudatest.Open(t)
	d.Set(t, "memory", memory<<20)
	driver = d.Path
	t.Cleanup(func() { driver = cuda.Library })
	return d
}

func runHere(t *testing.T, args ...string) (out, notes string) {
	t.Helper()
	c := command()
	var stdout, stderr bytes.Buffer
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	c.SetArgs(args)
	require.NoError(t, c.ExecuteContext(t.Context()))
	return stdout.String(), stderr.String()
}

// Ensure that a GPU gives the same tokens as the CPU, both in the command "llmserve run" and over HTTP. The device
// cuda:1 must be the second GPU.
func TestRunOnAGPU(t *testing.T) {
	level.SkipNormal(t)
	d := emulated(t, 64)
	small := []string{"--max-model-len", "64", "--kv-cache-gb", "0.005", "--max-num-seqs", "2", "--max-num-batched-tokens", "64"}
	args := append([]string{"run", "demo", "abcdabc", "--temperature", "0", "--max-tokens", "2"}, small...)
	out, notes := runHere(t, append(args, "--device", "cuda")...)
	require.Equal(t, "da\n", out)
	const device = `^  device: GPU 0 \(Emulated GPU 0\); activations: f16; memory: \d+\.\d MiB of weights, \d+\.\d MiB for batches, 5\.1 MiB for keys and values, ` +
		`\d+\.\d MiB of 64\.0 MiB free\n`
	require.Regexp(t, device+`  weights in F32 and embeddings in F32 are kept as F16\n$`, notes)
	launched := d.Calls("cuLaunchKernel")
	require.NotZero(t, launched)
	require.Zero(t, d.Allocated())
	out, _ = runHere(t, append(args, "--device", "cpu")...)
	require.Equal(t, "da\n", out)
	require.Equal(t, launched, d.Calls("cuLaunchKernel"))
	s := serveHere(t, "demo", small...)
	choices, _ := s.choices(t, `{"model": "demo", "prompt": "abcdabc", "max_tokens": 2, "temperature": 0}`)
	require.Contains(t, choices, `"text":"da"`)
	s.end(t)
	d.Set(t, "devices", 2)
	_, notes = runHere(t, "run", tinyFile(t), "x", "--max-tokens", "1", "--device", "cuda:1", "--max-num-batched-tokens", "16")
	require.Contains(t, notes, "  device: GPU 1 (Emulated GPU 1); ")
}

// Ensure that a server prints what uses the GPU's memory. If the blocks cannot hold the longest sequence that the
// model supports, the server must print the length of the longest sequence that they can hold.
func TestTheStartSaysWhatUsesTheMemoryOfTheGPU(t *testing.T) {
	level.SkipNormal(t)
	emulated(t, 64)
	path := tinyFile(t)
	s := serveHere(t, path, "--kv-cache-gb", kvOfBlocks(20))
	require.Contains(t, s.said, "  device: GPU 0 (Emulated GPU 0); activations: f16; memory: ")
	require.Contains(t, s.said, " for batches, 86016 bytes for keys and values, ")
	require.Contains(t, s.said, "sequences of up to 320 of the model's 4096, because the blocks hold no longer ones\n")
	s.end(t)
	s = serveHere(t, path, "--kv-cache-gb", kvOfBlocks(20), "--max-model-len", "320")
	require.Contains(t, s.said, "sequences of up to 320\n")
	s.end(t)
	_, notes := runHere(t, "bench", "demo", "--device", "cuda", "--kv-cache-gb", "0.005", "--max-model-len", "64", "--num-prompts", "1", "--input-len", "1", "--output-len", "1")
	require.Contains(t, notes, "  device: GPU 0 (Emulated GPU 0); activations: f16; memory: ")
}

func TestTheDeviceAutoIsAGPUThatTheModelFitsOn(t *testing.T) {
	level.SkipNormal(t)
	args := []string{"run", "demo", "abcabcabc", "--temperature", "0", "--max-tokens", "1", "--device", "auto", "--max-model-len", "64", "--max-num-batched-tokens", "64",
		"--max-num-seqs", "2"}
	d := emulated(t, 24)
	_, notes := runHere(t, args...)
	require.NotContains(t, notes, "on the CPU")
	require.NotZero(t, d.Calls("cuLaunchKernel"))
	d.Forget()
	d.Set(t, "devices", 0)
	_, notes = runHere(t, args...)
	require.Regexp(t, `^  device: CPU \(.*\n  on the CPU: no GPU: `, notes)
	require.Zero(t, d.Calls("cuLaunchKernel"))
}

// Ensure that the CPU computes a model if the weights or something else do not fit on the GPU. The CPU must also
// compute it if sending the weights fails.
func TestAModelThatTheGPUCannotServeRunsOnTheCPU(t *testing.T) {
	level.SkipNormal(t)
	d := emulated(t, 64)
	path := tinyFile(t)
	for _, test := range []struct {
		name, model  string
		memory       int // MiB
		args, reason string
	}{
		{"the weights of the demo", "demo", 2, "", "not enough GPU memory: "},
		{"the largest batch", "demo", 20, "--max-num-seqs 4000", "not enough GPU memory: "},
		{"keys and values of one sequence", path, 64, "--max-model-len 4096 --max-num-seqs 4 --max-num-batched-tokens 16 --gpu-memory-utilization 0.02", ""},
		{"keys and values as large as asked", path, 64, "--kv-cache-gb 0.2 --max-num-batched-tokens 16", "--kv-cache-gb 0.2"},
		{"an error of the driver while weights are sent", path, 64, "--max-num-batched-tokens 16", "CUDA_ERROR_LAUNCH_FAILED"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d.Forget()
			d.Set(t, "memory", test.memory<<20)
			if strings.Contains(test.name, "driver") {
				d.Fail("cuMemcpyHtoDAsync_v2", 719)
			}
			_, notes := runHere(t, append([]string{"run", test.model, "x", "--max-tokens", "1", "--device", "auto"}, strings.Fields(test.args)...)...)
			require.Regexp(t, `^  device: CPU [^\n]*\n  on the CPU: [^\n]*`+regexp.QuoteMeta(test.reason)+`[^\n]*\n`, notes)
			require.Zero(t, d.Allocated())
		})
	}
	require.Regexp(t, "^stat none.gguf: no such file or directory; MODEL is", refusedHere(t, "run", "none.gguf", "x", "--device", "auto"))
}

// Ensure that the type of activations is one of the device, and is named. The CPU must refuse a type that only a GPU
// has.
func TestTheTypeOfActivationsIsThatOfTheDevice(t *testing.T) {
	level.SkipNormal(t)
	d := emulated(t, 64)
	args := []string{"run", tinyFile(t), "x", "--max-tokens", "1", "--max-num-batched-tokens", "16", "--device", "auto"}
	for _, test := range []struct{ args, want string }{
		{"", "activations: f16;"},
		{"--activation-dtype bf16 --kv-cache-dtype bf16", "activations: bf16;"},
		{"--kv-cache-dtype f16", "activations: f16;"},
		{"--activation-dtype f32", "activations: f32\n  on the CPU: "},
	} {
		_, notes := runHere(t, append(args, strings.Fields(test.args)...)...)
		require.Contains(t, notes, test.want)
	}
	d.Set(t, "devices", 0)
	_, notes := runHere(t, append(args, "--activation-dtype", "auto")...)
	require.Contains(t, notes, "activations: f32\n")
	require.Regexp(t, `^--activation-dtype is "f16"; f32, bf16 and int8 are possible, and auto: f32; the CPU computes because: no GPU: `,
		refusedHere(t, append(args, "--activation-dtype", "f16")...))
}

// Ensure that settings are refused if a GPU cannot run with them. The error for a too large model must say what is
// missing.
func TestWhatCannotRunOnAGPUIsRefused(t *testing.T) {
	d := emulated(t, 64)
	for _, test := range []struct{ args, want string }{
		{"--device gpu", `--device is "gpu"; cpu, cuda, cuda:N and auto are possible`},
		{"--device cuda:x", `--device is "cuda:x"`},
		{"--device cuda:-1", `--device is "cuda:-1"`},
		{"--device cuda:01", `--device is "cuda:01"; cpu, cuda, cuda:N and auto are possible`},
		{"--device cuda:1", "--device cuda:1: no GPU: there is no GPU 1 among 1"},
		{"--gpu-memory-utilization 0.5", "--gpu-memory-utilization needs --device cuda"},
		{"--device cuda --gpu-memory-utilization 1.5", "it must be above 0 and at most 1"},
		{"--device cuda --activation-dtype int8", `--activation-dtype is "int8"; f16, bf16 and auto are possible on a GPU`},
		{"--device cuda --activation-dtype f32", "f16, bf16 and auto are possible on a GPU"},
		{"--device cuda --tensor-parallel-size 2", "leave --tensor-parallel-size out"},
		{"--device cuda --kv-cache-dtype int8", `"int8"; on a GPU auto (the type of activations, f16 or bf16), fp8_e4m3, fp8 and fp8_e5m2 are possible`},
		{"--device cuda --kv-cache-dtype f16 --activation-dtype bf16", "--kv-cache-dtype is f16 and --activation-dtype bf16; on a GPU they are equal"},
		{"--device cuda --kv-cache-dtype bf16 --max-num-batched-tokens 16", "--kv-cache-dtype is bf16 and the activations are f16; give auto, or --activation-dtype bf16"},
		{"--device cuda --block-size 8", "blocks have 8 tokens; the number must be a multiple of 16"},
		{"--device cuda --kv-cache-gb 0.001", "give more memory, or a smaller length"},
	} {
		require.Contains(t, refusedHere(t, append([]string{"run", "demo", "x", "--max-model-len", "512"}, strings.Fields(test.args)...)...), test.want)
	}
	o := modelOptions{workers: 1, kvType: "auto"}
	o.device.flags(pflag.NewFlagSet("", 0))
	ranks = &processes{}
	err := o.device.conflict(&o)
	ranks = nil
	require.ErrorContains(t, err, "start one process")
	d.Set(t, "compute_capability", 75)
	require.Contains(t, refusedHere(t, "run", "demo", "x", "--device", "cuda"), "the GPU is too old: ")
	d.Set(t, "compute_capability", 90)
	path := filepath.Join(t.TempDir(), "model.gguf")
	require.NoError(t, weightfile.LlamaFile(path, weightfile.Llama{Hidden: 512, Layers: 2, Heads: 4, KVHeads: 4, Inter: 1024, Vocab: 512, Context: 64, Type: "F16"}))
	d.Set(t, "memory", 8<<20)
	const missing = `not enough GPU memory: GPU 0 \(Emulated GPU 0\): 11\.\d MiB of weights, \d+\.\d MiB for batches and \d+ bytes for keys and values of one sequence of 16 tokens ` +
		`need \d+\.\d MiB more than there is: 8\.0 MiB of 8\.0 MiB are free, of which --gpu-memory-utilization 0\.9 leaves \d+ bytes unused: ` +
		`no flag makes it enough: give a model with smaller weights, or end other programs on this GPU`
	require.Regexp(t, missing, refusedHere(t, "run", path, "x", "--device", "cuda"))
	_, notes := runHere(t, "run", path, "x", "--device", "auto", "--max-tokens", "1")
	require.Regexp(t, "  on the CPU: "+missing, notes)
	require.Zero(t, d.Allocated())
}

// Ensure that after a failure of the GPU, the request gets an error, /health reports the failure, and the
// server ends with an error of one sentence. The next server must find the blocks that this one has stored in
// a tier.
func TestAFailureOfTheGPUEndsTheServer(t *testing.T) {
	level.SkipNormal(t)
	d := emulated(t, 64)
	path, args := tinyFile(t), []string{"--kv-cache-gb", kvOfBlocks(20), "--kv-offload-dir", t.TempDir()}
	const request = `{"model": "tiny", "prompt": [5,6,7,9,5,6,7,9,5,6,7,9,5,6,7,9,5,6], "max_tokens": 3, "temperature": 0}`
	s := serveHere(t, path, args...)
	want, _ := s.choices(t, request)
	require.Eventually(t, func() bool {
		_, metrics := s.get(t, "/metrics")
		return regexp.MustCompile(`vllm:kv_offload_total_bytes\{.*CPU_to_tier.*\} [1-9]`).MatchString(metrics)
	}, patience, 5*time.Millisecond)
	d.Fail("cuMemcpyHtoDAsync_v2", 719)
	status, body := s.post(t, "/v1/completions", request)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "CUDA_ERROR_LAUNCH_FAILED")
	require.Contains(t, body, "device_failed")
	for _, ask := range []func() (int, string){func() (int, string) { return s.post(t, "/v1/completions", request) }, func() (int, string) { return s.get(t, "/health") }} {
		status, again := ask()
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Equal(t, body, again)
	}
	require.EqualError(t, <-s.ended, "GPU 0 (Emulated GPU 0) failed: cannot copy to the GPU: cuMemcpyHtoDAsync_v2 returned CUDA_ERROR_LAUNCH_FAILED (719): unspecified launch failure")

	s = serveHere(t, path, args...)
	got, cached := s.choices(t, request)
	require.Equal(t, want, got)
	require.Equal(t, 16, cached)
	s.end(t)
}

// Ensure that /health reports an error if a step never ends. The running request must also end with status 503. The
// server must then end, although the device never returns.
func TestAStepThatDoesNotEndEndsTheServer(t *testing.T) {
	level.SkipNormal(t)
	d := emulated(t, 64)
	s := serveHere(t, tinyFile(t), "--kv-cache-gb", kvOfBlocks(20), "--iteration-timeout", "1s")
	d.Hang()
	answered := make(chan string, 1)
	go func() {
		status, body := s.post(t, "/v1/completions", `{"model": "tiny", "prompt": [5,6,7], "max_tokens": 3}`)
		answered <- fmt.Sprint(status, body)
	}()
	require.Eventually(t, func() bool {
		status, _ := s.get(t, "/health")
		return status == http.StatusServiceUnavailable
	}, patience, 5*time.Millisecond)
	require.Regexp(t, `^GPU 0 \(Emulated GPU 0\) has not finished a step for \d+s \(--iteration-timeout\)$`, (<-s.ended).Error())
	require.Regexp(t, `^503.*The server ends: GPU 0 \(Emulated GPU 0\) has not finished a step for .*"engine_stalled"`, <-answered)
}

// Ensure that a signal ends a server even if a step never ends.
func TestAStepThatDoesNotEndEndsADrainingServer(t *testing.T) {
	level.SkipNormal(t)
	d := emulated(t, 64)
	s := serveHere(t, tinyFile(t), "--kv-cache-gb", kvOfBlocks(20), "--iteration-timeout", "1s")
	d.Hang()
	answered := make(chan string, 1)
	go func() {
		_, body := s.post(t, "/v1/completions", `{"model": "tiny", "prompt": [5,6,7], "max_tokens": 3}`)
		answered <- body
	}()
	require.Eventually(t, func() bool {
		_, metrics := s.get(t, "/metrics")
		return regexp.MustCompile(`vllm:num_requests_running\{.*\} 1\n`).MatchString(metrics)
	}, patience, time.Millisecond)
	s.stop()
	require.ErrorContains(t, <-s.ended, "has not finished a step for")
	require.Contains(t, <-answered, "engine_stalled")
}

// Ensure that AMX is part of the kind of processor, and so of a tier's key, only if it changes bits, and that Linux is
// asked for tiles only if products can use them.
func TestAMXIsPartOfTheKindIfItChangesBits(t *testing.T) {
	cpu, both := matrix.Kernels(), matrix.Pairs|matrix.Rounded
	for _, test := range []struct {
		activations string
		tiles       matrix.Form
		kind, used  string
		asked       bool
	}{
		{"f32", both, cpu, cpu, false},
		{"bf16", both, cpu + " and AMX", cpu + " and AMX", true},
		{"bf16", matrix.Rounded, cpu, cpu, true},
		{"int8", both, cpu, cpu + " and AMX", true},
		{"int8", matrix.Pairs, cpu, cpu, true},
	} {
		asked := false
		kind, used := cpuKernels(test.activations, func() matrix.Form { asked = true; return test.tiles })
		require.Equal(t, []any{test.kind, test.used, test.asked}, []any{kind, used, asked}, "%s, tiles for %b", test.activations, test.tiles)
	}
}

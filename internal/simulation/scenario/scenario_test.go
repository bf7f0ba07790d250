package scenario

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/sim"
)

func open(t *testing.T, s Scenario) *Plan {
	t.Helper()
	p, err := Open(s)
	require.NoError(t, err)
	return p
}

func TestAnEmptyScenarioIsThePapersSetup(t *testing.T) {
	p := open(t, Scenario{})
	require.Equal(t, "sharegpt", p.Scenario.Workload)
	require.Equal(t, PaperSetup, p.Scenario.Setup)
	require.Equal(t, sim.Server{
		System: "vllm-v1", BlockSize: 16, NumGPUBlocks: 983, NumCPUBlocks: 1638, MaxNumBatchedTokens: 2560,
		MaxNumSeqs:  256,
		MaxModelLen: 2048, BatchSize: 5, Watermark: p.Scenario.Server.Watermark,
	}, p.Scenario.Server)
	require.Equal(t, 1000, p.Expected())
	require.Equal(t, p.Scenario, open(t, p.Scenario).Scenario, "what is complete stays as it is")
}

// Ensure that MaxModelLen and the number of blocks follow from the model, unless the scenario sets them.
func TestAModelDecidesLengthsAndMemory(t *testing.T) {
	p := open(t, Scenario{Machine: Machine{Model: "llama-3-8b", GPU: "a100-40gb"}, Server: sim.Server{BlockSize: 32}})
	require.Equal(t, 8192, p.Scenario.Server.MaxModelLen)
	require.Equal(t, 2048, p.Scenario.Server.MaxNumBatchedTokens, "vllm serve's on this GPU")
	setup, err := cost.New("llama-3-8b", "a100-40gb", 1)
	require.NoError(t, err)
	setup.Memory.Utilization, setup.Memory.Tokens, setup.Sequences = 0.9, 2048, 256
	blocks, cpu, err := setup.Pool(32)
	require.NoError(t, err)
	require.Equal(t, blocks, p.Scenario.Server.NumGPUBlocks)
	require.Equal(t, cpu, p.Scenario.Server.NumCPUBlocks)
	require.Equal(t, 19, p.Scenario.Server.BatchSize, "as many as fit of the longest sequences")

	p = open(t, Scenario{Machine: Machine{Setup: "llama-3-8b"},
		Server: sim.Server{NumGPUBlocks: 77, NumCPUBlocks: 5, MaxModelLen: 100,
			MaxNumBatchedTokens: 300}})
	require.Equal(t, 77, p.Scenario.Server.NumGPUBlocks)
	require.Equal(t, 5, p.Scenario.Server.NumCPUBlocks)
	require.Equal(t, 300, p.Scenario.Server.MaxNumBatchedTokens)
}

// Ensure that a scenario with Model and GPU has vLLM's default memory utilization, and that a scenario with Setup has
// the utilization of this setup. A utilization in the scenario replaces both.
func TestTheMemoryThatMayBeUsedIsVLLMsOrTheSetups(t *testing.T) {
	last := 0
	for _, c := range []struct {
		name string
		s    Scenario
		want float64
	}{
		{"a setup", Scenario{}, 0.95},
		{"a setup, asked for", Scenario{Machine: Machine{MemoryUtilization: 0.8}}, 0.8},
		{"a model, asked for less", Scenario{Machine: Machine{Model: "llama-3-8b", GPU: "l4",
			MemoryUtilization: 0.85}}, 0.85},
		{"a model", Scenario{Machine: Machine{Model: "llama-3-8b", GPU: "l4"}}, 0.9},
		{"a model, asked for more", Scenario{Machine: Machine{Model: "llama-3-8b", GPU: "l4",
			MemoryUtilization: 0.95}}, 0.95},
		{"blocks", Scenario{Machine: Machine{Model: "llama-3-8b", GPU: "l4"}, Server: sim.Server{NumGPUBlocks: 50}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := open(t, c.s)
			require.Equal(t, c.want, p.PoolShare())
			again := open(t, p.Scenario)
			require.Equal(t, p.Scenario, again.Scenario)
			require.Equal(t, c.want, again.PoolShare())
			if c.s.Model != "" && c.want > 0 {
				require.Greater(t, p.Scenario.Server.NumGPUBlocks, last)
				last = p.Scenario.Server.NumGPUBlocks
			}
		})
	}
}

func TestFasterTransformerHasItsOwnBatchesAndTimes(t *testing.T) {
	for _, c := range []struct {
		setup, workload string
		batch           int
	}{
		{"", "sharegpt", 5}, {"", "alpaca", 14}, {"", "alpaca-inputs", 14},
		{"paper-opt-66b", "sharegpt", 2}, {"paper-opt-66b", "alpaca", 8},
		{"paper-opt-175b", "sharegpt", 24}, {"paper-opt-175b", "alpaca", 80},
	} {
		p := open(t, Scenario{Machine: Machine{Setup: c.setup}, Load: Load{Workload: c.workload},
			Server: sim.Server{System: "fastertransformer"}})
		require.Equal(t, c.batch, p.Scenario.Server.BatchSize)
	}
	p := open(t, Scenario{Machine: Machine{Model: "opt-13b", GPU: "a100-80gb"},
		Server: sim.Server{System: "fastertransformer"}})
	require.Equal(t, p.Scenario.Server.NumGPUBlocks/128, p.Scenario.Server.BatchSize, "the artifact had no such GPU")
	p = open(t, Scenario{Server: sim.Server{System: "fastertransformer", NumGPUBlocks: 400}})
	require.Equal(t, 3, p.Scenario.Server.BatchSize, "less memory than the artifact had")
	one := cost.Work{Seqs: 1}
	p = open(t, Scenario{Server: sim.Server{System: "fastertransformer"}})
	require.InDelta(t, 0.0213, p.Model.Seconds(one), 1e-12)
	p = open(t, Scenario{Server: sim.Server{System: "sosp"}})
	require.InDelta(t, 0.0223, p.Model.Seconds(one), 1e-12)
}

func TestAWorkloadsPrefixIsKnownBeforeItsRequests(t *testing.T) {
	require.Equal(t, 80, open(t, Scenario{Load: Load{Workload: "wmt16-1shot"}}).Scenario.Server.Prefix)
	require.Zero(t, open(t, Scenario{}).Scenario.Server.Prefix)
}

func put(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "trace.csv")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Ensure that a trace keeps its rate or gets the given rate, and ends after the given duration or number of requests.
func TestATraceIsScaledAndCutAsSaid(t *testing.T) {
	path := put(t, "arrival,prompt,output\n0,10,5\n10,10,5\n20,10,5\n30,10,5\n")
	run := func(s Scenario) *sim.Result {
		s.Trace = path
		p := open(t, s)
		r, err := p.Run(context.Background(), nil, nil)
		require.NoError(t, err)
		require.Equal(t, p.Expected(), r.Arrived)
		return r
	}
	r := run(Scenario{})
	require.Equal(t, 4, r.Answered)
	require.InDelta(t, 30, r.Seconds, 1)
	require.InDelta(t, 3, run(Scenario{Load: Load{Rate: 1}}).Seconds, 1, "0.1 requests/s, ten times as fast")
	require.Equal(t, 2, run(Scenario{Load: Load{Requests: 2}}).Answered)
	require.Equal(t, 2, run(Scenario{Load: Load{Duration: 20}}).Answered)
	require.Equal(t, 4, open(t, Scenario{Load: Load{Trace: path}}).Trace.Requests)

	// Only the rows that are used determine the rate: here three rows 10 s apart, without the fourth row an hour
	// later.
	path = put(t, "arrival,prompt,output\n0,10,5\n10,10,5\n20,10,5\n3600,10,5\n")
	require.InDelta(t, 20, run(Scenario{Load: Load{Rate: 0.1, Requests: 3}}).Seconds, 1)
	require.InDelta(t, 30, run(Scenario{Load: Load{Rate: 0.1}}).Seconds, 1)
}

func TestContradictoryScenariosAreRefused(t *testing.T) {
	atOnce := put(t, "arrival,prompt,output\n5,10,5\n5,10,5\n6,10,5\n")
	for _, tc := range []struct {
		name, wantErr string
		scenario      Scenario
	}{
		{"an engine and a cost file", `engine "vllm" or from the cost file "x.json", not from both`,
			Scenario{Machine: Machine{Model: "opt-13b", GPU: "l4", Engine: "vllm", Cost: "x.json"}}},
		{"an end before the start", "until -1 s", Scenario{Window: Window{Until: -1}}},
		{"a start after the end", "from 50 s until 20 s", Scenario{Window: Window{From: 50, Until: 20},
			Load: Load{Duration: 100}}},
		{"nothing between start and end", "from 100 s until 100 s", Scenario{Window: Window{From: 100},
			Load: Load{Duration: 100}}},
		{"a negative number of workers", "-3 workers: want at least 1",
			Scenario{Machine: Machine{Model: "opt-13b", GPU: "l4", Workers: -3}}},
		{"workers beside a setup", "a setup has its own", Scenario{Machine: Machine{Workers: 4}}},
		{"no memory", "a memory utilization of -0.1: want more than 0, and at most 1",
			Scenario{Machine: Machine{MemoryUtilization: -0.1}}},
		{"more than all memory", "a memory utilization of 90: want more than 0, and at most 1",
			Scenario{Machine: Machine{MemoryUtilization: 90}}},
		{"a rate for requests at one time", "arrive at once", Scenario{Load: Load{Trace: atOnce, Requests: 2, Rate: 3}}},
	} {
		_, err := Open(tc.scenario)
		require.ErrorIs(t, err, ErrScenario, tc.name)
		require.ErrorContains(t, err, tc.wantErr, tc.name)
	}
	_, err := Run(context.Background(), Scenario{Server: sim.Server{System: "orca"}})
	require.ErrorIs(t, err, sim.ErrConfig)
	_, err = Open(Scenario{Load: Load{Trace: put(t, "arrival,prompt,output\n0,1,1\n0,x,1\n")}})
	require.ErrorContains(t, err, ":3:")
}

// Ensure that number formats, stages and expert parallelism reach the setup, and are refused if they have no
// effect on the model.
func TestArrangementsOfAModelReachTheSetup(t *testing.T) {
	p, err := Open(Scenario{Machine: Machine{Model: "mixtral-8x7b", GPU: "h100-80gb", Workers: 2, Stages: 2,
		Apart: true, Weights: "fp8", KV: "fp8", SwapGB: 3}})
	require.NoError(t, err)
	require.Equal(t, 4, p.Setup.GPUs())
	require.True(t, p.Setup.ExpertsApart)
	require.EqualValues(t, 1, p.Setup.LLM.ParameterBytes)
	require.Equal(t, 1, p.Setup.LLM.KVBytes)
	require.EqualValues(t, 3, p.Setup.SwapGigabytes)
	for _, c := range []struct {
		name string
		s    Scenario
	}{
		{"numbers of a setup", Scenario{Machine: Machine{Weights: "fp8"}}},
		{"stages of a setup", Scenario{Machine: Machine{Stages: 2}}},
		{"negative stages of a setup", Scenario{Machine: Machine{Setup: "roofline-opt-13b", Stages: -1}}},
		{"experts of a setup", Scenario{Machine: Machine{Apart: true}}},
		{"stages that are not whole layers", Scenario{Machine: Machine{Model: "llama-3-8b", GPU: "h100-80gb",
			Stages: 3}}},
		{"experts of a dense model", Scenario{Machine: Machine{Model: "llama-3-8b", GPU: "h100-80gb", Apart: true}}},
		{"no such numbers", Scenario{Machine: Machine{Model: "llama-3-8b", GPU: "h100-80gb", KV: "int2"}}},
		{"a negative link", Scenario{Machine: Machine{SwapGB: -1}}},
		{"negative stages", Scenario{Machine: Machine{Model: "llama-3-8b", GPU: "h100-80gb", Stages: -1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Open(c.s)
			require.Error(t, err)
		})
	}
}

// Ensure that vLLM V1 is the default engine if it has constants for the scenario's GPU. Otherwise DataSheet is the
// default. The plan must name the engine, and a scenario can choose another one.
func TestTheEngineWithDataIsTheDefault(t *testing.T) {
	for _, c := range []struct {
		name, gpu, engine string
		want, says        string
	}{
		{"published", "h100-80gb", "", cost.VLLM, "vllm 0.10-0.20 on h100-80gb: fitted to half of"},
		{"published, and servers of others", "h100-80gb", "", cost.VLLM,
			"on 1 x h100-80gb, iterations took 0.93 to 1.88 times as long as simulated in servers that nothing was fitted to " +
				"(6 points of GPUStack, kvcached on h100-80gb); the time to the first token includes 15 ms of the server's own work"},
		{"published, and servers of others elsewhere", "a100-40gb", "", cost.VLLM,
			"iterations took 0.55 to 1.88 times as long as simulated"},
		{"published on other GPUs", "rtx-4090", "", cost.VLLM,
			"vllm 0.10-0.20 on rtx-4090: not fitted on this GPU; constants as measured on a100-80gb, b200-180gb, " +
				"h100-80gb, h200-141gb, with this GPU's data sheet"},
		{"without constants", "v100s-32gb", "", DataSheet,
			"no measurements of newer releases on v100s-32gb are published"},
		{"asked for", "h100-80gb", DataSheet, DataSheet,
			"constants chosen by hand: without data (--engine vllm is newer, fitted to measurements on h100-80gb)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := open(t, Scenario{Machine: Machine{Model: "llama-3-8b", GPU: c.gpu, Engine: c.engine}})
			require.Equal(t, c.want, p.Scenario.Engine)
			require.Contains(t, p.Model.Describe(), c.says)
			again := open(t, p.Scenario)
			require.Equal(t, p.Model, again.Model)
			require.Equal(t, p.Scenario, again.Scenario)
		})
	}
	unknown := open(t, Scenario{Machine: Machine{Model: "qwen2.5-0.5b", GPU: "../cost/examples/gpu.json"}})
	require.Equal(t, DataSheet, unknown.Scenario.Engine, "nothing is published")
	require.Contains(t, unknown.Model.Describe(),
		"constants chosen by hand: without data (no measurements of newer releases on my-gpu are published; measure")
	require.Empty(t, open(t, Scenario{}).Scenario.Engine, "the paper's setup has its own times")
	_, err := Open(Scenario{Machine: Machine{Model: "llama-3-8b", GPU: "mi300x", Engine: cost.VLLM}})
	require.ErrorIs(t, err, cost.ErrUnknown, "what is asked for is not replaced")
	for _, name := range []string{"tensorrt-llm", "vllm-0.7.3", "sglang"} {
		_, err := Open(Scenario{Machine: Machine{Model: "llama-3-8b", GPU: "h100-80gb", Engine: name}})
		require.ErrorIs(t, err, cost.ErrUnknown)
		require.ErrorContains(t, err, "there are vllm (V1) and data-sheet; for other engines and releases, use llmsim "+
			"calibrate")
	}
}

func TestASamplerThatSortsLeavesASmallerPool(t *testing.T) {
	open := func(s Scenario) *Plan {
		s.Model, s.GPU, s.Engine, s.Requests, s.Rate, s.InputLen, s.OutputLen = "qwen3-32b", "h100-80gb",
			"vllm", 5, 1, 100, 10
		p, err := Open(s)
		require.NoError(t, err)
		return p
	}
	p := open(Scenario{})
	require.Equal(t, 2025, p.Scenario.Server.NumGPUBlocks)
	require.InDelta(t, 1139, p.SortingPool(), 5, "llm-d's server")
	require.Zero(t, open(Scenario{Server: sim.Server{NumGPUBlocks: 1900}}).SortingPool())
	require.Zero(t, open(Scenario{Server: sim.Server{MaxNumSeqs: 8}}).SortingPool(), "few logits to sort")
}

package cost

import "fmt"

// A GPU has the numbers of a data sheet. A GB is 10^9 bytes. Rates are peaks; an Engine says which fraction of them is
// reached.
type GPU struct {
	Name   string `json:"name"`
	Source string `json:"source"` // of the numbers; not interpreted

	MemoryBytes int64   `json:"memory_bytes"`              // as the driver reports it, less than in the GPU's name
	Bandwidth   float64 `json:"memory_gb_s"`               // of its memory
	Processors  float64 `json:"multiprocessors,omitempty"` // or compute units; 0 if not known
	FP16        float64 `json:"fp16_tflops"`               // dense, with sums in fp32; bf16 is the same
	FP8         float64 `json:"fp8_tflops"`                // this and the next three are 0 if the GPU cannot do them
	INT8        float64 `json:"int8_tops"`
	INT4        float64 `json:"int4_tops"`
	FP4         float64 `json:"fp4_tflops,omitempty"`
	HostLink    float64 `json:"host_link_gb_s"`    // to the CPU's memory, in one direction
	WorkerLink  float64 `json:"worker_link_gb_s"`  // to another GPU, in one direction
	LinkLatency float64 `json:"worker_latency_us"` // of one small all-reduce

	// ThroughHost means that GPUs cannot access each other's memory (peer-to-peer) and transfer through the CPU's memory.
	ThroughHost bool `json:"worker_link_through_host,omitempty"`
}

func (g GPU) check() error {
	const least, most = 1e-3, 1e9
	return within(
		figure{"memory_bytes", float64(g.MemoryBytes), 1 << 20, 1 << 50},
		figure{"fp8_tflops", g.FP8, 0, most},
		figure{"int8_tops", g.INT8, 0, most},
		figure{"int4_tops", g.INT4, 0, most},
		figure{"fp4_tflops", g.FP4, 0, most},
		figure{"memory_gb_s", g.Bandwidth, least, most},
		figure{"fp16_tflops", g.FP16, least, most},
		figure{"host_link_gb_s", g.HostLink, least, most},
		figure{"worker_link_gb_s", g.WorkerLink, least, most},
		figure{"worker_latency_us", g.LinkLatency, least, most},
	)
}

// rate returns the TFLOPS of linear layers in a number format, or 0 if the GPU cannot compute in it.
func (g GPU) rate(number string) float64 {
	switch number {
	case "", "fp16", "bf16":
		return g.FP16
	case "fp8":
		return g.FP8
	case "int8":
		return g.INT8
	case "int4":
		return g.INT4
	case "fp4":
		return g.FP4
	}
	return 0
}

// A figure is a number in a file, and its range.
type figure struct {
	name               string
	value, least, most float64
}

// within returns an error if a figure is out of its range.
func within(figures ...figure) error {
	for _, f := range figures {
		if !(f.value >= f.least && f.value <= f.most) {
			return fmt.Errorf("%s is %v, must be from %v to %v", f.name, f.value, f.least, f.most)
		}
	}
	return nil
}

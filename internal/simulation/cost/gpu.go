package cost

// A GPU has the numbers of its data sheet. A GB is 10^9 bytes. Rates are peak rates; Engine says which fraction of a
// peak rate the software reaches.
type GPU struct {
	Name   string `json:"name"`
	Source string `json:"source"` // of the numbers; not interpreted

	MemoryBytes int64   `json:"memory_bytes" range:"1048576 1e15"`       // as the driver reports it, less than in the GPU's name
	Bandwidth   float64 `json:"memory_gb_s" range:"0.001 1e9"`           // of its memory
	Processors  float64 `json:"multiprocessors,omitempty" range:"0 1e9"` // or compute units; 0 if not known
	FP16        float64 `json:"fp16_tflops" range:"0.001 1e9"`           // dense, with sums in fp32; bf16 is the same
	FP8         float64 `json:"fp8_tflops" range:"0 1e9"`                // 0 if the GPU lacks it, as the next three
	INT8        float64 `json:"int8_tops" range:"0 1e9"`
	INT4        float64 `json:"int4_tops" range:"0 1e9"`
	FP4         float64 `json:"fp4_tflops,omitempty" range:"0 1e9"`
	HostLink    float64 `json:"host_link_gb_s" range:"0.001 1e9"`    // to the CPU's memory, in one direction
	WorkerLink  float64 `json:"worker_link_gb_s" range:"0.001 1e9"`  // to another GPU, in one direction
	LinkLatency float64 `json:"worker_latency_us" range:"0.001 1e9"` // of one small all-reduce

	// ThroughHost means that GPUs cannot access each other's memory (peer-to-peer) and transfer data through the
	// CPU's memory.
	ThroughHost bool `json:"worker_link_through_host,omitempty"`
}

// rate returns the peak rate of linear layers in a number format, in TFLOPS, or 0 if the GPU does not have
// the format.
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

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvevents"
	"llmmemory/internal/scheduling/vllm/v1/kvevents/publish"
	"llmmemory/internal/serving/engine"
)

// eventOptions are the flags for events of the prefix cache.
type eventOptions struct {
	endpoint, replay, topic string
	arrays                  bool

	publisher *publish.Publisher
}

func (o *eventOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.endpoint, "kv-events", "",
		"ZeroMQ address on which events of the prefix cache are published as vLLM does: tcp://*:5557, ipc:///run/kv")
	f.StringVar(&o.replay, "kv-events-replay", "", "ZeroMQ address at which past events can be requested")
	f.StringVar(&o.topic, "kv-events-topic", "", "topic of these messages; llm-d reads kv@POD@MODEL")
	f.BoolVar(&o.arrays, "kv-events-arrays", false,
		"send events as arrays, as vLLM did until 2026 and llm-d reads them, not as maps")
}

// seedOfHashes makes equal blocks have equal hashes in all servers, as PYTHONHASHSEED=0 does in vLLM.
const seedOfHashes = "0"

// open opens the sockets, if there are flags for them.
func (o *eventOptions) open(noCaching bool) (err error) {
	if o.endpoint == "" {
		if o.replay != "" || o.topic != "" || o.arrays {
			return fmt.Errorf("--kv-events-replay, --kv-events-topic and --kv-events-arrays need --kv-events")
		}
		return nil
	}
	if noCaching {
		return fmt.Errorf("--kv-events publishes what is in the prefix cache; leave --no-prefix-caching out")
	}
	o.publisher, err = publish.New(publish.Config{
		Endpoint: o.endpoint, ReplayEndpoint: o.replay, Topic: o.topic, Encoder: kvevents.Encoder{Arrays: o.arrays},
	})
	if err != nil && strings.HasPrefix(o.endpoint, "tcp:") && !strings.Contains(o.endpoint, "*") {
		return fmt.Errorf("--kv-events: %w; tcp://*:PORT waits here for subscribers; llmserve connects to an address with "+
			"a host, as vLLM does", err)
	}
	if err != nil {
		return fmt.Errorf("--kv-events: %w", err)
	}
	return nil
}

func (o *eventOptions) publishTo(c *engine.Config) {
	if o.publisher != nil {
		c.KVEvents, c.Hash = o.publisher, blockhash.CBOR(seedOfHashes)
	}
}

func (o *eventOptions) close() error {
	if o.publisher == nil {
		return nil
	}
	return o.publisher.Close()
}

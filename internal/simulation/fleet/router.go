package fleet

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/simulation/workload"
)

// Router names a rule that chooses a replica for a request.
type Router string

// The load of a replica is its number of unanswered requests.
const (
	Random      Router = "random"
	RoundRobin  Router = "round-robin"
	LeastLoaded Router = "least-loaded"
	PowerOfTwo  Router = "power-of-two" // the less loaded of two random ones
	PrefixAware Router = "prefix"       // see router.prefix
)

// Routers returns all routers.
func Routers() []Router {
	return []Router{Random, RoundRobin, LeastLoaded, PowerOfTwo, PrefixAware}
}

// ParseRouter finds a router by its name. The error wraps sim.ErrConfig.
func ParseRouter(name string) (Router, error) {
	var names []string
	for _, r := range Routers() {
		if string(r) == name {
			return r, nil
		}
		names = append(names, string(r))
	}
	return "", fmt.Errorf("%w: there is no router %q: want %s", sim.ErrConfig, name, strings.Join(names, ", "))
}

// A router chooses among replicas.
type router struct {
	kind   Router
	rng    *rand.Rand
	turn   int // of round robin
	index  index
	block  int // tokens of a block of replica 0
	tokens []int32
	hashes []uint64
}

func (r *router) choose(replicas []*replica, q *workload.Request) int {
	n := len(replicas)
	switch r.kind {
	case Random:
		return r.rng.IntN(n)
	case RoundRobin:
		r.turn++
		return (r.turn - 1) % n
	case PowerOfTwo:
		a, b := r.rng.IntN(n), r.rng.IntN(n)
		if replicas[b].Live() < replicas[a].Live() {
			return b
		}
		return a
	case PrefixAware:
		return r.prefix(replicas, q)
	}
	return r.leastLoaded(replicas)
}

// leastLoaded returns the replica with the fewest unanswered requests. It takes turns among replicas with equal
// numbers. Without these turns, the first replica would get all requests of an idle fleet.
func (r *router) leastLoaded(replicas []*replica) int {
	r.turn++
	best := r.turn % len(replicas)
	for i := range replicas {
		if k := (r.turn + i) % len(replicas); replicas[k].Live() < replicas[best].Live() {
			best = k
		}
	}
	return best
}

// prefix returns the replica with the least work. Work is the number of blocks of the prompt that the replica has
// not cached, plus the prompt blocks of the replica's unanswered requests. NVIDIA Dynamo's KV router adds the same
// two numbers.
func (r *router) prefix(replicas []*replica, q *workload.Request) int {
	r.hash(q)
	r.turn++
	best, leastWork := -1, 0
	for i := range replicas {
		k := (r.turn + i) % len(replicas)
		work := replicas[k].pending + blocks(q.Prompt, r.block) - r.index.matches(r.hashes, k)
		if best < 0 || work < leastWork {
			best, leastWork = k, work
		}
	}
	return best
}

// hash sets r.hashes to the hashes of blocks at the start of the prompt. It leaves out blocks that no other request can
// share: workload.Common returns how many tokens of this prompt may also be at the start of other prompts, and hash
// stops at the last block that lies wholly in these tokens.
func (r *router) hash(q *workload.Request) {
	r.hashes = r.hashes[:0]
	common := workload.Common(q)
	if common < r.block {
		return
	}
	r.tokens = workload.Tokens(r.tokens[:0], q, 0)
	parent := sim.BlockHash.Root()
	for end := r.block; end <= common; end += r.block {
		var sum blockhash.Hash
		sim.BlockHash.Sum(&sum, &parent, r.tokens[end-r.block:end], nil)
		r.hashes = append(r.hashes, first64(&sum))
		parent = sum
	}
}

func blocks(tokens, size int) int { return (tokens + size - 1) / size }

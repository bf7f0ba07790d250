package fleet

import "llmmemory/internal/simulation/sim"

// A replica is a server of the fleet.
type replica struct {
	*sim.Replica
	kind    *Kind
	number  int
	pending int         // prompt blocks of unanswered requests
	count   int         // requests so far
	blocks  map[int]int // prompt blocks of each unanswered request
}

// addReplica adds a replica of a kind.
func (f *fleet) addReplica(k *Kind) (err error) {
	server := k.Server
	server.Events = f.Router == PrefixAware
	p := &replica{kind: k, number: len(f.replicas), blocks: map[int]int{}}
	p.Replica, err = sim.NewReplica(sim.Config{
		Server: server, Cost: k.Cost, Seed: f.Seed + uint64(p.number),
		Left: func(d sim.Departure) {
			p.pending -= p.blocks[d.Index]
			delete(p.blocks, d.Index)
			f.left(d)
		},
	})
	f.replicas = append(f.replicas, p)
	return err
}

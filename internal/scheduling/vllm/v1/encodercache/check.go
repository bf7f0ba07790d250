package encodercache

import (
	"slices"

	"llmmemory/internal/invariants"
)

// Check recomputes the counters and the lists and returns an error if one is wrong.
func (c *Cache) Check() error {
	taken, unreferenced := 0, 0
	for hash, e := range c.entries {
		taken += e.embeds
		listed := slices.Contains(c.oldest, e)
		if listed != (len(e.users) == 0) || e.hash != hash {
			return invariants.Broken("%q has %d users and can be evicted: %v", hash, len(e.users), listed)
		}
		if listed {
			unreferenced += e.embeds
		}
		for _, r := range e.users {
			if !slices.ContainsFunc(r.held, func(i int) bool { return r.inputs[i].Hash == hash }) {
				return invariants.Broken("%q has a user that does not hold it", hash)
			}
		}
	}
	if taken != c.size-c.free || unreferenced != c.unreferenced || c.free < 0 {
		return invariants.Broken("the entries take %d of %d, %d unreferenced; the counters are %d free, %d unreferenced", taken, c.size, unreferenced, c.free, c.unreferenced)
	}
	return nil
}

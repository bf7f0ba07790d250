package encodercache

import (
	"errors"
	"fmt"
	"slices"
)

// ErrBroken is wrapped by every finding of Check.
var ErrBroken = errors.New("encoder cache is broken")

// Check counts everything anew.
func (c *Cache) Check() error {
	taken, unreferenced := 0, 0
	for hash, e := range c.entries {
		taken += e.embeds
		listed := slices.Contains(c.oldest, e)
		if listed != (len(e.users) == 0) || e.hash != hash {
			return fmt.Errorf("%w: %q has %d users and can be evicted: %v", ErrBroken, hash, len(e.users), listed)
		}
		if listed {
			unreferenced += e.embeds
		}
		for _, r := range e.users {
			if !slices.ContainsFunc(r.held, func(i int) bool { return r.inputs[i].Hash == hash }) {
				return fmt.Errorf("%w: %q has a user that does not know", ErrBroken, hash)
			}
		}
	}
	if taken != c.size-c.free || unreferenced != c.unreferenced || c.free < 0 {
		return fmt.Errorf("%w: the entries take %d of %d, %d unreferenced; counted are %d free and %d",
			ErrBroken, taken, c.size, unreferenced, c.free, c.unreferenced)
	}
	return nil
}

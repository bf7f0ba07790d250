package sim

// refork lets beams die and survive.
func (r *run) refork() error {
	r.reforks.Copies = r.reforks.Copies[:0]
	for i := range r.it.Prefills {
		if err := r.reforkOne(r.it.Prefills[i].ID); err != nil {
			return err
		}
	}
	for i := range r.it.Decodes {
		if err := r.reforkOne(r.it.Decodes[i].ID); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) reforkOne(id int) error {
	if q := &r.requests.all[id]; q.generated == q.output {
		return nil
	}
	survivors := 0
	for k := range r.replaced {
		r.replaced[k] = r.rng.Float64() < r.config.Decoding.Replace
		if !r.replaced[k] {
			survivors++
		}
	}
	if survivors == 0 {
		r.replaced[r.rng.IntN(len(r.replaced))] = false
		survivors = 1
	}
	for child := range r.replaced {
		if !r.replaced[child] {
			continue
		}
		nth := r.rng.IntN(survivors)
		for parent := range r.replaced {
			if r.replaced[parent] {
				continue
			}
			if nth == 0 {
				copies := len(r.reforks.Copies)
				if err := r.beams.Refork(&r.reforks, id, child, parent); err != nil {
					return err
				}
				if r.observer != nil {
					r.observer.Reforked(id, child, parent, r.reforks.Copies[copies:]...)
				}
				break
			}
			nth--
		}
	}
	return nil
}

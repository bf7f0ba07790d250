package sim

func (r *run) refork() error {
	r.reforks.Copies = r.reforks.Copies[:0]
	for i := range r.iter.Prefills {
		if err := r.reforkOne(r.iter.Prefills[i].ID); err != nil {
			return err
		}
	}
	for i := range r.iter.Decodes {
		if err := r.reforkOne(r.iter.Decodes[i].ID); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) reforkOne(id int) error {
	if q := &r.requests.all[id]; q.generated == q.output {
		return nil
	}
	r.survivors = r.survivors[:0]
	for k := range r.replaced {
		if r.replaced[k] = r.rng.Float64() < r.config.Decoding.Replace; !r.replaced[k] {
			r.survivors = append(r.survivors, k)
		}
	}
	if len(r.survivors) == 0 {
		k := r.rng.IntN(len(r.replaced))
		r.replaced[k] = false
		r.survivors = append(r.survivors, k)
	}
	for child, replaced := range r.replaced {
		if !replaced {
			continue
		}
		parent := r.survivors[r.rng.IntN(len(r.survivors))]
		copies := len(r.reforks.Copies)
		if err := r.beams.Refork(&r.reforks, id, child, parent); err != nil {
			return err
		}
		if r.observer != nil {
			r.observer.Reforked(id, child, parent, r.reforks.Copies[copies:]...)
		}
	}
	return nil
}

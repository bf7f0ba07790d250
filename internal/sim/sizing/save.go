package sizing

func (r *Report) Save(dir string) error { return nil }

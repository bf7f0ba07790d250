package replay

import "errors"

func newV0Scheduler(c *Init) (oldPlayer, error) { return nil, errors.New("not yet") }

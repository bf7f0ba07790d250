package kvoffload

// SetRemove sets the function that removes files when a folder is too large.
func (f *Folder) SetRemove(remove func(name string) error) { f.remove = remove }

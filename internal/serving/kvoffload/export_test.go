package kvoffload

// SetRemove sets what removes the files of a folder that is too large.
func (f *Folder) SetRemove(remove func(name string) error) { f.remove = remove }

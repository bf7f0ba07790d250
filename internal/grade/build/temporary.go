package build

import (
	"fmt"
	"os"
	"path/filepath"
)

// enterable reports whether the user that submissions run as when the grader is
// root can go to a folder.
func enterable(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return fmt.Errorf("folder for temporary files: %w", err)
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("folder for temporary files: %s: as root, llmgrade runs submissions as another user, who may not go through %s: set TMPDIR to another folder, or chmod o+x it", dir, at)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

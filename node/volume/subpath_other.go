//go:build !linux

package volume

import (
	"errors"
	"io/fs"
	"os"
)

// openInside opens the path below the volume, after making it if it is missing, unless keep is true.
func openInside(volume, path string, keep bool, before steps) (*os.File, error) {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	f, err := root.Open(path)
	if keep || !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	info, err := root.Stat(".")
	if err != nil {
		return nil, err
	}
	if err := before.step("make %s", path); err != nil {
		return nil, err
	}
	if err := root.MkdirAll(path, info.Mode().Perm()); err != nil {
		return nil, err
	}
	return root.Open(path)
}

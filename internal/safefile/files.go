package safefile

import (
	"errors"
	"io"
	"os"
)

// Files is the size of files.
type Files struct{ Bytes, Inodes uint64 }

// FilesIn returns the size of the blocks of the regular files in a directory, without its
// subdirectories. It looks at most names at most. It neither waits for anything in the place of the
// directory, nor has it an effect on it.
func FilesIn(dir string, most int) (Files, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|onlyDirectory, 0)
	if err != nil {
		return Files{}, err
	}
	defer func() { _ = f.Close() }()
	entries, err := f.ReadDir(most)
	if err != nil && !errors.Is(err, io.EOF) { // that of an empty directory
		return Files{}, err
	}
	var out Files
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			out.Bytes += allocated(info)
			out.Inodes++
		}
	}
	return out, nil
}

package users

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// inUse returns the ranges of the user namespaces of all processes that this one can see.
func inUse() ([]Range, error) { return inUseBelow("/proc") }

func inUseBelow(proc string) ([]Range, error) {
	dir, err := os.Open(proc)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var out []Range
	var errs []error
	for _, name := range names {
		if _, err := strconv.Atoi(name); err != nil {
			continue
		}
		for _, file := range []string{"uid_map", "gid_map"} {
			data, err := os.ReadFile(filepath.Join(proc, name, file))
			if err != nil {
				if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) { // it has ended
					errs = append(errs, err)
				}
				continue
			}
			if text := string(data); !seen[text] {
				seen[text] = true
				out = append(out, parseIDMap(text)...)
			}
		}
	}
	if len(errs) > 0 {
		return out, errs[0] // the others have the same cause
	}
	return out, nil
}

//go:build !linux

package volume

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// diskUsage adds up the sizes of the files below dir, in bytes.
func diskUsage(ctx context.Context, dir string) (int64, error) {
	sum, _, err := treeUsage(ctx, dir, 0)
	return sum, err
}

// treeUsage is diskUsage with the number of files and directories.
func treeUsage(ctx context.Context, dir string, _ int64) (sum, files int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil {
			err = context.Cause(ctx)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		sum, files = sum+info.Size(), files+1
		return nil
	})
	return sum, files, err
}

func removeAll(_ context.Context, path string) error { return os.RemoveAll(path) }

func removeMounted(ctx context.Context, dir string) error { return removeAll(ctx, dir) }

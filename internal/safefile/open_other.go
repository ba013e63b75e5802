//go:build !linux

package safefile

import "os"

// open checks the type of the file before and after it opens it.
func open(path string, flag int, follow bool) (*os.File, error) {
	stat := os.Lstat
	if follow {
		stat = os.Stat
	} else {
		flag |= noFollow
	}
	info, err := stat(path)
	if err != nil {
		return nil, err
	}
	if err := checkType(path, info.Mode()); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, flag|nonBlock, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = checkType(path, info.Mode())
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// OpenIn checks the type of a file below a directory before and after it opens it.
func OpenIn(root *os.Root, name string) (*os.File, error) {
	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if err := checkType(name, info.Mode()); err != nil {
		return nil, err
	}
	f, err := root.OpenFile(name, os.O_RDONLY|nonBlock, 0)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = checkType(name, info.Mode())
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
